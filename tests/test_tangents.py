"""Tangents: derivatives of the orbit, and what the group average removes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import SO2, F, defect, flat, orbit, probes, projection, tangent_values, trained, untrained, values

import symtutor as st

X = probes().x[::7]
VECTOR = st.so2(nodes=8, output="vector")


def field(params, x):
    return jnp.tanh(params["A"] @ x) + params["b"]


FIELD = {"A": jnp.array([[1.0, 2.0], [-0.5, 0.3]]), "b": jnp.array([0.1, 0.2])}


@pytest.mark.parametrize(
    ("f", "params", "group"),
    [(F, untrained, SO2), (F, untrained, st.shear()), (field, lambda: FIELD, VECTOR)],
    ids=["so2", "shear", "vector"],
)
def test_orbit_tangent_is_the_slope_of_the_orbit(f, params, group):
    h = jnp.array(1e-5)
    slope = (orbit(f, params(), X, group, h) - orbit(f, params(), X, group, -h)) / (2 * h)
    np.testing.assert_allclose(tangent_values(st.orbit_tangent(group), f, params(), X), slope, atol=3e-9)


def test_so2_tangent_is_minus_the_gradient_along_the_turn():
    xi = np.array([[0.0, -1.0], [1.0, 0.0]])
    gradients = jax.jit(jax.vmap(jax.grad(F, argnums=1), (None, 0)))(untrained(), X)
    expected = -np.einsum("ji,ji->j", gradients, X @ xi.T)
    np.testing.assert_allclose(tangent_values(st.orbit_tangent(SO2), F, untrained(), X), expected, atol=1e-14)


def test_orbit_of_a_field_that_commutes_with_turns_stands_still():
    turns = {"A": jnp.array([[1.0, -2.0], [2.0, 1.0]])}
    eta = tangent_values(st.orbit_tangent(VECTOR), lambda p, x: p["A"] @ x, turns, X)
    np.testing.assert_allclose(eta, 0, atol=1e-14)


def test_untrained_tanh_network_is_odd_so_all_of_it_is_defect():
    np.testing.assert_allclose(projection(F, untrained(), X, SO2), 0, atol=1e-14)
    np.testing.assert_allclose(defect(F, untrained(), X, SO2), values(F, untrained(), X), atol=1e-14)


def test_projection_of_a_reflection_is_the_even_part():
    expected = (values(F, trained().params, X) + values(F, trained().params, X @ np.diag([-1.0, 1.0]))) / 2
    np.testing.assert_allclose(projection(F, trained().params, X, st.reflection()), expected, atol=1e-14)


def test_symmetrizing_tangent_points_from_f_to_its_projection():
    seen = tangent_values(st.symmetrizing_tangent(SO2), F, trained().params, X)
    expected = projection(F, trained().params, X, SO2) - values(F, trained().params, X)
    np.testing.assert_allclose(seen, expected, atol=1e-14)


def test_anchored_tangent_keeps_its_target():
    anchored = st.anchored_tangent(F, untrained(), SO2)
    seen = tangent_values(anchored, F, trained().params, X)
    expected = projection(F, untrained(), X, SO2) - values(F, trained().params, X)
    np.testing.assert_allclose(seen, expected, atol=1e-14)
    assert len(jax.tree.leaves(anchored)) == len(jax.tree.leaves(untrained()))  # a pytree that holds its params


def test_columns_of_a_matrix_input_turn_together():
    def area(params, x):
        return params * (x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0])  # invariant under turns of both columns

    x = X[:10].reshape(5, 2, 2)
    np.testing.assert_allclose(tangent_values(st.orbit_tangent(SO2), area, jnp.array(1.0), x), 0, atol=1e-14)
    np.testing.assert_allclose(defect(area, jnp.array(1.0), x, SO2), 0, atol=1e-14)


@pytest.mark.parametrize("kind", ["orbit", "symmetrizing"])
def test_float32_stays_float32(kind):
    tangent = st.orbit_tangent(VECTOR) if kind == "orbit" else st.symmetrizing_tangent(VECTOR)
    f32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), FIELD)
    seen = tangent_values(tangent, field, f32, X.astype(jnp.float32))
    assert seen.dtype == jnp.float32
    np.testing.assert_allclose(seen, tangent_values(tangent, field, FIELD, X), atol=2e-5)
    assert orbit(field, f32, X.astype(jnp.float32), VECTOR, 0.3).dtype == jnp.float32


def test_outputs_may_be_narrower_than_inputs():
    # float32 parameters, float64 points: the network casts its input down
    f32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), FIELD)

    def narrow(params, x):
        return field(params, x.astype(jnp.float32))

    assert projection(narrow, f32, X, VECTOR).dtype == jnp.float32
    assert flat(tangent_values(st.orbit_tangent(VECTOR), narrow, f32, X)).dtype == np.float32


@pytest.mark.parametrize("points", [1, 700, 5000])
def test_average_is_that_of_all_elements_however_many_go_at_a_time(points):
    """Of seven elements five fit at a time beside 700 points, so the second block is filled up by elements of weight 0."""
    x, group = jax.random.normal(jax.random.key(0), (points, 2)), st.cyclic(7)
    f, w = (lambda w, x: jnp.dot(w, x) ** 3 + 1), jnp.array([1.0, 0.5])
    wanted = np.mean([(np.asarray(x) @ np.asarray(g) @ np.asarray(w)) ** 3 + 1 for g in group.elements], axis=0)
    np.testing.assert_allclose(st.equivariant_projection(f, w, x, group), wanted, atol=1e-12 * np.abs(wanted).max())
