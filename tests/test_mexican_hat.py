"""The Mexican hat: the truth against another integrator, what it conserves, the data, and training."""

from functools import cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from examples import COMPILED

import symtutor as st
from symtutor import mexican_hat as hat

ASRNN, HNN = st.asrnn(width=8), st.hnn(width=8)


@cache
def drawn():
    return hat.trajectories(jax.random.key(0), n=1000)


@cache
def few():
    return hat.trajectories(jax.random.key(1), n=8)


@cache
def trained(ham, **more):
    return hat.train(jax.random.key(0), ham, steps=100, data=few(), **more)


def test_potential_is_least_on_its_circle_and_invariant():
    a = 0.7
    vacuum = jnp.sqrt(a) * jnp.array([jnp.cos(0.4), jnp.sin(0.4)])
    assert float(hat.potential(vacuum, a)) == pytest.approx(-(a**2) / 4, rel=1e-14)
    np.testing.assert_allclose(jax.grad(hat.potential)(vacuum, a), 0, atol=1e-15)
    assert float(hat.potential(jnp.array([3.0, 4.0]), a)) == pytest.approx(-0.7 * 25 / 2 + 625 / 4, rel=1e-14)
    q, p = jnp.array([0.3, 0.5]), jnp.array([2.0, 1.0])
    assert float(hat.energy(q, p, a)) == pytest.approx(2.5 + float(hat.potential(q, a)), rel=1e-14)


def test_simulation_agrees_with_an_adaptive_method():
    data = few()
    qs, ps = hat.simulate(data.q, data.p, data.a, 0.1, 30)
    assert qs.shape == ps.shape == (8, 30, 2)

    def field(_, state, a):
        q, p = state
        return p, a[:, None] * q - jnp.sum(q**2, axis=1, keepdims=True) * q

    true_qs, true_ps = diffrax.diffeqsolve(
        *(diffrax.ODETerm(field), diffrax.Dopri8(), 0.0, 3.0, 0.05, (data.q, data.p), data.a),
        saveat=diffrax.SaveAt(ts=0.1 * jnp.arange(1, 31)),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-12),
    ).ys
    true_qs, true_ps = true_qs.swapaxes(0, 1), true_ps.swapaxes(0, 1)
    np.testing.assert_allclose(qs, true_qs, atol=1e-7)
    np.testing.assert_allclose(ps, true_ps, atol=1e-7)
    # a method of fourth order: four times as fine, 256 times as near
    coarse = hat.simulate(data.q, data.p, data.a, 0.1, 30, finer=5)[0]
    assert float(jnp.abs(coarse - true_qs).max() / jnp.abs(qs - true_qs).max()) == pytest.approx(256, rel=0.2)


def test_truth_conserves_energy_and_angular_momentum():
    q, p = hat.starts(jax.random.key(0), n=16, a=0.8)
    qs, ps = hat.simulate(q, p, jnp.full(16, 0.8), 0.05, 400)
    energy = jax.vmap(jax.vmap(lambda q, p: hat.energy(q, p, 0.8)))
    start = jax.vmap(lambda q, p: hat.energy(q, p, 0.8))(q, p)
    np.testing.assert_allclose(energy(qs, ps), jnp.broadcast_to(start[:, None], (16, 400)), atol=1e-9)
    L = hat.angular_momentum(q, p)
    assert float(jnp.abs(L).min()) > 1e-3
    np.testing.assert_allclose(hat.angular_momentum(qs, ps), jnp.broadcast_to(L[:, None], (16, 400)), atol=1e-13)
    assert float(hat.drift_of_angular_momentum(q, p, qs, ps)) < 1e-13
    assert float(jnp.abs(qs - q[:, None]).max()) > 0.1  # they do move


def test_trajectories_have_the_written_distributions_and_are_simulated():
    data = drawn()
    assert data.qs.shape == data.ps.shape == (1000, hat.STEPS, 2)
    for axis in range(2):
        assert scipy.stats.kstest(np.asarray(data.q[:, axis]), "uniform", (-1.5, 3)).pvalue > 0.01
        assert scipy.stats.kstest(np.asarray(data.p[:, axis]), "norm", (0, 0.3)).pvalue > 0.01
    assert scipy.stats.kstest(np.asarray(data.a), "uniform", (0.5, 1)).pvalue > 0.01
    columns = np.column_stack([data.q, data.p, data.a])
    assert np.abs(np.corrcoef(columns.T) - np.eye(5)).max() < 0.12  # drawn apart
    # one key for two would repeat the numbers in their order of storage
    assert np.abs(np.corrcoef([np.ravel(data.q)[:1000], np.ravel(data.p)[:1000], data.a]) - np.eye(3)).max() < 0.12
    qs, ps = hat.simulate(data.q, data.p, data.a, hat.DT, hat.STEPS)
    np.testing.assert_array_equal(data.qs, qs)
    np.testing.assert_array_equal(data.ps, ps)


def test_trajectories_and_starts_depend_on_the_key_alone():
    again = hat.trajectories(jax.random.key(1), n=8)
    assert all((u == v).all() for u, v in zip(few(), again, strict=True))
    assert (few().q != drawn().q[:8]).all()
    once, again, other = (hat.starts(jax.random.key(k), n=1000) for k in (1, 1, 2))
    assert all((u == v).all() for u, v in zip(once, again, strict=True))
    assert all((u != v).any() for u, v in zip(once, other, strict=True))


def test_starts_lie_round_the_vacuum():
    q, p = hat.starts(jax.random.key(3), n=1000, a=0.6)
    assert q.shape == p.shape == (1000, 2)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), np.sqrt(0.6), rtol=1e-14)
    assert scipy.stats.kstest(np.arctan2(q[:, 1], q[:, 0]), "uniform", (-np.pi, 2 * np.pi)).pvalue > 0.01
    assert scipy.stats.kstest(np.asarray(p).ravel(), "norm", (0, 0.3)).pvalue > 0.01


def test_drift_and_error_have_known_answers():
    q, p = jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.array([[0.0, 3.0], [1.0, 0.0]])
    np.testing.assert_allclose(hat.angular_momentum(q, p), [3.0, -2.0])
    qs = jnp.broadcast_to(q[:, None], (2, 2, 2))
    ps = jnp.broadcast_to(p[:, None], (2, 2, 2)) + jnp.array([[[5.0, 1.0], [5.0, 0.0]], [[1.0, 7.0], [-1.0, 7.0]]])
    # L moves by 1 and 0 on the first, by -2 and 2 on the second: the mean square is 9 / 4
    assert float(hat.drift_of_angular_momentum(q, p, qs, ps)) == pytest.approx(1.5, rel=1e-14)
    moved = qs + jnp.array([[[3.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 5.0]]])
    assert float(hat.trajectory_error(moved, qs)) == pytest.approx(np.sqrt(50 / 4), rel=1e-14)


@pytest.mark.parametrize("ham", [ASRNN, HNN], ids=["asrnn", "hnn"])
def test_training_lowers_the_loss(ham):
    fit = trained(ham)
    assert fit.losses.shape == (100,)
    assert float(fit.losses[-1]) < 0.3 * float(fit.losses[0])


def test_training_with_lbfgs_goes_lower():
    fit = trained(HNN, optimizer=optax.lbfgs())
    assert float(fit.losses[-1]) < 0.5 * float(trained(HNN).losses[-1])


def test_losses_are_those_of_rollouts_and_of_rates():
    data, params = few(), trained(ASRNN).initial
    qs, ps = jax.jit(jax.vmap(lambda q, p, a: ASRNN.rollout(params, q, p, a, 0.1, 15)))(data.q, data.p, data.a)
    squares = np.mean((qs - data.qs) ** 2) + np.mean((ps - data.ps) ** 2)
    assert float(trained(ASRNN).losses[0]) == pytest.approx(float(squares), rel=1e-12)

    params = trained(HNN).initial
    learned = jax.jit(jax.vmap(jax.vmap(jax.grad(HNN.energy, (1, 2)), (None, 0, 0, None)), (None, 0, 0, 0)))
    by_q, by_p = (np.asarray(slope) for slope in learned(params, data.qs, data.ps, data.a))
    q, a = np.asarray(data.qs), np.asarray(data.a)[:, None, None]
    force = a * q - (q**2).sum(axis=-1, keepdims=True) * q
    squares = ((by_p - np.asarray(data.ps)) ** 2).sum(-1) + ((-by_q - force) ** 2).sum(-1)
    assert float(trained(HNN).losses[0]) == pytest.approx(squares.mean(), rel=1e-12)


def test_training_is_deterministic_by_key_and_prints_when_asked(capsys):
    def leaves(fit):
        return jax.tree.leaves((fit.initial, fit.params))

    trained(HNN)
    assert capsys.readouterr().out == ""
    told = hat.train(jax.random.key(0), HNN, steps=100, data=few(), progress=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and lines[0].startswith("mexican hat: step 10 of 100, loss ")
    for u, v in zip(leaves(told), leaves(trained(HNN)), strict=True):
        np.testing.assert_allclose(u, v, rtol=1e-9, atol=1e-12)


def test_training_draws_data_and_weights_from_its_key_and_starts_with_adam(monkeypatch):
    keys = []
    monkeypatch.setattr(hat, "trajectories", lambda key: keys.append(key) or data)
    data = few()
    fit = hat.train(jax.random.key(0), HNN, steps=1)
    data_key, init_key = jax.random.split(jax.random.key(0))
    assert keys == [data_key]
    np.testing.assert_array_equal(fit.initial[0]["W"], HNN.init(init_key)[0]["W"])
    assert float(fit.losses[0]) == pytest.approx(float(trained(HNN).losses[0]), rel=1e-12)
    # Adam's first step moves every parameter by the learning rate
    np.testing.assert_allclose(jnp.abs(fit.params[0]["W"] - fit.initial[0]["W"]), 1e-2, rtol=1e-2)


@pytest.mark.parametrize("ham", [ASRNN, HNN], ids=["asrnn", "hnn"])
def test_a_second_training_compiles_nothing(ham):
    hat.train(jax.random.key(0), ham, steps=2, data=few())
    before = len(COMPILED)
    hat.train(jax.random.key(2), ham, steps=2, data=few())
    assert len(COMPILED) == before
