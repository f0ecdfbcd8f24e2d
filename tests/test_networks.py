"""The perceptron: its formula, its scale and its parity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import symtutor as st


def test_apply_is_the_written_formula():
    net = st.mlp((2, 3, 4, 2), activation=jnp.sin)
    params = jax.tree.map(lambda leaf: leaf + 0.1, net.init(jax.random.key(0)))
    (W1, b1), (W2, b2), (W3, b3) = ((np.asarray(layer["W"]), np.asarray(layer["b"])) for layer in params)
    x = np.array([0.3, -0.7])
    expected = W3 @ np.sin(W2 @ np.sin(W1 @ x + b1) + b2) + b3
    np.testing.assert_allclose(net.apply(params, jnp.asarray(x)), expected, rtol=1e-14)


@pytest.mark.parametrize(("sizes", "shape"), [((2, 3, 1), ()), ((2, 1), ()), ((2, 3, 4), (4,))])
def test_last_size_of_one_gives_a_scalar(sizes, shape):
    net = st.mlp(sizes)
    assert net.apply(net.init(jax.random.key(0)), jnp.ones(2)).shape == shape


def test_weights_start_with_the_scale_of_their_fan_in_and_biases_at_zero():
    params = st.mlp((50, 200, 40)).init(jax.random.key(0))
    for layer, fan_in in zip(params, (50, 200), strict=True):
        assert float(layer["W"].std()) * fan_in**0.5 == pytest.approx(1, abs=0.03)
        assert float(layer["W"].mean()) == pytest.approx(0, abs=4 / layer["W"].size ** 0.5 / fan_in**0.5)
        assert not layer["b"].any()


def test_untrained_tanh_network_is_odd():
    net = st.mlp((2, 8, 1))
    params, x = net.init(jax.random.key(0)), jnp.array([0.4, -1.3])
    assert float(net.apply(params, x)) == -float(net.apply(params, -x)) != 0


def test_init_depends_on_the_key_alone():
    net = st.mlp((2, 3, 1))
    once, again, other = (net.init(jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(once[0]["W"], again[0]["W"])
    assert (once[0]["W"] != other[0]["W"]).all()
    assert (once[0]["W"].reshape(-1)[:3] != once[1]["W"].reshape(-1)).all()  # layers draw apart
