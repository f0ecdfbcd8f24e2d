"""Sensitivity and Jacobian: against finite differences, for any pytree, output and chunk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import F, flat, jacobian, probes, untrained
from jax.flatten_util import ravel_pytree

import symtutor as st

sensitivity = eqx.filter_jit(st.sensitivity)
pointwise = eqx.filter_jit(st.pointwise_sensitivity)


def two(params, x):
    """Two outputs of an odd pytree: a tuple, a dict, a scalar leaf, a matrix."""
    scale, tree = params
    return scale * jnp.tanh(tree["A"] @ x) + tree["b"]


PARAMS = (jnp.array(1.5), {"A": jnp.array([[1.0, 2.0], [-0.5, 0.3]]), "b": jnp.array([0.1, 0.2])})


def test_jacobian_matches_central_differences():
    theta, unravel = ravel_pytree(PARAMS)
    x, h = probes().x[:7], 1e-6
    all_outputs = jax.jit(lambda t: jax.vmap(two, (None, 0))(unravel(t), x).reshape(-1))
    steps = h * np.eye(theta.size)
    expected = np.stack([(all_outputs(theta + e) - all_outputs(theta - e)) / (2 * h) for e in steps], axis=1)
    J = jacobian(two, PARAMS, x)
    assert J.shape == (14, 7)
    np.testing.assert_allclose(J, expected, atol=1e-9)


def test_pointwise_sensitivity_has_the_shape_of_params_after_points_and_outputs():
    seen = pointwise(two, PARAMS, probes().x[:7])
    assert jax.tree.map(jnp.shape, seen) == ((7, 2), {"A": (7, 2, 2, 2), "b": (7, 2, 2)})
    np.testing.assert_allclose(seen[1]["b"], np.broadcast_to(np.eye(2), (7, 2, 2)), atol=0)


def test_sensitivity_is_the_weighted_rms_of_the_jacobian():
    few = st.Probes(probes().x[:7], jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(7))))
    J = np.asarray(jacobian(two, PARAMS, few.x)).reshape(7, 2, 7)
    expected = np.sqrt(np.einsum("j,jki->i", few.w, J**2))
    S = sensitivity(two, PARAMS, few)
    assert jax.tree.structure(S) == jax.tree.structure(PARAMS)
    np.testing.assert_allclose(flat(S), expected, rtol=1e-13)


@pytest.mark.parametrize("chunk_size", [1, 9, 1000])
def test_chunks_change_nothing(chunk_size):
    whole = jacobian(F, untrained(), probes().x[:20])
    np.testing.assert_allclose(jacobian(F, untrained(), probes().x[:20], chunk_size=chunk_size), whole, atol=1e-15)


def test_a_single_array_and_scalar_inputs_are_fine():
    J = jacobian(lambda w, x: jnp.sin(w * x), jnp.array(2.0), jnp.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(J, np.array([[0.0], [np.cos(2)], [2 * np.cos(4)]]), atol=1e-15)


def test_an_equinox_module_goes_in_filtered_to_its_arrays():
    arrays, rest = eqx.partition(eqx.nn.MLP(2, "scalar", 4, 1, key=jax.random.key(0)), eqx.is_inexact_array)
    J = jacobian(lambda p, x: eqx.combine(p, rest)(x), arrays, probes().x[:5])
    assert J.shape == (5, 17)
    np.testing.assert_allclose(J[:, -1], 1, atol=0)  # the last bias


def test_dtype_is_that_of_the_parameters():
    f32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    assert jacobian(two, f32, probes().x[:3].astype(jnp.float32)).dtype == jnp.float32
