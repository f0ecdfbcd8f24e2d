"""Groups: subgroups of their generators, averages over their elements, equality by value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import turn

import symtutor as st


@pytest.mark.parametrize("t", [0.0, 0.3, np.pi, -7.0])
def test_so2_subgroup_turns_counter_clockwise(t):
    np.testing.assert_allclose(st.so2().subgroup(t), turn(t), atol=2e-14)


def test_control_subgroups_are_their_closed_forms():
    np.testing.assert_allclose(st.shear().subgroup(0.7), [[1, 0.7], [0, 1]], atol=1e-15)
    np.testing.assert_allclose(st.dilation().subgroup(0.7), np.exp(0.7) * np.eye(2), atol=1e-14)
    np.testing.assert_allclose(st.dilation(3).subgroup(0.7), np.exp(0.7) * np.eye(3), atol=1e-14)


@pytest.mark.parametrize("group", [st.so2(7), st.cyclic(5), st.reflection(), st.reflection(3)], ids=lambda g: g.name)
def test_elements_form_a_group_with_equal_weights(group):
    g = np.asarray(group.elements)
    products = np.einsum("aij,bjk->abik", g, g)
    distance = np.abs(products[:, :, None] - g[None, None]).max(axis=(-1, -2)).min(axis=-1)
    assert distance.max() < 1e-14
    np.testing.assert_allclose(group.weights, 1 / len(g))
    np.testing.assert_allclose(g[0], np.eye(group.dimension), atol=0)


@pytest.mark.parametrize(("mode", "left"), [(1, 0), (7, 0), (8, 1), (9, 0), (16, 1)])
def test_haar_average_of_so2_removes_modes_but_multiples_of_its_nodes(mode, left):
    g = np.asarray(st.so2(nodes=8).elements)
    phi = np.arctan2(g[:, 1, 0], g[:, 0, 0])
    assert abs(np.exp(1j * mode * phi).mean() - left) < 1e-14


def test_groups_are_equal_by_value():
    assert st.so2(8) == st.so2(8) and hash(st.so2(8)) == hash(st.so2(8))
    assert st.so2(8) != st.so2(9) != st.so2(9, output="vector")
    assert st.orbit_tangent(st.so2(8)) == st.orbit_tangent(st.so2(8))
    assert hash(st.symmetrizing_tangent(st.cyclic(3))) == hash(st.symmetrizing_tangent(st.cyclic(3)))


def test_finite_groups_have_no_generator_and_controls_no_elements():
    assert st.cyclic(3).generators == st.reflection().generators == ()
    assert st.shear().elements == st.dilation().elements == ()


def test_subgroup_can_be_differentiated():
    slope = jax.jacfwd(st.so2().subgroup)(jnp.array(0.0))
    np.testing.assert_allclose(slope, st.so2().generators[0], atol=1e-15)


def test_lists_and_arrays_make_the_same_group_as_tuples():
    g = st.cyclic(3)
    listed = st.Group("cyclic(3)", [], [[list(row) for row in matrix] for matrix in g.elements], list(g.weights))
    arrays = st.Group("cyclic(3)", (), np.asarray(g.elements), np.asarray(g.weights))
    assert listed == arrays == g and hash(listed) == hash(arrays) == hash(g)
    assert st.Group("shear", np.array([[[0.0, 1.0], [0.0, 0.0]]])) == st.shear()
