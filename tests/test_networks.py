"""The perceptron: its formula, its scale and its parity. Integrators and the Hamiltonians that they roll out."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import symtutor as st
from symtutor.networks import LEAPFROG, YOSHIDA, hamiltonian_field, rk4_step, symplectic_step


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


# ---- integrators


def pendulum(q, p):
    return jnp.dot(p, p) / 2 - jnp.cos(q).sum()


def half_square(p):
    return jnp.dot(p, p) / 2


def minus_cosine(q):
    return -jnp.cos(q).sum()


LEAP = partial(symplectic_step, half_square, minus_cosine)
STEP = {
    "leapfrog": lambda q, p, dt: LEAP(q, p, dt),
    "yoshida": lambda q, p, dt: LEAP(q, p, dt, YOSHIDA),
    "rk4": lambda q, p, dt: rk4_step(hamiltonian_field(pendulum), (q, p), dt),
}
START = jnp.array([1.2]), jnp.array([0.4])


@partial(jax.jit, static_argnums=(0, 2))
def followed(step, dt, steps):
    return jax.lax.scan(lambda z, _: (step(*z, dt),) * 2, START, length=steps)[1]


@pytest.mark.parametrize(("name", "order"), [("leapfrog", 2), ("yoshida", 4), ("rk4", 4)])
def test_halving_the_step_shows_the_order(name, order):
    def rate(_, z):
        return [z[1], -np.sin(z[0])]

    true = scipy.integrate.solve_ivp(rate, (0, 2), [1.2, 0.4], "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    errors = [np.linalg.norm(np.ravel([z[-1] for z in followed(STEP[name], 2 / n, n)]) - true) for n in (20, 40)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_drifts_and_kicks_make_one_step():
    for table in (LEAPFROG, YOSHIDA):
        np.testing.assert_allclose(np.sum(table, axis=0), [1, 1], rtol=1e-15)


def test_energy_error_stays_bounded_where_runge_kutta_drifts():
    def errors(name):
        qs, ps = followed(STEP[name], 0.4, 1600)
        off = np.abs(np.asarray(jax.vmap(pendulum)(qs, ps)) - float(pendulum(*START)))
        return off[:400].max(), off[-400:].max()

    early, late = errors("leapfrog")
    assert late == pytest.approx(early, rel=0.01)
    early, late = errors("rk4")
    assert late > 3 * early


# ---- learned Hamiltonians: six wide, of weights at random


HAMS = {"asrnn": st.asrnn(width=6), "hnn": st.hnn(width=6)}
A = jnp.array(0.8)
Q, P = jnp.array([0.7, -0.4]), jnp.array([0.3, 0.5])


@cache
def weights(name):
    params = HAMS[name].init(jax.random.key(2))
    return jax.tree.map(lambda leaf: leaf + 0.3 * jnp.cos(jnp.arange(leaf.size) * 1.0).reshape(leaf.shape), params)


def learned_step(dt, z, params, table):
    """One step of the asrnn, of the state ``(q, p)`` as one vector; by Runge-Kutta if table is None."""
    ham = HAMS["asrnn"]
    if table is None:
        field = hamiltonian_field(lambda q, p: ham.energy(params, q, p, A))
        return jnp.concatenate(rk4_step(field, (z[:2], z[2:]), dt))
    kinetic, potential = partial(ham.kinetic, params), lambda q: ham.potential(params, q, A)
    return jnp.concatenate(symplectic_step(kinetic, potential, z[:2], z[2:], dt, table))


@pytest.mark.parametrize(("table", "symplectic"), [(LEAPFROG, True), (YOSHIDA, True), (None, False)])
def test_drifts_and_kicks_are_symplectic_and_reversible_and_runge_kutta_is_not(table, symplectic):
    one = partial(learned_step, params=weights("asrnn"), table=table)
    step = jax.jit(lambda dt, z: (one(dt, z), jax.jacfwd(one, argnums=1)(dt, z)))
    z = jnp.concatenate([Q, P])
    there, M = step(0.5, z)
    omega = np.kron([[0, 1], [-1, 0]], np.eye(2))
    assert np.abs(M - np.eye(4)).max() > 0.1
    assert (np.abs(M.T @ omega @ M - omega).max() < 1e-12) == symplectic
    assert np.abs(there - z).max() > 0.05
    assert (np.abs(step(-0.5, there)[0] - z).max() < 1e-13) == symplectic


def test_field_is_hamiltons():
    # H = q_0^2 p_1 + 3 q_1: q' = (0, q_0^2), p' = (-2 q_0 p_1, -3)
    velocity, force = hamiltonian_field(lambda q, p: q[0] ** 2 * p[1] + 3 * q[1])((Q, P))
    np.testing.assert_allclose(velocity, [0, Q[0] ** 2], rtol=1e-15)
    np.testing.assert_allclose(force, [-2 * Q[0] * P[1], -3], rtol=1e-15)


def test_runge_kutta_takes_any_tree():
    state = {"x": jnp.ones(()), "y": (jnp.array([1.0, 2.0]),)}
    after = rk4_step(lambda z: jax.tree.map(jnp.negative, z), state, 0.5)
    factor = sum((-0.5) ** k / math.factorial(k) for k in range(5))  # the exponential to its fourth term
    np.testing.assert_allclose(after["x"], factor, rtol=1e-15)
    np.testing.assert_allclose(after["y"][0], [factor, 2 * factor], rtol=1e-15)


def test_asrnn_rolls_out_by_kick_drift_kick():
    ham, params, dt = HAMS["asrnn"], weights("asrnn"), 0.2
    push = jax.jit(lambda q: -jax.grad(ham.potential, argnums=1)(params, q, A))
    velocity = jax.jit(lambda p: jax.grad(ham.kinetic, argnums=1)(params, p))
    q, p, expected = Q, P, []
    for _ in range(4):
        p = p + dt / 2 * push(q)
        q = q + dt * velocity(p)
        p = p + dt / 2 * push(q)
        expected.append((q, p))
    qs, ps = ham.rollout(params, Q, P, A, dt, 4)
    assert qs.shape == ps.shape == (4, 2)
    assert np.abs(qs[0] - Q).max() > 1e-3  # the start is left out
    np.testing.assert_allclose(qs, [q for q, _ in expected], rtol=1e-13)
    np.testing.assert_allclose(ps, [p for _, p in expected], rtol=1e-13)


def test_hnn_rolls_out_by_runge_kutta():
    ham, params, dt = HAMS["hnn"], weights("hnn"), 0.2
    slopes = jax.jit(lambda z: jnp.concatenate(jax.grad(ham.energy, argnums=(1, 2))(params, z[:2], z[2:], A)))

    def rate(z):
        slope = np.asarray(slopes(z))
        return np.concatenate([slope[2:], -slope[:2]])

    z, expected = np.concatenate([Q, P]), []
    for _ in range(3):
        k1 = rate(z)
        k2 = rate(z + dt / 2 * k1)
        k3 = rate(z + dt / 2 * k2)
        z = z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + rate(z + dt * k3))
        expected.append(z)
    qs, ps = ham.rollout(params, Q, P, A, dt, 3)
    assert qs.shape == ps.shape == (3, 2)
    np.testing.assert_allclose(np.concatenate([qs, ps], axis=1), expected, rtol=1e-13)
    assert ham.kinetic is None and ham.potential is None


def test_energy_is_kinetic_and_potential_and_the_parameter_enters_the_potential_alone():
    ham, params = HAMS["asrnn"], weights("asrnn")
    parts = ham.kinetic(params, P) + ham.potential(params, Q, A)
    assert parts.shape == ()
    assert float(ham.energy(params, Q, P, A)) == pytest.approx(float(parts), rel=1e-15)
    by_a = jax.jit(jax.grad(lambda a, q, p: ham.energy(params, q, p, a)))
    assert float(by_a(A, Q, P)) == float(by_a(A, Q, P + 1.0)) != 0
    assert [layer["W"].shape for layer in params["K"]] == [(6, 2), (6, 6), (1, 6)]
    assert [layer["W"].shape for layer in params["V"]] == [(6, 3), (6, 6), (1, 6)]


def test_potential_reads_position_then_parameter_and_hnn_position_momentum_parameter():
    params = weights("asrnn")
    wanted = st.mlp((3, 6, 6, 1)).apply(params["V"], jnp.array([*Q, A]))
    assert float(HAMS["asrnn"].potential(params, Q, A)) == float(wanted)
    wanted = st.mlp((5, 6, 6, 1)).apply(weights("hnn"), jnp.array([*Q, *P, A]))
    assert float(HAMS["hnn"].energy(weights("hnn"), Q, P, A)) == float(wanted)


@pytest.mark.parametrize("name", HAMS)
def test_hamiltonians_init_depends_on_the_key_alone(name):
    once, again, other = (jax.tree.leaves(HAMS[name].init(jax.random.key(k))) for k in (0, 0, 1))
    assert all((u == v).all() for u, v in zip(once, again, strict=True))
    assert any((u != v).any() for u, v in zip(once, other, strict=True))
    if name == "asrnn":  # K and V draw apart
        params = HAMS[name].init(jax.random.key(0))
        assert (params["K"][1]["W"] != params["V"][1]["W"]).all()
