"""The annulus: data uniform by area, training that learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from examples import COMPILED, NET, F, trained

import symtutor as st


def test_points_are_uniform_by_area_within_each_class():
    x, y = st.annulus.data(jax.random.key(0), n=4000)
    x, y = np.asarray(x), np.asarray(y)
    assert (y == 0).sum() == (y == 1).sum() == 2000
    squares, phi = (x**2).sum(axis=1), np.arctan2(x[:, 1], x[:, 0])
    for label, low, high in ((0, 0.0, 1.0), (1, 1.5**2, 2.5**2)):
        mine = y == label
        assert scipy.stats.kstest(squares[mine], "uniform", (low, high - low)).pvalue > 0.01
        assert scipy.stats.kstest(phi[mine], "uniform", (-np.pi, 2 * np.pi)).pvalue > 0.01
        assert low <= squares[mine].min() and squares[mine].max() <= high


def test_sector_bounds_the_angles():
    x, _ = st.annulus.data(jax.random.key(0), n=400, sector=(0.5, 1.5))
    phi = np.arctan2(x[:, 1], x[:, 0])
    assert 0.5 <= phi.min() < 0.55 and 1.45 < phi.max() <= 1.5


def test_data_depend_on_the_key_alone():
    once, again, other = (st.annulus.data(jax.random.key(k), n=8)[0] for k in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert (once != other).any()


def test_training_lowers_the_loss_and_generalises():
    fit = trained()
    assert fit.losses.shape == (600,)
    assert float(fit.losses[0]) == pytest.approx(0.7, abs=0.2)
    assert float(fit.losses[-1]) < 0.1 * float(fit.losses[0])
    x, y = st.annulus.data(jax.random.key(9), n=512)
    assert st.annulus.accuracy(F, fit.params, x, y) > 0.97
    assert st.annulus.accuracy(F, fit.initial, x, y) < 0.7


def test_training_starts_at_init_and_is_deterministic():
    x, y = st.annulus.data(jax.random.key(1), n=256)
    once, again = (st.annulus.train(jax.random.key(0), NET, x, y, steps=3) for _ in range(2))
    np.testing.assert_array_equal(once.initial[0]["W"], NET.init(jax.random.key(0))[0]["W"])
    np.testing.assert_array_equal(once.params[0]["W"], again.params[0]["W"])
    # Adam's first step moves every parameter by the learning rate
    one = st.annulus.train(jax.random.key(0), NET, x, y, steps=1, learning_rate=1e-3)
    np.testing.assert_allclose(jnp.abs(one.params[0]["W"] - one.initial[0]["W"]), 1e-3, rtol=1e-2)


def test_loss_is_the_cross_entropy_before_each_step():
    x, y = st.annulus.data(jax.random.key(1), n=256)
    logits = jax.vmap(F, (None, 0))(trained().initial, x)
    p = 1 / (1 + np.exp(-np.asarray(logits)))
    expected = -np.where(np.asarray(y) == 1, np.log(p), np.log(1 - p)).mean()
    assert float(trained().losses[0]) == pytest.approx(expected, rel=1e-12)


def test_a_second_training_compiles_nothing():
    x, y = st.annulus.data(jax.random.key(1), n=16)
    st.annulus.train(jax.random.key(0), NET, x, y, steps=3, learning_rate=1e-3)
    before = len(COMPILED)
    st.annulus.train(jax.random.key(2), NET, x, y, steps=3, learning_rate=1e-3)
    assert len(COMPILED) == before
