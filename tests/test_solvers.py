"""The solvers against numpy and scipy, on matrices with a known minimum-norm solution."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as some

from symtutor import solvers

RNG = np.random.default_rng(0)


@eqx.filter_jit
def solve(solver, A, y, ridge):
    if solver == "cholesky":
        solve_for, damping = solvers.cholesky(A, ridge)
        return solve_for(y), damping
    return getattr(solvers, solver)(A).solve(y, ridge)


def low_rank(rows, columns, rank):
    return RNG.normal(size=(rows, rank)) @ RNG.normal(size=(rank, columns))


KNOWN = {
    "hilbert": scipy.linalg.hilbert(6),
    "vandermonde": np.vander(np.linspace(0, 1, 12), 6),
    "wide vandermonde": np.vander(np.linspace(0, 1, 6), 12),
    "rank-deficient tall": low_rank(12, 6, 3),
    "rank-deficient wide": low_rank(6, 12, 3),
    "repeated columns": np.tile(RNG.normal(size=(6, 3)), (1, 4)),
    "one row": RNG.normal(size=(1, 12)),
    "one column": RNG.normal(size=(12, 1)),
    "one entry": np.array([[3.0]]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_pseudo_inverse_finds_the_known_minimum_norm_solution(name):
    A = KNOWN[name]
    known = A.T @ np.cos(np.arange(A.shape[0]))  # in the row space: the solution of minimum norm
    outside = np.linalg.svd(A)[0][:, np.linalg.matrix_rank(A) :].sum(axis=1)  # what no solution reaches
    c, damping = solve("svd", jnp.asarray(A), jnp.asarray(A @ known + outside), jnp.array(0.0))
    condition = (s := np.linalg.svd(A)[1])[0] / s[s > 1e-13 * s[0]][-1]
    assert np.linalg.norm(c - known) <= 30 * 2.2e-16 * condition * max(np.linalg.norm(known), 1)
    assert damping == 0


def test_pseudo_inverse_of_a_hilbert_matrix_is_its_known_inverse():
    H = jnp.asarray(scipy.linalg.hilbert(6))
    columns = np.stack([solve("svd", H, y, jnp.array(0.0))[0] for y in jnp.eye(6)], axis=1)
    np.testing.assert_allclose(columns, scipy.linalg.invhilbert(6), rtol=1e-9)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("solver", ["cholesky", "eigh", "svd"])
def test_ridge_solves_the_augmented_problem(solver, name):
    A, ridge = KNOWN[name], 1e-3
    y = np.cos(np.arange(A.shape[0]))
    damping = (ridge * np.linalg.svd(A)[1][0]) ** 2
    augmented = np.vstack([A, np.sqrt(damping) * np.eye(A.shape[1])])
    expected = np.linalg.lstsq(augmented, np.concatenate([y, np.zeros(A.shape[1])]))[0]
    c, seen = solve(solver, jnp.asarray(A), jnp.asarray(y), jnp.array(ridge))
    assert seen == pytest.approx(damping, rel=1e-10)
    assert np.linalg.norm(c - expected) <= (1e-9 if solver == "eigh" else 1e-10) * np.linalg.norm(expected)


@pytest.mark.parametrize(("ridge", "most"), [(1e-6, 4e-9), (1e-7, 5e-5)])
@pytest.mark.parametrize("shape", [(12, 6), (6, 12)])
def test_refinement_keeps_cholesky_accurate_near_its_limit(shape, ridge, most):
    # singular values from 1 to 1e-12, a right-hand side on all of them
    U, V = (np.linalg.qr(RNG.normal(size=(m, 6)))[0] for m in shape)
    s = np.logspace(0, -12, 6)
    expected = V @ (s / (s**2 + ridge**2) * s)
    y = U @ s
    c, _ = solve("cholesky", jnp.asarray((U * s) @ V.T), jnp.asarray(y), jnp.array(ridge))
    assert np.linalg.norm(c - expected) <= most * np.linalg.norm(expected)


@pytest.mark.parametrize("solver", ["cholesky", "eigh", "svd"])
@pytest.mark.parametrize("shape", [(12, 6), (6, 12)])
@pytest.mark.parametrize("zero", ["matrix", "right-hand side"])
def test_zero_gives_zero(solver, shape, zero):
    A = jnp.zeros(shape) if zero == "matrix" else jnp.asarray(RNG.normal(size=shape))
    y = jnp.ones(shape[0]) if zero == "matrix" else jnp.zeros(shape[0])
    c, _ = solve(solver, A, y, jnp.array(1e-3))
    assert not np.asarray(c).any()


def test_float32_solves_an_ill_conditioned_problem_by_svd():
    H = scipy.linalg.hilbert(6).astype(np.float32)
    y = np.ones(6, np.float32)
    augmented = np.vstack([H, 1e-5 * np.linalg.norm(H, 2) * np.eye(6)]).astype(float)
    expected = np.linalg.lstsq(augmented, np.concatenate([y, np.zeros(6)]))[0]
    c, _ = solve("svd", jnp.asarray(H), jnp.asarray(y), jnp.array(1e-5, jnp.float32))
    assert c.dtype == jnp.float32
    assert np.linalg.norm(np.asarray(c) - expected) <= 5e-4 * np.linalg.norm(expected)


def test_not_finite_in_gives_not_finite_out():
    A = jnp.asarray(RNG.normal(size=(6, 12))).at[2, 3].set(jnp.nan)
    for solver in ("cholesky", "eigh", "svd"):
        assert not np.isfinite(solve(solver, A, jnp.ones(6), jnp.array(1e-3))[0]).all()


# ---- choice of the solver


@pytest.mark.parametrize(
    ("asked", "ridge", "dtype", "taken"),
    [
        ("auto", 1e-6, "float64", "cholesky"),
        ("auto", 1e-8, "float64", "svd"),
        ("auto", 0, "float64", "svd"),
        ("auto", 1e-2, "float32", "cholesky"),
        ("auto", 1e-6, "float32", "svd"),
        ("eigh", 1e-6, "float64", "eigh"),
        ("svd", 1e-2, "float32", "svd"),
    ],
)
def test_choice_follows_ridge_and_dtype(asked, ridge, dtype, taken):
    assert solvers.choose_solver(asked, ridge, dtype, 9, 7)[0] == taken


def test_choice_follows_the_size_and_says_why():
    assert solvers.choose_solver("auto", 1e-6, "float64", 7, 9) == (
        "gram", "7 rows and 9 parameters, ridge at least 4.7e-08",
    )  # fmt: skip
    assert solvers.choose_solver("auto", 1e-8, "float64", 7, 9) == (
        "svd", "7 rows and 9 parameters, ridge below 4.7e-08",
    )  # fmt: skip
    assert solvers.choose_solver("eigh", 1e-6, "float64", 7, 9) == ("eigh", "asked for")


@pytest.mark.parametrize(
    ("asked", "ridge", "dtype", "said"),
    [
        (
            "cholesky",
            1e-8,
            "float64",
            "ridge is 1e-08, unsound for solver='cholesky' in float64; expected at least 4.7e-08",
        ),
        ("eigh", 1e-4, "float32", "ridge is 0.0001, unsound for solver='eigh' in float32; expected at least 1.1e-03"),
        ("cholesky", 0.0, "float64", "ridge is 0, unsound"),
        ("svd", 1e-17, "float64", "ridge is 1e-17, below what float64 supports; expected 0"),
        ("auto", 1e-8, "float32", "ridge is 1e-08, below what float32 supports; expected 0"),
        ("qr", 1e-2, "float64", "solver is 'qr'; expected one of 'auto'"),
    ],
)
def test_unsound_choices_are_refused(asked, ridge, dtype, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        solvers.choose_solver(asked, ridge, dtype, 9, 7)


def test_gram_limit_is_where_a_gram_matrix_loses_the_ridge():
    assert solvers.gram_limit(jnp.float64) == pytest.approx(4.7e-8, rel=0.01)
    assert solvers.gram_limit(jnp.float32) == pytest.approx(1.1e-3, rel=0.01)


def test_free_memory_is_no_more_than_a_container_is_allowed(monkeypatch, tmp_path):
    monkeypatch.setattr(solvers, "Path", lambda _: tmp_path)
    monkeypatch.setattr(solvers.psutil, "virtual_memory", lambda: SimpleNamespace(available=10**10))
    assert solvers.free_memory() == 10**10  # no such group
    for name, text in {
        "memory.max": "max",
        "memory.current": "700",
        "memory.stat": "anon 1\ninactive_file 200\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert solvers.free_memory() == 10**10  # one without a limit
    (tmp_path / "memory.max").write_text("1000")
    assert solvers.free_memory() == 1000 - 700 + 200


# ---- the largest eigenvalue

SPECTRA = {
    "flat": np.ones(40),
    "decaying": np.logspace(0, -20, 40),
    "slowly decaying": 1 / (1 + np.arange(40.0)),
    "clustered at the top": np.concatenate([1 - 1e-6 * np.arange(20), np.full(20, 0.1)]),
    "rank one": np.eye(1, 40)[0],
    "zero": np.zeros(40),
}
ROTATION = np.linalg.qr(RNG.normal(size=(40, 40)))[0]
largest = jax.jit(solvers.largest_eigenvalue)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_largest_eigenvalue_is_found(name, scale, dtype):
    gram = (ROTATION * SPECTRA[name] * scale) @ ROTATION.T
    expected = np.linalg.eigvalsh(gram)[-1]
    rel = 1e-8 if dtype == jnp.float64 else 1e-4
    assert float(largest(jnp.asarray(gram, dtype))) == pytest.approx(expected, rel=rel, abs=1e-30 * scale)


@pytest.mark.parametrize("gram", [np.ones((500, 500)), np.eye(500) - np.eye(1, 500).T @ np.eye(1, 500)])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_largest_eigenvalue_of_few_distinct_ones_is_not_that_of_rounding(gram, dtype):
    expected = np.linalg.eigvalsh(gram)[-1]
    assert float(largest(jnp.asarray(gram, dtype))) == pytest.approx(expected, rel=1e-4)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(some.lists(some.floats(0, 1), min_size=40, max_size=40), some.integers(-6, 6))
def test_largest_eigenvalue_of_any_spectrum(spectrum, exponent):
    gram = (ROTATION * np.array(spectrum) * 10.0**exponent) @ ROTATION.T
    expected = np.linalg.eigvalsh(gram)[-1]
    # Ritz values come from below; a ridge needs two digits, and all spectra tried give more
    assert float(largest(jnp.asarray(gram))) == pytest.approx(expected, rel=1e-3, abs=1e-300)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(some.lists(some.floats(-1, 1), min_size=72, max_size=72), some.sampled_from([1e-1, 1e-3, 1e-5]), some.booleans())
def test_solution_is_stationary_for_any_matrix(entries, ridge, wide):
    A = np.array(entries).reshape((6, 12) if wide else (12, 6))
    y = np.cos(np.arange(A.shape[0]))
    c, damping = solve("cholesky", jnp.asarray(A), jnp.asarray(y), jnp.array(ridge))
    slope = A.T @ (y - A @ c) - float(damping) * np.asarray(c)  # A^T (y - A c) = damping c
    assert np.linalg.norm(slope) <= 1e-9 * max(np.linalg.norm(A, 2), 1e-300)
