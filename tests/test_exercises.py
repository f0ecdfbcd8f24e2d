"""Exercises take every right answer, however it is written, and no wrong one."""

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

import symtutor as st
from symtutor.exercises import EXERCISES

XI = jnp.array([[0.0, -1.0], [1.0, 0.0]])


def jacobian(f, params, x):
    return jax.vmap(lambda point: ravel_pytree(jax.grad(f)(params, point))[0])(x)


def rotation(t):
    return jax.scipy.linalg.expm(t * XI)


def solve(A, y, ridge):
    damping = (ridge * jnp.linalg.norm(A, 2)) ** 2
    return A.T @ jnp.linalg.solve(A @ A.T + damping * jnp.eye(len(A)), y)


def sensitivity(f, params, probes):
    rows = jacobian(f, params, probes.x)
    return ravel_pytree(params)[1](jnp.sqrt(probes.w @ rows**2))


def tangent(f, params, x):
    return jax.vmap(lambda point: -jax.grad(f, argnums=1)(params, point) @ (XI @ point))(x)


def project(f, params, x):
    angles = 2 * jnp.pi * jnp.arange(64) / 64
    return jax.vmap(lambda p: jnp.mean(jax.vmap(lambda t: f(params, rotation(-t) @ p))(angles)))(x)


def exact(params, xi):
    c = jax.tree.map(jnp.zeros_like, params)
    c[0]["W"] = -params[0]["W"] @ xi
    return c


def lift(f, params, probes, tangent, ridge):
    root = jnp.sqrt(probes.w)
    c = solve(root[:, None] * jacobian(f, params, probes.x), root * tangent(f, params, probes.x), ridge)
    return ravel_pytree(params)[1](c)


def residual(f, params, probes, tangent, c):
    eta = tangent(f, params, probes.x)
    miss = jacobian(f, params, probes.x) @ ravel_pytree(c)[0] - eta
    return jnp.sqrt(probes.w @ miss**2 / (probes.w @ eta**2))


def gauge(params):
    v = jax.tree.map(jnp.zeros_like, params)
    v[0]["W"] = v[0]["W"].at[1].set(params[0]["W"][1])
    v[0]["b"] = v[0]["b"].at[1].set(params[0]["b"][1])
    v[1]["W"] = v[1]["W"].at[:, 1].set(-params[1]["W"][:, 1])
    return v


def shares(f, params, probes, tangent, c):
    eta = tangent(f, params, probes.x)
    overlap = jacobian(f, params, probes.x).T @ (probes.w * eta)
    return ravel_pytree(params)[1](ravel_pytree(c)[0] * overlap / (probes.w @ eta**2))


def follow(velocity, theta, t, steps):
    for _ in range(steps):
        theta = theta + t / steps * velocity(theta + t / steps / 2 * velocity(theta))
    return theta


RIGHT = {
    "jacobian": jacobian,
    "rotation": rotation,
    "ridge": solve,
    "sensitivity": sensitivity,
    "orbit tangent": tangent,
    "projection": project,
    "exact lift": exact,
    "lift": lift,
    "residual": residual,
    "gauge": gauge,
    "shares": shares,
    "flow": follow,
}


def euler(velocity, theta, t, steps):
    for _ in range(steps):
        theta = theta + t / steps * velocity(theta)
    return theta


# What learners write first, and a word of the hint that it should bring
WRONG = [
    ("jacobian", lambda f, params, x: jacobian(f, params, x).T, "one row a point"),
    ("jacobian", lambda f, params, x: 2 * jacobian(f, params, x), "the rate at which f changes"),
    ("jacobian", lambda f, params, x: jacobian(f, [*params], x), "any pytree"),
    ("rotation", lambda t: rotation(-t), "the velocity (0, 1)"),
    ("rotation", lambda t: jnp.eye(2) + t * XI, "lengths"),
    ("rotation", lambda t: rotation(t + 1), "turning by nothing"),
    ("rotation", lambda t: rotation(t + t**3), "turning by s and then"),
    ("ridge", lambda A, y, ridge: jnp.linalg.pinv(A) @ y, "at the minimum"),
    ("ridge", lambda A, y, ridge: solve(A, y, ridge / jnp.linalg.norm(A, 2)), "largest singular value"),
    ("ridge", lambda A, y, ridge: 2 * solve(A, y, ridge), "at the minimum"),
    ("ridge", lambda A, y, ridge: solve(A[:3], y[:3], ridge), "more rows than columns"),
    ("sensitivity", lambda *given: ravel_pytree(sensitivity(*given))[0], "pytree like params"),
    ("sensitivity", lambda f, params, probes: sensitivity(f, params, st.probes_from_data(probes.x)), "in this order"),
    ("sensitivity", lambda f, params, probes: sensitivity(f, [*params], probes), "any pytree"),
    ("orbit tangent", lambda *given: tangent(*given)[:, None], "one number a point"),
    ("orbit tangent", lambda *given: -tangent(*given), "mind the sign"),
    ("orbit tangent", lambda f, params, x: tangent(f, [*params], x), "what params looks like"),
    ("projection", lambda *given: project(*given)[:, None], "one number a point"),
    ("projection", lambda f, params, x: jax.vmap(f, (None, 0))(params, x), "the average of x_0^2"),
    ("projection", lambda f, params, x: st.equivariant_projection(f, params, x, st.cyclic(3)), "turning the points"),
    ("exact lift", lambda params, xi: exact(params, xi)[0], "pytree like params"),
    ("exact lift", lambda params, xi: jax.tree.map(jnp.negative, exact(params, xi)), "changes W x + b"),
    ("exact lift", lambda params, xi: exact(params, XI), "any matrix"),
    ("lift", lambda *given: ravel_pytree(lift(*given))[0], "pytree like params"),
    ("lift", lambda f, params, probes, t, ridge: lift(f, params, st.probes_from_data(probes.x), t, ridge), "sqrt(w)"),
    ("lift", lambda f, params, probes, t, ridge: lift(f, [*params], probes, t, ridge), "any pytree"),
    ("lift", lambda f, params, probes, t, ridge: lift(f, params, probes, t, 0.1), "a small ridge"),
    ("residual", lambda f, params, probes, t, c: residual(f, params, probes, t, c) ** 2, "one jax.jvp"),
    ("residual", lambda f, params, probes, t, c: 0.0, "residual 1"),
    ("gauge", lambda params: jax.tree.map(jnp.zeros_like, params), "zero is a motion"),
    ("gauge", lambda params: params, "larger"),
    ("gauge", lambda params: params[0], "pytree like params"),
    ("shares", lambda *given: ravel_pytree(shares(*given))[0], "pytree like params"),
    ("shares", lambda *given: jax.tree.map(lambda a: 2 * a, shares(*given)), "add up"),
    ("flow", euler, "slope in the middle"),
    ("flow", lambda velocity, theta, t, steps: theta * jnp.exp(-t), "leaves the circle"),
    ("flow", lambda velocity, theta, t, steps: theta + t * velocity(theta), "exp(-t)"),
]


def all_equal_shares(f, params, probes, tangent, c):
    """They add up, and say nothing about single parameters."""
    given = shares(f, params, probes, tangent, c)
    flat, unravel = ravel_pytree(given)
    return unravel(jnp.full_like(flat, flat.mean()))


def all_layers(params, xi):
    """Right on the function, but a gauge direction of the output is added: not what was asked."""
    c = exact(params, xi)
    c[1]["b"] = c[1]["b"] + 1.0
    return c


def velocity_of_a_velocity(velocity, theta, t, steps):
    """Right for linear velocities only."""
    h = t / steps
    for _ in range(steps):
        theta = theta + h * velocity(theta) + h**2 / 2 * velocity(velocity(theta))
    return theta


WRONG += [("flow", velocity_of_a_velocity, "slope in the middle")]
WRONG += [("shares", all_equal_shares, "moves alone"), ("exact lift", all_layers, "changes W x + b")]


def test_every_exercise_has_its_answer_here():
    assert set(RIGHT) == set(EXERCISES)


@pytest.mark.parametrize("name", EXERCISES)
def test_right_answer_passes(name, capsys):
    assert st.exercise(name).check(RIGHT[name]) is None
    assert capsys.readouterr().out == f"{name}: all {len(EXERCISES[name].properties)} properties hold\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_stub_fails_with_the_task(name):
    with pytest.raises(st.ExerciseError, match="returned nothing yet. Write "):
        st.exercise(name).check(lambda *given: None)


@pytest.mark.parametrize("name, answer, hint", WRONG)
def test_wrong_answer_gets_its_hint(name, answer, hint):
    with pytest.raises(st.ExerciseError, match="Hint: ") as caught:
        st.exercise(name).check(answer)
    assert hint in str(caught.value)


def test_every_property_fails_for_some_wrong_answer():
    """A property that no wrong answer lacks would be no check."""
    seen = set()
    for name, answer, _ in WRONG:
        with pytest.raises(st.ExerciseError) as caught:
            st.exercise(name).check(answer)
        seen |= {(name, hint) for _, hint in EXERCISES[name].properties if str(caught.value).endswith(hint)}
    assert {(n, hint) for n, e in EXERCISES.items() for _, hint in e.properties} - seen == set()


def test_small_gauge_motion_is_right():
    st.exercise("gauge").check(lambda params: jax.tree.map(lambda leaf: 1e-6 * leaf, gauge(params)))


def test_answer_that_is_no_function():
    with pytest.raises(st.ExerciseError, match="the answer is float; expected a function. Write rotation"):
        st.exercise("rotation").check(1.0)


def test_answer_that_raises_says_what_and_keeps_the_cause():
    def wrong(t):
        raise ZeroDivisionError("no")

    with pytest.raises(st.ExerciseError, match="raised ZeroDivisionError: no. Write") as caught:
        st.exercise("rotation").check(wrong)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_unknown_name_suggests_one():
    with pytest.raises(ValueError, match="no exercise 'orbit tangnt' .did you mean 'orbit tangent'.*'flow'"):
        st.exercise("orbit tangnt")
