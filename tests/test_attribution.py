"""Attribution: signed shares that add up, by layer, neuron and parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import ETA, F, flat, jacobian, lifted, probes, tangent_values

import symtutor as st


@pytest.fixture(scope="module")
def shares():
    params, c = lifted("trained", "eta", 1e-2)
    return st.attribute(F, params, probes(), ETA, c)


def test_share_is_coefficient_times_correlation(shares):
    params, c = lifted("trained", "eta", 1e-2)
    eta, w = np.asarray(tangent_values(ETA, F, params, probes().x)), np.asarray(probes().w)
    correlation = np.asarray(jacobian(F, params, probes().x)).T @ (w * eta)
    expected = flat(c.direction) * correlation / (w @ eta**2)
    np.testing.assert_allclose(flat(shares.shares), expected, atol=1e-12)
    assert (expected < 0).any()  # shares have signs


def test_totals_are_sums_of_shares(shares):
    layers, neurons = shares.by_layer(), shares.by_neuron()
    assert list(layers) == list(neurons) == ["0", "1", "2"]
    for i, name in enumerate(layers):
        W, b = shares.shares[i]["W"], shares.shares[i]["b"]
        np.testing.assert_allclose(layers[name], W.sum() + b.sum(), atol=1e-14)
        np.testing.assert_allclose(neurons[name], W.sum(axis=1) + b, atol=1e-14)


def test_top_sorts_by_absolute_share_and_keeps_the_sign(shares):
    top = shares.top(5)
    sizes = [abs(share) for _, _, share in top]
    assert sizes == sorted(sizes, reverse=True)
    np.testing.assert_allclose(sizes, np.sort(np.abs(flat(shares.shares)))[::-1][:5], rtol=1e-14)
    for path, index, share in top:
        layer, leaf = path.split(".")
        assert float(shares.shares[int(layer)][leaf][index]) == share
    assert len(shares.top(10**6)) == 205


def test_scalar_leaves_and_a_single_array_have_names():
    shares = st.Attribution({"a": jnp.array(0.3), "b": jnp.array([0.1, -0.6])}, jnp.array(-0.2))
    assert shares.top(2) == [("b", (1,), -0.6), ("a", (), 0.3)]
    assert {k: float(v) for k, v in shares.by_layer().items()} == pytest.approx({"a": 0.3, "b": -0.5})
    assert st.Attribution(jnp.array([1.0]), jnp.array(1.0)).top(1) == [("", (0,), 1.0)]


def test_neurons_of_weights_stored_in_out_are_counted_along_the_last_axis():
    W, b = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), jnp.array([10.0, 20.0, 30.0])
    shares = st.Attribution({"dense": {"kernel": W, "bias": b}}, jnp.array(0.0))
    np.testing.assert_allclose(shares.by_neuron(axis=-1)["dense"], [15, 27, 39])
    with pytest.raises(ValueError, match="'dense' count 3 and 2 neurons along axis 0"):
        shares.by_neuron()


def test_a_zero_tangent_has_zero_shares():
    f, x = (lambda w, x: w * jnp.dot(x, x)), st.polar_probes(radii=2, angles=4)

    def nothing(f, params, x):
        return jnp.zeros(x.shape[0])

    with pytest.warns(UserWarning, match="nothing to lift"):
        c = st.lift(f, jnp.array(1.0), x, nothing, ridge=1e-3)
    shares = st.attribute(f, jnp.array(1.0), x, nothing, c)
    assert float(shares.shares) == float(shares.explained) == 0.0


def test_attribution_can_be_jitted():
    params, c = lifted("trained", "eta", 1e-2)
    traced = jax.jit(lambda p, c: st.attribute(F, p, probes(), ETA, c))(params, c)
    np.testing.assert_allclose(traced.explained, c.explained, rtol=1e-10)
