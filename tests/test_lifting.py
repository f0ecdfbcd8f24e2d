"""Lifting: a least-squares problem whatever the pytree, the output, the chunk, the dtype or the transformation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    COMPILED,
    ETA,
    NET,
    SO2,
    TO_E,
    F,
    flat,
    heldout,
    jacobian,
    lifted,
    probes,
    tangent_values,
    trained,
    untrained,
)

import symtutor as st

pytestmark = pytest.mark.filterwarnings("ignore:eta and delta of so2:UserWarning")  # small grids alias, and say so

X = st.polar_probes(radii=3, angles=8)
SMALL = st.so2(nodes=8)
VECTOR = st.so2(nodes=8, output="vector")
SMALL_ETA = st.orbit_tangent(SMALL)


def bilinear(params, x):
    """A function with a pytree of odd kinds: a tuple, a dict, a scalar leaf, None."""
    scale, tree = params
    return scale * jnp.tanh(tree["w"] @ x)


PARAMS = (jnp.array(1.5), {"w": jnp.array([0.5, -0.3]), "none": None})


def least_squares(f, params, probes, tangent, ridge):
    """Solve the augmented problem by numpy; return c, the weighted Jacobian and the weighted tangent."""
    roots = np.sqrt(np.asarray(probes.w))
    J, eta = np.asarray(jacobian(f, params, probes.x)), np.asarray(tangent_values(tangent, f, params, probes.x))
    roots = np.repeat(roots, J.shape[0] // len(roots))
    A, y = roots[:, None] * J, roots * eta.reshape(-1)
    damping = (ridge * np.linalg.norm(A, 2)) ** 2
    augmented = np.vstack([A, np.sqrt(damping) * np.eye(A.shape[1])])
    return np.linalg.lstsq(augmented, np.concatenate([y, np.zeros(A.shape[1])]))[0], A, y


def tilted():
    """Weights that are not equal, so that dropping them shows."""
    w = 1 + 0.5 * jnp.cos(jnp.arange(24.0))
    return st.Probes(X.x, w / w.sum())


@pytest.mark.parametrize("kind", ["eta", "to_e"])
def test_lift_solves_the_weighted_problem_and_reports_it(kind):
    ridge, tangent = 1e-2, ETA if kind == "eta" else TO_E
    params, c = lifted("trained", kind, ridge)
    expected, A, y = least_squares(F, params, probes(), tangent, ridge)
    np.testing.assert_allclose(flat(c.direction), expected, atol=1e-9 * np.linalg.norm(expected))
    assert jax.tree.structure(c.direction) == jax.tree.structure(params)
    size = np.linalg.norm(y)
    assert float(c.residual) == pytest.approx(np.linalg.norm(A @ expected - y) / size, rel=1e-9)
    assert float(c.norm) == pytest.approx(np.linalg.norm(expected), rel=1e-9)
    assert float(c.tangent_norm) == pytest.approx(size, rel=1e-12)
    assert float(c.explained) == pytest.approx((A @ expected) @ y / size**2, rel=1e-9)
    assert float(c.damping) == pytest.approx((ridge * np.linalg.norm(A, 2)) ** 2, rel=1e-9)
    J, eta = jacobian(F, params, heldout().x), tangent_values(tangent, F, params, heldout().x)
    unseen = np.linalg.norm(J @ expected - eta) / np.linalg.norm(eta)  # held-out weights are equal
    assert float(c.heldout_residual) == pytest.approx(unseen, rel=1e-9)
    assert (c.ok, c.below_floor, float(c.ridge), c.solver) == (True, False, ridge, "cholesky")


def bump(f, params, x):
    """A tangent that has a part outside the image of J."""
    return x[:, 0] ** 2 + jnp.sin(x[:, 1])


@pytest.mark.parametrize("solver", ["cholesky", "eigh", "svd"])
def test_weights_of_the_probes_count(solver):
    c = st.lift(bilinear, PARAMS, tilted(), bump, ridge=1e-2, solver=solver)
    expected = least_squares(bilinear, PARAMS, tilted(), bump, 1e-2)[0]
    np.testing.assert_allclose(flat(c.direction), expected, atol=1e-12)
    assert np.abs(expected - least_squares(bilinear, PARAMS, X, bump, 1e-2)[0]).max() > 1e-2
    assert c.direction[1]["none"] is None and c.direction[0].shape == ()
    assert c.heldout_residual is None


def test_several_outputs_are_lifted_together():
    net = st.mlp((2, 3, 2))
    params, eta = net.init(jax.random.key(0)), st.orbit_tangent(VECTOR)
    c = st.lift(net.apply, params, tilted(), eta, ridge=1e-2)
    np.testing.assert_allclose(flat(c.direction), least_squares(net.apply, params, tilted(), eta, 1e-2)[0], atol=1e-10)


def test_chunks_change_nothing():
    whole = st.lift(bilinear, PARAMS, X, SMALL_ETA, ridge=1e-2)
    chunked = st.lift(bilinear, PARAMS, X, SMALL_ETA, ridge=1e-2, chunk_size=7)
    np.testing.assert_allclose(flat(chunked.direction), flat(whole.direction), atol=1e-14)


def test_a_written_tangent_can_be_lifted():
    # transport: f moves with a constant velocity
    def transport(f, params, x):
        return -jax.vmap(jax.grad(lambda point: f(params, point)))(x) @ jnp.array([1.0, 0.0])

    c = st.lift(bilinear, PARAMS, X, transport, ridge=1e-2)
    expected = least_squares(bilinear, PARAMS, X, transport, 1e-2)[0]
    np.testing.assert_allclose(flat(c.direction), expected, atol=1e-12)


def test_an_equinox_module_can_be_lifted_filtered_to_its_arrays():
    arrays, rest = eqx.partition(eqx.nn.MLP(2, "scalar", 3, 1, key=jax.random.key(0)), eqx.is_inexact_array)
    c = st.lift(lambda p, x: eqx.combine(p, rest)(x), arrays, X, SMALL_ETA, ridge=1e-2)
    assert jax.tree.structure(c.direction) == jax.tree.structure(arrays)
    assert c.residual < 0.1


# ---- jit, vmap, grad


@pytest.fixture(scope="module")
def jitted():
    return jax.jit(lambda params: st.lift(bilinear, params, X, SMALL_ETA, ridge=1e-2))


def test_jit_gives_the_same(jitted):
    plain, traced = st.lift(bilinear, PARAMS, X, SMALL_ETA, ridge=1e-2), jitted(PARAMS)
    assert traced.solver == "cholesky"
    for name in ("residual", "norm", "tangent_norm", "explained", "damping"):
        assert float(getattr(traced, name)) == pytest.approx(float(getattr(plain, name)), rel=1e-12)
    np.testing.assert_allclose(flat(traced.direction), flat(plain.direction), atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_jit_marks_a_failed_solve_and_keeps_its_direction_finite(jitted, bad):
    c = jitted((jnp.array(bad), PARAMS[1]))
    assert not c.ok
    assert not flat(c.direction).any()
    assert (float(c.residual), float(c.explained), float(c.norm)) == (1.0, 0.0, 0.0)


def test_vmap_over_stacked_params_gives_the_single_lifts():
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, leaf - 0.1]), PARAMS)
    many = jax.jit(jax.vmap(lambda p: st.lift(bilinear, p, X, SMALL_ETA, ridge=1e-2)))(stacked)
    assert many.residual.shape == (3,)
    for i in range(3):
        one = st.lift(bilinear, jax.tree.map(lambda leaf, i=i: leaf[i], stacked), X, SMALL_ETA, ridge=1e-2)
        np.testing.assert_allclose(many.residual[i], one.residual, rtol=1e-10)
        np.testing.assert_allclose(many.direction[1]["w"][i], one.direction[1]["w"], atol=1e-13)


@pytest.mark.parametrize("solver", ["cholesky", "svd"])
def test_gradient_through_a_lift_is_that_of_finite_differences(solver):
    @jax.jit
    def norm(scale):
        return st.lift(bilinear, (scale, PARAMS[1]), X, bump, ridge=3e-1, solver=solver).norm

    h = 1e-5
    slope = (norm(jnp.array(1.5 + h)) - norm(jnp.array(1.5 - h))) / (2 * h)
    assert float(jax.jit(jax.grad(norm))(jnp.array(1.5))) == pytest.approx(float(slope), rel=1e-6)


def test_lift_compiles_once():
    def again(scale):
        # group and tangent are made anew and equal; params and ridge are traced
        eta, w = st.orbit_tangent(st.so2(nodes=8)), np.array([scale, 1.0])
        before = len(COMPILED)
        assert st.lift(linear, w, X, eta, ridge=1e-3 * scale).ok
        return len(COMPILED) - before

    assert again(1.0) > 0
    assert again(2.0) == 0


def linear(w, x):
    return jnp.dot(w, x)


# ---- dtypes


def test_float32_takes_svd_at_a_small_ridge_and_is_accurate():
    f32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (untrained(), probes(), heldout()))
    c = st.lift(F, f32[0], f32[1], ETA, ridge=1e-6, heldout=f32[2])
    assert c.solver == "svd" and c.norm.dtype == jnp.float32
    assert c.residual < 1e-5 and c.heldout_residual < 2e-3
    wide = st.lift(F, untrained(), probes(), ETA, ridge=1e-6, heldout=heldout())
    assert float(c.norm) == pytest.approx(float(wide.norm), rel=2e-2)


# ---- the floor


def test_zero_tangent_gives_zero_and_says_so():
    with pytest.warns(UserWarning, match="nothing to lift"):
        c = st.lift(lambda w, x: w * jnp.dot(x, x), jnp.array(2.0), X, SMALL_ETA, ridge=1e-3)
    assert c.ok and c.below_floor and float(c.direction) == 0.0


def test_floor_is_relative_to_the_spread_of_f():
    with pytest.warns(UserWarning, match="below the floor"):
        c = st.lift(bilinear, PARAMS, X, SMALL_ETA, ridge=1e-3, floor=10.0)
    assert c.below_floor and not flat(c.direction).any()
    assert not st.lift(bilinear, PARAMS, X, SMALL_ETA, ridge=1e-3, floor=0.0).below_floor


# ---- the choice of the ridge


def test_ridge_path_agrees_with_single_lifts_and_takes_the_least_heldout_residual():
    ridges = jnp.array([1e-2, 1e-4])
    path = st.choose_ridge(F, trained().params, probes(), TO_E, heldout=heldout(), ridges=ridges)
    for i, ridge in enumerate((1e-2, 1e-4)):
        _, c = lifted("trained", "to_e", ridge)
        np.testing.assert_allclose(path.residuals[i], c.residual, rtol=1e-6)
        np.testing.assert_allclose(path.heldout_residuals[i], c.heldout_residual, rtol=1e-6)
        np.testing.assert_allclose(path.norms[i], c.norm, rtol=1e-6)
    assert path.ridge == path.ridges[np.argmin(path.heldout_residuals)]


def test_too_small_a_ridge_overfits_few_probes():
    few = st.polar_probes(radii=4, angles=9)
    path = st.choose_ridge(F, trained().params, few, TO_E, heldout=heldout())
    assert (np.diff(path.residuals) > 0).all() and (np.diff(path.norms) < 0).all()
    assert path.ridges[0] < path.ridge < path.ridges[-1]


# ---- representation


def test_repr_shows_the_diagnostics_and_not_the_direction():
    _, c = lifted("trained", "eta", 1e-2)
    assert repr(c).startswith("Lift(residual=0.0") and "solver='cholesky'" in repr(c) and "Array" not in repr(c)


def test_exact_lift_of_the_second_generator_of_nothing_is_refused():
    with pytest.raises(ValueError, match="generator is 1, but so2 has 1 generators"):
        st.exact_lift(NET.init(jax.random.key(0)), SO2, generator=1)
