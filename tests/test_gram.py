"""The Gram matrix without a Jacobian: right for every function, factored where it should be, and lifts made of it."""

# ruff: noqa: E501  (a case a line reads better than one a paragraph)

import math
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import ETA, SO2, flat

import symtutor as st
from symtutor import gram as module
from symtutor import lifting
from symtutor.gram import Outer, gram, plan, rows

KEYS = jax.random.split(jax.random.key(0), 4)
W = jax.random.normal(KEYS[0], (20, 2))
V = jax.random.normal(KEYS[1], (20, 20)) / 4
U = jax.random.normal(KEYS[2], (20, 3))
X = jax.random.normal(KEYS[3], (11, 2))
TWO = {"W": W, "V": V}
THREE = TWO | {"Z": V.T + 0.1}
SHARED = jax.jit(lambda W, h: jnp.tanh(W @ h))
TRIANGLE = jnp.triu(jnp.ones((20, 20)))


def hidden(p, x):
    return jnp.tanh(p["W"] @ x)


def equinox_mlp():
    model = eqx.nn.MLP(2, 2, 8, 2, jax.nn.softplus, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    return lambda p, x: eqx.combine(p, static)(x), params


def rounded(M):
    return M + jax.lax.stop_gradient((M * 4).astype(jnp.int8) / 4 - M)


@jax.custom_vjp
def halved(x):
    return x / 2


halved.defvjp(lambda x: (x / 2, None), lambda _, ct: (ct / 2,))

# name: function, params, ranks of the leaves that must stay factored (a renamed primitive would lose them silently)
ZOO = {
    "mlp": (st.mlp((2, 12, 12, 1)).apply, st.mlp((2, 12, 12, 1)).init(KEYS[0]), {"0.W": 1, "1.W": 1}),
    "three outputs": (st.mlp((2, 12, 12, 3)).apply, st.mlp((2, 12, 12, 3)).init(KEYS[0]), {"0.W": 1, "1.W": 1, "2.W": 1}),
    "equinox": (*equinox_mlp(), {"layers.0.weight": 1, "layers.1.weight": 1, "layers.2.weight": 1}),
    "transposed": (lambda p, x: jnp.sum(jnp.tanh(p["V"].T @ hidden(p, x))), TWO, {"W": 1, "V": 1}),
    "twice": (lambda p, x: jnp.sum(jnp.tanh(p["V"] @ jnp.tanh(p["V"] @ hidden(p, x)))), TWO, {"W": 1, "V": 2}),
    "tied": (lambda p, x: jnp.sum(jnp.tanh(p["V"].T @ jnp.tanh(p["V"] @ hidden(p, x)))), TWO, {"W": 1, "V": 2}),
    "scaled": (lambda p, x: jnp.sum(jnp.tanh(0.3 * p["V"] @ hidden(p, x) / np.sqrt(20))), TWO, {"W": 1, "V": 1}),
    "negative": (lambda p, x: jnp.sum(jnp.tanh(-p["V"] @ hidden(p, x))), TWO, {"W": 1, "V": 1}),
    "low rank": (
        lambda p, x: jnp.sum(jnp.tanh((p["U"] @ p["Q"].T) @ hidden(p, x))), {"W": W, "U": U, "Q": U + 1}, {"W": 1, "U": 1, "Q": 1}
    ),
    "reshaped": (lambda p, x: jnp.sum(jnp.tanh(p["V"].reshape(20, 20) @ hidden(p, x))), {"W": W, "V": V.reshape(20, 4, 5)}, {"W": 1, "V": 1}),
    "batch of one": (lambda p, x: jnp.sum(jnp.tanh(jnp.tanh(x[None] @ p["W"].T) @ p["V"])), TWO, {"W": 1, "V": 1}),
    "three tokens": (lambda p, x: jnp.sum(jnp.tanh(jnp.tanh(jnp.stack([x, x + 1, 2 * x]) @ p["W"].T) @ p["V"])), TWO, {"V": 3}),
    "force field": (lambda p, x: jax.grad(lambda x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x))))(x), TWO, {"V": 2}),
    "compiled": (jax.jit(lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x)))), TWO, {"W": 1, "V": 1}),
    "compiled layer used three times": (lambda p, x: SHARED(p["V"], SHARED(p["Z"], SHARED(p["W"], x))).sum(), THREE, {"W": 1, "V": 1, "Z": 1}),
    "recomputed": (jax.checkpoint(lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x)))), TWO, {"W": 1, "V": 1}),
    "piecewise": (lambda p, x: jnp.sum(jax.nn.relu(p["V"] @ jax.nn.gelu(p["W"] @ x))), TWO, {"W": 1, "V": 1}),
    "stopped": (lambda p, x: jnp.sum(jnp.tanh((p["V"] + jax.lax.stop_gradient(p["V"])) @ hidden(p, x))), TWO, {"W": 1, "V": 1}),
    "one leaf unused": (lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x))), THREE, {"W": 1, "V": 1}),
    "own derivative": (lambda p, x: jnp.sum(halved(jnp.tanh(p["V"] @ hidden(p, x)))), TWO, {"W": 1, "V": 1}),
    # no structure, or none that is looked for: multiplied out, and right
    "masked": (lambda p, x: jnp.sum(jnp.tanh((p["V"] * TRIANGLE) @ hidden(p, x))), TWO, {"W": 1}),
    "decayed": (lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x))) + jnp.sum(p["V"] ** 2), TWO, {"W": 1}),
    "either way": (
        lambda p, x: jax.lax.cond(x[0] > 0, lambda h: jnp.sum(jnp.tanh(p["V"] @ h)), jnp.sum, hidden(p, x)), TWO, {"W": 1}
    ),
    "repeated": (lambda p, x: jax.lax.scan(lambda h, _: (jnp.tanh(p["V"] @ h), None), hidden(p, x), length=3)[0].sum(), TWO, {"W": 1}),
    "batched inside": (lambda p, x: jax.vmap(lambda V: jnp.sum(jnp.tanh(V @ hidden(p, x))))(p["V"]).sum(), TWO | {"V": jnp.stack([V, V.T])}, {"W": 1, "V": 1}),
    "rounded, with the gradient of the unrounded": (
        lambda p, x: jnp.sum(jnp.tanh(rounded(p["U"] @ p["Q"].T) @ hidden(p, x))), {"W": W, "U": U, "Q": U + 1}, {"W": 1, "U": 1, "Q": 1}
    ),
    "transposed by reshape": (
        lambda p, x: jnp.sum(jnp.tanh(jax.lax.reshape(p["U"] @ p["Q"].T, (20, 20), (1, 0)) @ hidden(p, x))), {"W": W, "U": U, "Q": U + 1}, {"W": 1, "U": 1, "Q": 1}
    ),
    "repeated and recomputed": (
        jax.checkpoint(lambda p, x: jax.lax.scan(lambda h, _: (jnp.tanh(p["V"] @ h), None), hidden(p, x), length=2)[0].sum()), TWO, {"W": 1}
    ),
    "recomputed but for products": (
        jax.checkpoint(lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x))), policy=jax.checkpoint_policies.dots_saveable), TWO, {"W": 1, "V": 1}
    ),
    "an empty leaf": (lambda p, x: jnp.sum(jnp.tanh(p["V"] @ hidden(p, x))), TWO | {"Z": jnp.zeros((0, 3))}, {"W": 1, "V": 1}),
    "a number": (lambda w, x: w * x[0] ** 2, jnp.array(2.0), {}),
    "a vector": (lambda w, x: jnp.dot(w, x), jnp.array([1.0, 2.0]), {}),
}  # fmt: skip


@pytest.mark.parametrize("inner", [jnp.float32, jnp.bfloat16])
def test_products_of_narrow_numbers_that_are_summed_wide_stay_wide(inner):
    """A program may ask for a wider result than its operands are: the factors are widened, not the result narrowed."""

    def f(p, x):
        M = jax.lax.dot_general(
            p["U"].astype(inner), p["Q"].astype(inner), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        return jnp.sum(jnp.sin(M) + M.astype(jnp.float64) @ hidden(p, x))

    params = {"W": W, "U": U, "Q": U + 1}
    K = wanted(f, params, X)
    np.testing.assert_allclose(gram(f, params, X), K, atol=1e-6 * np.abs(K).max())


def test_leaves_of_two_precisions_are_summed_in_the_wider():
    def f(p, x):
        return jnp.sum(p["W"] @ x.astype(jnp.float32)) + p["b"]

    params = {"W": W.astype(jnp.float32), "b": jnp.array(1.0)}
    assert plan(f, params, X)["W"].factored
    narrow = np.asarray(X.astype(jnp.float32), float)
    np.testing.assert_allclose(gram(f, params, X), 20 * narrow @ narrow.T + 1, rtol=1e-13)


def test_outside_jit_it_is_one_program_too():
    """So that chunked rows are never built whole there either, and a second call compiles nothing."""
    f, params, _ = ZOO["masked"]
    traced = []
    counted = lambda p, x: traced.append(1) or f(p, x)  # noqa: E731
    first = gram(counted, params, X, chunk_size=4)
    once = len(traced)
    np.testing.assert_array_equal(gram(counted, params, X, chunk_size=4), first)
    assert once == len(traced) > 0


def wanted(f, params, x):
    J = np.asarray(st.jacobian(f, params, x))
    return J @ J.T


@pytest.mark.parametrize("name", ZOO)
def test_it_is_the_gram_matrix_of_the_jacobian_and_factored_as_planned(name):
    f, params, ranks = ZOO[name]
    K = wanted(f, params, X)
    np.testing.assert_allclose(jax.jit(gram, static_argnums=0)(f, params, X), K, atol=3e-15 * np.abs(K).max())
    assert {path: leaf.rank for path, leaf in plan(f, params, X).items() if leaf.factored} == ranks


@pytest.mark.parametrize("name", ["three outputs", "three tokens", "masked"])
@pytest.mark.parametrize("chunk_size", [1, 4, 11, 50])
def test_chunks_change_nothing(name, chunk_size):
    f, params, _ = ZOO[name]
    K = wanted(f, params, X)
    np.testing.assert_allclose(gram(f, params, X, chunk_size=chunk_size), K, atol=3e-15 * np.abs(K).max())


def test_rows_that_are_too_many_are_chunked_by_themselves(monkeypatch):
    masked, params, _ = ZOO["masked"]
    f = lambda p, x: masked(p, x)  # noqa: E731  (its own, so that nothing compiled is used again)
    monkeypatch.setattr(module, "DENSE_BYTES", 17000)  # five rows of 420 numbers or fewer
    called = []
    whole = module._dense_gram
    monkeypatch.setattr(module, "_dense_gram", lambda *given: called.append(given[-1]) or whole(*given))
    K = wanted(f, params, X)
    np.testing.assert_allclose(gram(f, params, X), K, atol=3e-15 * np.abs(K).max())
    assert called == [5]


def test_plan_tells_what_is_kept():
    f, params, _ = ZOO["mlp"]
    leaves = plan(f, params, X)
    assert list(leaves) == ["0.W", "0.b", "1.W", "1.b", "2.W", "2.b"]
    assert leaves["1.W"] == (True, 1, 144, 24) and leaves["1.b"] == (False, 0, 12, 12)


def test_in_single_precision_it_is_right_to_single_precision():
    f, params, _ = ZOO["mlp"]
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    K = gram(f, narrow, X.astype(jnp.float32))
    assert K.dtype == jnp.float32
    np.testing.assert_allclose(K, wanted(f, params, X), atol=3e-6 * np.abs(K).max())


def test_it_can_be_differentiated_and_batched():
    f, params, _ = ZOO["tied"]

    def trace_of(make):
        return jax.grad(lambda p: jnp.trace(make(p)))(params)

    def dense(p):
        J = st.jacobian(f, p, X)
        return J @ J.T

    np.testing.assert_allclose(flat(trace_of(lambda p: gram(f, p, X))), flat(trace_of(dense)), rtol=1e-10, atol=1e-10)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), params)
    both = jax.vmap(lambda p: gram(f, p, X))(two)
    np.testing.assert_allclose(both[1], wanted(f, jax.tree.map(lambda leaf: 0.5 * leaf, params), X), rtol=1e-10)


def test_every_rule_for_outer_products_gives_what_the_plain_operation_gives():
    """Random outer products through random chains of the operations that are carried through."""
    rng = np.random.default_rng(0)
    kept = 0
    for _ in range(60):
        r, a, b = 1, tuple(rng.integers(3, 6, rng.integers(1, 3))), tuple(rng.integers(3, 6, rng.integers(1, 3)))
        left, right = rng.normal(size=(r, *a)), rng.normal(size=(r, *b))
        kinds = rng.permutation(
            ["transpose", "swap", "neg", "scale", "divide", "merge", "unit", "dot", "dot from left"]
        )[:4]

        def chain(left, right, kinds=kinds):
            value = jnp.tensordot(left, right, ((0,), (0,)))
            for kind in kinds:
                if kind == "transpose":
                    value = value.T
                elif kind == "swap" and value.ndim > 2:
                    value = jnp.swapaxes(value, 0, 1)
                elif kind == "neg":
                    value = -value
                elif kind == "scale":
                    value = 0.7 * value
                elif kind == "divide":
                    value = value / 3.0
                elif kind == "merge":
                    value = value.reshape(-1, value.shape[-1])
                elif kind == "unit":
                    value = value[None].reshape(value.shape)
                elif kind == "dot":
                    value = jnp.tensordot(value, jnp.ones((value.shape[-1], 4)), 1)
                elif kind == "dot from left":
                    value = jnp.tensordot(jnp.ones((5, value.shape[0])), value, 1)
            return value

        program = jax.make_jaxpr(chain)(left, right)
        (got,) = module.evaluate(program.jaxpr, program.consts, [jnp.asarray(left), jnp.asarray(right)])
        kept += isinstance(got, Outer)
        np.testing.assert_allclose(module._dense(got), chain(left, right), rtol=1e-12, atol=1e-12)
    assert kept > 15  # otherwise nothing was tried


def test_a_million_parameters_never_stand_in_memory():
    net = st.mlp((2, 990, 990, 1))
    params = jax.eval_shape(net.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((512, 2), jnp.float64)
    compiled = jax.jit(lambda p, x: gram(net.apply, p, x)).lower(params, x).compile()
    used = compiled.memory_analysis().temp_size_in_bytes
    assert used < 100e6  # the rows would take 4 GB
    factored = [leaf for leaf in plan(net.apply, params, jnp.zeros((1, 2))).values() if leaf.factored]
    assert math.isclose(sum(leaf.size for leaf in factored), 990 * 990 + 1980)


def test_leaves_of_rows_have_a_row_a_probe_and_output():
    f, params, _ = ZOO["three outputs"]
    first, *_, last = rows(f, params, X)
    assert isinstance(first, Outer) and first.left.shape == (33, 1, 12) and last.shape == (33, 3)


# ---- lifts made of it


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("ridge", [1e-3, 1e-6])
@pytest.mark.parametrize("chunk_size", [None, 50, 64])
def test_a_lift_is_that_of_the_dense_solvers(vector, ridge, chunk_size):
    sizes = (2, 16, 16, 2) if vector else (2, 20, 20, 1)
    net = st.mlp(sizes)
    params, tangent = net.init(jax.random.key(1)), st.orbit_tangent(st.so2(output="vector")) if vector else ETA
    probes = st.polar_probes(radii=4, angles=32)
    by_gram = st.lift(net.apply, params, probes, tangent, ridge, chunk_size=chunk_size)
    by_svd = st.lift(net.apply, params, probes, tangent, ridge, solver="svd")
    assert (by_gram.solver, by_svd.solver) == ("gram", "svd")
    np.testing.assert_allclose(flat(by_gram.direction), flat(by_svd.direction), atol=1e-7 * float(by_svd.norm))
    for field in ("residual", "norm", "tangent_norm", "explained", "damping"):
        np.testing.assert_allclose(getattr(by_gram, field), getattr(by_svd, field), rtol=1e-6, err_msg=field)


def test_a_lift_says_which_solver_and_why():
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=6, angles=16)
    c = st.lift(net.apply, net.init(jax.random.key(0)), probes, ETA, 1e-4)
    assert "solver='gram' (96 rows and 337 parameters, ridge at least 4.7e-08)" in repr(c)


def test_a_solve_that_does_not_fit_is_refused_before_it_is_tried(monkeypatch):
    net, probes = st.mlp((2, 990, 990, 1)), st.polar_probes(radii=16, angles=32)
    params = net.init(jax.random.key(0))
    monkeypatch.setattr("symtutor.solvers.free_memory", lambda device: 10**9)
    with pytest.raises(
        MemoryError, match=r"512 rows and 985051 parameters by solver 'svd' takes about 12.1 GB, and 1 GB are"
    ):
        st.lift(net.apply, params, probes, ETA, 1e-9)
    monkeypatch.setattr("symtutor.solvers.free_memory", lambda device: 10**6)
    with pytest.raises(MemoryError, match="by solver 'gram' takes about .* expected fewer probes, or solver='lsmr'"):
        st.lift(net.apply, params, probes, ETA, 1e-4, solver="gram")
    with pytest.raises(MemoryError, match="by solver 'cholesky' takes about .* expected fewer probes"):
        st.subset_check(net.apply, params, probes, ETA, params, st.polar_probes(3, 9, offset=0.5))


def test_where_not_even_the_gram_matrix_fits_an_iteration_takes_over(monkeypatch):
    net, probes = st.mlp((2, 150, 150, 1)), st.polar_probes(radii=16, angles=64)
    params = net.init(jax.random.key(0))
    monkeypatch.setattr(
        "symtutor.solvers.free_memory", lambda device: 20 * 10**6
    )  # the Gram matrix of 1024 rows takes 25 MB
    by_lsmr = st.lift(net.apply, params, probes, ETA, 1e-2)
    assert by_lsmr.solver == "lsmr" and by_lsmr.reason.startswith("1024 rows: J J^T would take 0.0")
    with pytest.raises(MemoryError, match="1024 rows and 23251 parameters by solver 'gram'"):  # a path has no iteration
        st.choose_ridge(net.apply, params, probes, ETA, st.polar_probes(3, 9, offset=0.5))
    monkeypatch.undo()
    by_gram = st.lift(net.apply, params, probes, ETA, 1e-2)
    np.testing.assert_allclose(flat(by_lsmr.direction), flat(by_gram.direction), atol=1e-4 * float(by_gram.norm))


def test_gram_matrices_of_many_probes_are_estimated_though_the_jacobian_is_small(monkeypatch):
    net, probes = st.mlp((2, 12, 1)), st.polar_probes(radii=64, angles=128)
    monkeypatch.setattr("symtutor.solvers.free_memory", lambda device: 10**9)  # K takes 0.5 GB, its factor as much
    with pytest.raises(MemoryError, match="8192 rows and 49 parameters by solver 'gram' takes about 1.61 GB"):
        st.lift(net.apply, net.init(jax.random.key(0)), probes, ETA, 1e-4, solver="gram")


def test_the_estimate_counts_factors_and_chunked_rows_as_they_are_held(monkeypatch):
    """Sixteen tokens: a weight's gradient is sixteen outer products, which no chunk makes fewer."""
    params = {"W": W, "V": V, "Z": jnp.zeros((200, 30))}

    def f(p, x):
        tokens = jnp.tanh(jnp.outer(jnp.arange(8.0), x) @ p["W"].T)
        return jnp.sum(jnp.tanh(tokens @ p["V"])) + jnp.sum(jnp.sin(p["Z"] * x[0]))

    probes = st.probes_from_data(jnp.tile(X, (20, 1)))
    monkeypatch.setattr("symtutor.lifting.LARGE", 1)
    monkeypatch.setattr("symtutor.lifting.DENSE_BYTES", 220 * 8 * 100)
    seen = []
    monkeypatch.setattr("symtutor.solvers.check_memory", lambda *given: seen.append(given[4]))
    lifting.choose_solver("gram", 1e-4, f, params, probes)
    assert seen == [8 * 40 + 100]
    assert sum(leaf.stored for leaf in plan(f, params, X).values()) == 8 * 40 + 40 + 6000


@pytest.mark.parametrize("precision", [jnp.float32, jnp.float64])
def test_an_iteration_works_in_the_precision_of_the_parameters(precision):
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=4, angles=32)
    params, probes = jax.tree.map(lambda leaf: leaf.astype(precision), (net.init(jax.random.key(0)), probes))
    by_lsmr = st.lift(net.apply, params, probes, ETA, 1e-2, solver="lsmr")
    by_svd = st.lift(net.apply, params, probes, ETA, 1e-2, solver="svd")
    assert by_lsmr.direction[0]["W"].dtype == precision
    np.testing.assert_allclose(by_lsmr.residual, by_svd.residual, rtol=1e-5)
    np.testing.assert_allclose(flat(by_lsmr.direction), flat(by_svd.direction), atol=1e-3 * float(by_svd.norm))


@pytest.mark.parametrize("ridge", [1e-3, 1e-5, 1e-7])
def test_an_iteration_is_as_good_as_a_factorisation_or_fails(ridge):
    """With a small ridge a small slope is no sign of a small residual: what counts is how far the value is from the least."""
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=4, angles=32)
    params = net.init(jax.random.key(0))
    best = st.lift(net.apply, params, probes, ETA, ridge, solver="svd").residual
    try:
        found = st.lift(net.apply, params, probes, ETA, ridge, solver="lsmr").residual
    except FloatingPointError:
        assert ridge < 1e-4
    else:
        assert float(found) <= math.hypot(float(best), 1.1e-6)


def test_a_solve_that_is_worse_than_standing_still_is_no_answer(monkeypatch):
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=4, angles=32)
    monkeypatch.setattr(
        "symtutor.lifting.gram", lambda f, params, x, chunk_size: jnp.diag(jnp.linspace(1e-9, 1, len(x)))
    )
    f = lambda p, x: net.apply(p, x)  # noqa: E731  (its own, so that nothing compiled is used again)
    with pytest.raises(FloatingPointError, match="solver 'gram' failed"):
        st.lift(f, net.init(jax.random.key(0)), probes, ETA, 1e-6)


@pytest.mark.parametrize("steps", [5, 200])
def test_an_iteration_that_did_not_converge_is_no_answer(monkeypatch, steps):
    """After 200 steps the slope is below 1e-7 of its start, but the value is still 2e-4 away from the least."""
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=4, angles=32)
    monkeypatch.setattr("symtutor.lifting.LSMR_STEPS", steps)
    with pytest.raises(FloatingPointError, match="solver 'lsmr' failed at ridge 0.0001"):
        st.lift(net.apply, net.init(jax.random.key(0)), probes, ETA, 1e-4, solver="lsmr")


def test_ridge_paths_bands_and_sensitivities_of_a_large_network_hold_no_jacobian(monkeypatch):
    """A Jacobian here would be 256 x 400,000 numbers; building one is an error."""
    net = st.mlp((2, 630, 630, 1))
    params, probes, heldout = net.init(jax.random.key(0)), st.polar_probes(8, 32), st.polar_probes(7, 34, offset=0.5)
    monkeypatch.setattr("symtutor.lifting.jacobian", None)
    path = st.choose_ridge(net.apply, params, probes, ETA, heldout, [1e-2, 1e-4])
    c = st.lift(net.apply, params, probes, ETA, 1e-4, heldout)
    np.testing.assert_allclose(path.residuals[1], c.residual, rtol=1e-4)
    np.testing.assert_allclose(path.heldout_residuals[1], c.heldout_residual, rtol=1e-4)
    band = st.attribution_band(net.apply, params, [probes], ETA, [1e-2, 1e-4])
    att = st.attribute(net.apply, params, probes, ETA, c)
    np.testing.assert_allclose(band.explained[0, 1], att.explained, atol=1e-9)
    np.testing.assert_allclose(flat(band.shares[0]["W"][0, 1]), flat(att.shares[0]["W"]), atol=1e-6)


def test_sensitivity_holds_a_chunk_of_derivatives_at_a_time(monkeypatch):
    f, params, _ = ZOO["three outputs"]
    probes = st.probes_from_data(X, jnp.arange(1.0, 12.0) / 66)
    S = np.sqrt(np.asarray(jnp.repeat(probes.w, 3)) @ np.asarray(st.jacobian(f, params, X)) ** 2)
    for chunk_size in (None, 1, 4, 11, 99):
        np.testing.assert_allclose(flat(st.sensitivity(f, params, probes, chunk_size=chunk_size)), S, rtol=1e-12)
    compiled = jax.jit(lambda p: st.sensitivity(f, p, probes, chunk_size=1)).lower(params).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 11 * 8 * len(S)  # less than the derivatives of all


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import symtutor as st
wide = {wide}
if wide: st.enable_x64()
assert len(jax.devices()) == 8
net, so2 = st.mlp((2, 16, 16, 2)), st.so2(output="vector")
params, probes = net.init(jax.random.key(0)), st.polar_probes(radii=8, angles=16)
eta, ridge = st.orbit_tangent(so2), 1e-5 if wide else 3e-3
def moved(c, x):
    return jax.vmap(lambda point: jax.jvp(lambda p: net.apply(p, point), (params,), (c.direction,))[1])(x)
one = st.lift(net.apply, params, probes, eta, ridge)
mesh = jax.make_mesh((8,), ("probes",), axis_types=(AxisType.{axis},))
spread = jax.device_put(probes, NamedSharding(mesh, PartitionSpec("probes")))
more = jax.device_put(st.polar_probes(4, 20, offset=0.5), NamedSharding(mesh, PartitionSpec("probes")))
all = st.lift(net.apply, params, spread, eta, ridge, heldout=more)
assert all.heldout_residual < 0.1
assert all.solver == one.solver == "gram"
bound = 1e-8 if wide else 1e-4
miss = np.abs(np.asarray(moved(all, probes.x)) - np.asarray(moved(one, probes.x))).max() / float(one.tangent_norm)
assert miss < bound, miss
assert abs(float(all.residual) - float(one.residual)) < bound, (all, one)
ts = jnp.array([0.0, 0.2])
flows = [st.resolved_flow(net.apply, params, each, eta, ts, ridge, 1e-3) for each in (probes, spread)]
errors = [float(st.orbit_error(net.apply, flow, probes.x, so2)[-1]) for flow in flows]
assert abs(errors[0] - errors[1]) < (1e-6 if wide else 1e-3), errors
print("same")
"""


@pytest.mark.parametrize("axis", ["Auto", "Explicit"])
@pytest.mark.parametrize("wide", [True, False])
def test_probes_sharded_over_eight_devices_give_what_one_device_gives(axis, wide):
    code = SHARDED.format(axis=axis, wide=wide)
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=1"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"XLA_FLAGS": flags}
    )
    assert done.stdout.strip() == "same", done.stderr[-3000:]


def test_a_flow_of_a_group_average_goes_through_the_gram_matrix_too():
    net, probes = st.mlp((2, 16, 16, 1)), st.polar_probes(radii=6, angles=16)
    params = net.init(jax.random.key(2))
    flow = st.resolved_flow(net.apply, params, probes, st.symmetrizing_tangent(SO2), jnp.array([0.0, 1.0]), 1e-4)
    left = st.defect_left(net.apply, flow, probes.x, SO2)[-1]
    assert float(left) == pytest.approx(math.exp(-1), abs=2e-3)
