"""Probes: weights sum to 1, rings have equal area, the grid is closed under its own turns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import band, band_params, orthogonality, turn

import symtutor as st


def test_weights_are_equal_and_sum_to_one():
    probes = st.polar_probes(radii=5, angles=7)
    assert probes.x.shape == (35, 2)
    np.testing.assert_allclose(probes.w, 1 / 35, rtol=1e-15)


def test_rings_have_equal_area():
    radii = np.unique(np.linalg.norm(st.polar_probes(radii=4, angles=6, rmax=2.0).x, axis=1).round(12))
    # middles of rings of equal area: r^2 equispaced over [0, rmax^2]
    np.testing.assert_allclose(radii**2, 4 * np.array([1, 3, 5, 7]) / 8, rtol=1e-11)


def test_mean_of_a_square_is_that_of_the_disc():
    probes = st.polar_probes(radii=6, angles=12, rmax=2.0)
    np.testing.assert_allclose(probes.w @ probes.x**2, [1.0, 1.0], rtol=1e-14)  # rmax^2 / 4
    np.testing.assert_allclose(probes.w @ probes.x, [0.0, 0.0], atol=1e-15)


def test_grid_is_closed_under_its_own_turn_and_no_smaller_one():
    x = np.asarray(st.polar_probes(radii=3, angles=8).x)
    for angle, closed in ((2 * np.pi / 8, True), (np.pi / 8, False)):
        moved = x @ turn(angle).T
        nearest = np.linalg.norm(moved[:, None] - x[None], axis=-1).min(axis=1)
        assert (nearest.max() < 1e-14) == closed


def test_offset_turns_by_a_fraction_of_a_step():
    x, turned = st.polar_probes(radii=3, angles=8).x, st.polar_probes(radii=3, angles=8, offset=0.25).x
    np.testing.assert_allclose(turned, x @ turn(2 * np.pi / 32).T, atol=1e-14)


def test_probes_from_data_keep_weights_and_dtype():
    w = jnp.array([0.25, 0.75], jnp.float32)
    probes = st.probes_from_data(jnp.ones((2, 3), jnp.float32), w)
    assert probes.w is w
    assert st.probes_from_data(jnp.ones((2, 3), jnp.float32)).w.dtype == jnp.float32


@pytest.mark.parametrize("shape", [(6,), (6, 3)])
def test_inner_product_is_the_weighted_sum(shape):
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, *shape))
    w = rng.dirichlet(np.ones(6))
    expected = sum(w[j] * np.dot(u[j], v[j]) for j in range(6))
    assert float(st.inner_product(jnp.asarray(u), jnp.asarray(v), jnp.asarray(w))) == pytest.approx(expected, rel=1e-13)
    assert float(st.function_norm(jnp.asarray(u), jnp.asarray(w))) == pytest.approx(
        np.sqrt(sum(w[j] * np.dot(u[j], u[j]) for j in range(6))), rel=1e-13
    )


def test_probes_can_be_traced_and_mapped():
    def norm(probes):
        return st.function_norm(probes.x, probes.w)

    probes = st.polar_probes(radii=2, angles=4)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), probes)
    np.testing.assert_allclose(jax.jit(jax.vmap(norm))(both), [norm(probes)] * 2, rtol=1e-14)


@pytest.mark.parametrize("group", [st.cyclic(5), st.reflection(), st.so2(nodes=6)], ids=lambda g: g.name)
def test_orbit_probes_are_closed_under_the_group(group):
    bare = jax.random.normal(jax.random.key(0), (3, 2))
    probes = st.orbit_probes(bare, group)
    n = len(group.elements)
    assert probes.x.shape == (3 * n, 2)
    np.testing.assert_allclose(probes.w, 1 / (3 * n), rtol=1e-15)
    np.testing.assert_allclose(probes.x[::n], bare, atol=1e-15)  # images of one input lie side by side, identity first
    np.testing.assert_allclose(np.linalg.norm(probes.x.reshape(3, n, 2), axis=2).T, [np.linalg.norm(bare, axis=1)] * n)

    def match(points):  # each of the points is one of the probes, and no two the same
        distance = np.linalg.norm(np.asarray(points)[:, None] - np.asarray(probes.x)[None], axis=-1)
        return distance.min(axis=1).max() < 1e-14 and len(set(distance.argmin(axis=1))) == 3 * n

    for g in group.elements:
        assert match(probes.x @ np.transpose(g))
    assert not match(probes.x @ turn(0.3).T)


def test_orbit_probes_turn_columns_together_and_keep_the_dtype():
    x = jax.random.normal(jax.random.key(0), (2, 2, 3), jnp.float32)
    probes = st.orbit_probes(x, st.cyclic(4))
    assert probes.x.shape == (8, 2, 3) and probes.x.dtype == probes.w.dtype == jnp.float32
    np.testing.assert_allclose(probes.x[5], turn(np.pi / 2) @ x[1], atol=1e-6)


def test_orbit_probes_make_eta_and_delta_orthogonal():
    bare = jax.random.normal(jax.random.key(0), (7, 2)) + 0.5
    group = st.so2(nodes=16)  # products of the band have modes up to 10
    assert abs(float(orthogonality(band, band_params(), st.probes_from_data(bare), group))) > 1e-2
    assert abs(float(orthogonality(band, band_params(), st.orbit_probes(bare, group), group))) < 1e-14
