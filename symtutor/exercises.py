"""Exercises that check themselves: properties that a right answer has, with a hint for each, and no answer inside."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from symtutor.groups import shear, so2
from symtutor.networks import mlp
from symtutor.probes import Probes, function_norm, inner_product, probes_from_data
from symtutor.sensitivity import jacobian
from symtutor.tangents import orbit, orbit_tangent


class ExerciseError(AssertionError):
    """An answer to an exercise lacks a property of the right one; the message ends with a hint."""


class Exercise(NamedTuple):
    """A task whose answer can be checked; made by `exercise`.

    Attributes:
        name: its name.
        task: what to write: the call, what it gets and what it returns.
        properties: pairs of a function from the answer to whether the property holds, and a hint for when it does not.
    """

    name: str
    task: str
    properties: tuple[tuple[Callable[[Any], bool], str], ...]

    def check(self, answer: Callable) -> None:
        """Try an answer, and print that all its properties hold, or raise a hint.

        Args:
            answer: the function that the task asks for.

        Raises:
            ExerciseError: if the answer is no function, fails, returns nothing, or lacks a property.

        Example:
            >>> import jax.numpy as jnp, symtutor as st
            >>> st.exercise("rotation").check(lambda t: jnp.eye(2))      # turns nothing
            Traceback (most recent call last):
            symtutor.exercises.ExerciseError: rotation, property 3 of 4: not yet. Hint: at t = 0 (1, 0) has the velocity (0, 1).
        """
        if not callable(answer):
            raise ExerciseError(f"{self.name}: the answer is {type(answer).__name__}; expected a function. {self.task}")
        for number, (holds, hint) in enumerate(self.properties, start=1):
            where = f"{self.name}, property {number} of {len(self.properties)}"
            try:
                held = holds(_not_none(answer))
            except ExerciseError:
                raise ExerciseError(f"{where}: the answer returned nothing yet. {self.task}") from None
            except Exception as error:  # whatever a learner's code may raise
                seen = f"{type(error).__name__}: {error}"
                raise ExerciseError(f"{where}: the answer raised {seen}. {self.task} Hint: {hint}") from error
            if not held:
                raise ExerciseError(f"{where}: not yet. Hint: {hint}")
        print(f"{self.name}: all {len(self.properties)} properties hold")


def exercise(name: str) -> Exercise:
    """Return an exercise of the book by its name.

    Args:
        name: as the chapter gives it.

    Returns:
        What is asked and how it is checked; print its ``.task``, write an answer, call ``.check(answer)``.

    Raises:
        ValueError: if there is none of that name.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> print(st.exercise("rotation").task)
        Write rotation(t): the matrix, shape (2, 2), that turns the plane counter-clockwise by t.
        >>> st.exercise("rotation").check(lambda t: jnp.array([[jnp.cos(t), -jnp.sin(t)], [jnp.sin(t), jnp.cos(t)]]))
        rotation: all 4 properties hold
    """
    if name not in EXERCISES:
        near = difflib.get_close_matches(str(name), EXERCISES, n=1)
        asked = f"there is no exercise {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
        raise ValueError(f"{asked}; expected one of {', '.join(map(repr, EXERCISES))}.")
    return EXERCISES[name]


def _not_none(answer):
    def called(*given):
        value = answer(*given)
        if value is None:
            raise ExerciseError
        return value

    return called


# What the properties are tried on: an untrained network, in whatever precision the reader works in ------------------


def _network(sizes=(2, 5, 4, 1), seed=0, **options):
    """Return a network with random biases too: with zero biases many a wrong answer would pass."""
    net = mlp(sizes, **options)
    params = net.init(jax.random.key(seed))
    flat, unravel = ravel_pytree(params)
    return net.apply, unravel(flat + 0.3 * jax.random.normal(jax.random.key(seed + 1), flat.shape))


def _dictionary():
    """Return a function whose parameters are no list of layers."""
    return lambda p, x: p["a"] * jnp.sin(x[0] * p["b"][1]) + p["b"][0] * x[1] ** 2, {
        "a": jnp.array(0.7),
        "b": jnp.array([1.3, -0.4]),
    }


def _points(n=7):
    return jax.random.normal(jax.random.key(5), (n, 2))


def _weighted() -> Probes:
    return probes_from_data(_points(), jnp.arange(1.0, 8.0) / 28)


def _close(got, wanted, precision=0.0) -> bool:
    """Return whether shapes agree, and values up to rounding or the given relative precision."""
    if np.shape(got) != np.shape(wanted):
        return False
    got, wanted = np.asarray(got), np.asarray(wanted)
    eps = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    return bool(np.abs(got - wanted).max() <= max(precision, eps**0.5) * (np.abs(wanted).max() + eps**0.5))


def _same_tree(got: PyTree, params: PyTree) -> bool:
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (got, params)]
    return shapes[0] == shapes[1]


def _change(f, params, x, direction) -> Float[Array, " N"]:
    """Return J v at the points x, without a Jacobian."""
    return jax.vmap(lambda point: jax.jvp(lambda p: f(p, point), (params,), (direction,))[1])(x)


def _flat(tree: PyTree) -> Float[Array, " n"]:
    return ravel_pytree(tree)[0]


# The exercises, in the order of the book ----------------------------------------------------------------------------


def _shaped(*shape):
    return lambda answer: np.shape(answer(*_network(), _points())) == shape


def _jacobian_moves(case):
    def holds(answer):
        f, params = case()
        v = jax.random.normal(jax.random.key(3), _flat(params).shape)
        return _close(answer(f, params, _points()) @ v, _change(f, params, _points(), ravel_pytree(params)[1](v)))

    return holds


def _turns(answer, s=0.7, t=-2.1):
    return _close(answer(s) @ answer(t), answer(s + t))


def _begins_to_turn(answer, h=1e-3):
    velocity = (np.asarray(answer(h)) - np.asarray(answer(-h))) / (2 * h)
    return _close(velocity @ np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1e-3)


def _matrix(shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape), jax.random.normal(jax.random.key(seed + 1), shape[:1])


def _stationary(shape, ridge):
    def holds(answer):
        A, y = _matrix(shape)
        c = answer(A, y, ridge)
        damping = (ridge * jnp.linalg.norm(A, 2)) ** 2
        return np.shape(c) == shape[1:] and _close(A.T @ (y - A @ c) - damping * c + A.T @ y, A.T @ y)

    return holds


def _moved_by_one(case):
    def holds(answer):
        f, params = case()
        probes = _weighted()
        S, unravel = answer(f, params, probes), ravel_pytree(params)[1]
        if not _same_tree(S, params):
            return False
        units = np.eye(_flat(params).size)
        moved = [function_norm(_change(f, params, probes.x, unravel(jnp.asarray(u))), probes.w) for u in units]
        return _close(_flat(S), jnp.stack(moved))

    return holds


def _along_turns(case):
    def holds(answer):
        f, params = case()
        eta = jax.jvp(lambda t: orbit(f, params, _points(), so2(), t), (0.0,), (1.0,))[1]
        return _close(answer(f, params, _points()), eta)

    return holds


def _polynomial(coefficients, x):
    """Averages over turns to c0 + c1 norm(x)^2 / 2."""
    return coefficients[0] + coefficients[1] * x[0] ** 2 + coefficients[2] * x[1] * x[0]


def _knows_the_average(answer):
    c = jnp.array([0.5, 2.0, -1.0])
    return _close(answer(_polynomial, c, _points()), 0.5 + (_points() ** 2).sum(axis=1))


def _is_invariant(answer):
    f, params = _network()
    turned = _points() @ so2().subgroup(0.9).T
    return _close(answer(f, params, turned), answer(f, params, _points()), 1e-6)


def _lifts(group, generator=0):
    def holds(answer):
        f, params = _network()
        xi = jnp.array(group.generators[generator])
        eta = orbit_tangent(group, generator)(f, params, _points())
        c = answer(params, xi)
        return _same_tree(c, params) and _close(_change(f, params, _points(), c), eta)

    return holds


def _normal_equations(case, ridge):
    def holds(answer):
        f, params = case()
        probes, eta = _weighted(), orbit_tangent(so2())
        c = answer(f, params, probes, eta, ridge)
        if not _same_tree(c, params):
            return False
        rows = jnp.sqrt(probes.w)[:, None] * jacobian(f, params, probes.x)
        y = jnp.sqrt(probes.w) * eta(f, params, probes.x)
        damping = (ridge * jnp.linalg.norm(rows, 2)) ** 2
        return _close(rows.T @ (y - rows @ _flat(c)) - damping * _flat(c) + rows.T @ y, rows.T @ y)

    return holds


def _a_direction(f, params, probes):
    """Return a direction that explains a part of eta, and eta."""
    eta = orbit_tangent(so2())(f, params, probes.x)
    slope = jacobian(f, params, probes.x).T @ (probes.w * eta)
    return ravel_pytree(params)[1](0.3 * slope), eta


def _relative_miss(answer):
    f, params = _network()
    probes = _weighted()
    c, eta = _a_direction(f, params, probes)
    miss = function_norm(_change(f, params, probes.x, c) - eta, probes.w) / function_norm(eta, probes.w)
    return _close(answer(f, params, probes, orbit_tangent(so2()), c), miss)


def _misses_all(answer):
    f, params = _network()
    return _close(answer(f, params, _weighted(), orbit_tangent(so2()), jax.tree.map(jnp.zeros_like, params)), 1.0)


def _shares_are_a_tree(answer):
    f, params = _network()
    return _same_tree(answer(f, params, _weighted(), orbit_tangent(so2()), params), params)


def _shares_add_up(answer):
    f, params = _network()
    probes = _weighted()
    c, eta = _a_direction(f, params, probes)
    explained = inner_product(_change(f, params, probes.x, c), eta, probes.w) / inner_product(eta, eta, probes.w)
    return _close(_flat(answer(f, params, probes, orbit_tangent(so2()), c)).sum(), explained)


def _share_of_one(answer):
    f, params = _network()
    probes = _weighted()
    c, eta = _a_direction(f, params, probes)
    alone = jax.tree.map(jnp.zeros_like, params)
    alone[1]["b"] = alone[1]["b"].at[2].set(c[1]["b"][2])  # only this parameter moves
    explained = inner_product(_change(f, params, probes.x, alone), eta, probes.w) / inner_product(eta, eta, probes.w)
    return _close(answer(f, params, probes, orbit_tangent(so2()), c)[1]["b"][2], explained)


def _kernel(answer):
    f, params = _network((2, 4, 1), activation=jax.nn.relu)
    v = answer(params)
    moved = _change(f, params, _points(40), v) / jnp.abs(_flat(v)).max()  # a small motion is a motion too
    return _same_tree(v, params) and _close(moved + 1, jnp.ones(40))


def _moves(answer):
    _, params = _network((2, 4, 1), activation=jax.nn.relu)
    return float(jnp.abs(_flat(answer(params))).max()) > 0


def _circle(theta):
    return jnp.array([[0.0, -1.0], [1.0, 0.0]]) @ theta


def _follows(velocity, start, end, time=1.0):
    def holds(answer):
        return _close(answer(velocity, jnp.array(start), time, 200), jnp.array(end), 2e-2)

    return holds


def _second_order(answer):
    # nonlinear, theta(1) = 1/2: else velocity(velocity(theta)) would pass for a derivative
    ends = [answer(lambda theta: -(theta**2), jnp.ones(1), 1.0, steps)[0] for steps in (8, 16)]
    coarse, fine = (abs(float(end) - 0.5) for end in ends)
    return fine < coarse / 3.5 or fine < 1e-6


_TREE = "The result should be a pytree like params (jax.flatten_util.ravel_pytree gives a way back from a vector)."

EXERCISES = {
    name: Exercise(name, task, properties)
    for name, task, properties in (
        (
            "jacobian",
            "Write jacobian(f, params, x): derivatives of f by all parameters, one row a point of x, shape (N, n).",
            (
                (_shaped(7, 44), "one row a point, one column a parameter."),
                (_jacobian_moves(_network), "times a vector v it should be the rate at which f changes along v."),
                (_jacobian_moves(_dictionary), "params may be any pytree: ravel_pytree makes a vector of it."),
            ),
        ),
        (
            "rotation",
            "Write rotation(t): the matrix, shape (2, 2), that turns the plane counter-clockwise by t.",
            (
                (lambda answer: _close(answer(0.0), jnp.eye(2)), "turning by nothing should change nothing."),
                (lambda answer: _close(answer(1.1).T @ answer(1.1), jnp.eye(2)), "lengths should stay what they are."),
                (_begins_to_turn, "at t = 0 (1, 0) has the velocity (0, 1)."),
                (_turns, "turning by s and then by t should be turning by s + t."),
            ),
        ),
        (
            "ridge",
            "Write solve(A, y, ridge): the c, shape (n,), with the least norm(A c - y)^2 + (ridge s1)^2 norm(c)^2.",
            (
                (
                    _stationary((3, 6), 0.1),
                    "at the minimum A^T (y - A c) = (ridge s1)^2 c; s1 is the largest singular value.",
                ),
                (_stationary((6, 3), 0.1), "A may have more rows than columns, too."),
            ),
        ),
        (
            "sensitivity",
            "Write sensitivity(f, params, probes): the root mean square of df/dtheta_i over the probes, a pytree like params.",
            (
                (lambda answer: _same_tree(answer(*_network(), _weighted()), _network()[1]), _TREE),
                (_moved_by_one(_network), "square, average with the weights probes.w, take the root: in this order."),
                (_moved_by_one(_dictionary), "params may be any pytree."),
            ),
        ),
        (
            "orbit tangent",
            "Write tangent(f, params, x): how fast f changes as it begins to turn counter-clockwise, shape (N,).",
            (
                (_shaped(7), "one number a point."),
                (_along_turns(_network), "eta(x) = -grad f(x) . (xi x): the gradient by the input, and mind the sign."),
                (_along_turns(_dictionary), "nothing should depend on what params looks like."),
            ),
        ),
        (
            "projection",
            "Write project(f, params, x): the average of f over all turns of the plane, at each point of x, shape (N,).",
            (
                (_shaped(7), "one number a point."),
                (_knows_the_average, "the average of x_0^2 over all turns is norm(x)^2 / 2."),
                (_is_invariant, "turning the points should change nothing; are there enough angles, evenly spaced?"),
            ),
        ),
        (
            "exact lift",
            "Write exact(params, xi): for an mlp, the motion of its parameters with J c = eta for x -> xi x, like params.",
            (
                (lambda answer: _same_tree(answer(_network()[1], jnp.eye(2)), _network()[1]), _TREE),
                (_lifts(so2()), "moving W by dW changes W x + b by dW x; turned inputs change it by -W xi x."),
                (_lifts(shear()), "it should work for any matrix xi, not for rotations alone."),
            ),
        ),
        (
            "lift",
            "Write lift(f, params, probes, tangent, ridge): the least-squares lift of the tangent, a pytree like params.",
            (
                (
                    lambda answer: _same_tree(
                        answer(*_network(), _weighted(), orbit_tangent(so2()), 0.1), _network()[1]
                    ),
                    _TREE,
                ),
                (
                    _normal_equations(_network, 0.1),
                    "rows of J and entries of eta carry sqrt(w); the ridge is relative to s1.",
                ),
                (
                    _normal_equations(_dictionary, 0.1),
                    "params may be any pytree, and J may have more rows than columns.",
                ),
                (_normal_equations(_network, 1e-3), "a small ridge should work as well."),
            ),
        ),
        (
            "residual",
            "Write residual(f, params, probes, tangent, c): norm(J c - eta) / norm(eta) on the probes, a number.",
            (
                (_misses_all, "a direction that moves nothing misses all: residual 1."),
                (_relative_miss, "J c is one jax.jvp a probe; norms are those of functions, weighted by probes.w."),
            ),
        ),
        (
            "gauge",
            "Write gauge(params): for a ReLU mlp with one hidden layer, a motion of its parameters that leaves f as it is.",
            (
                (lambda answer: _same_tree(answer(_network((2, 4, 1))[1]), _network((2, 4, 1))[1]), _TREE),
                (_moves, "zero is a motion too, but not the one that was asked for."),
                (_kernel, "make what enters a hidden unit larger, bias too, and what leaves it smaller."),
            ),
        ),
        (
            "shares",
            "Write shares(f, params, probes, tangent, c): the share of each parameter in c's part of the tangent, like params.",
            (
                (_shares_are_a_tree, _TREE),
                (_shares_add_up, "they should add up to <J c, eta> / norm(eta)^2, weighted by probes.w."),
                (_share_of_one, "a share is what its parameter explains when it moves alone."),
            ),
        ),
        (
            "flow",
            "Write follow(velocity, theta, t, steps): where theta' = velocity(theta) leads in time t, in equal steps.",
            (
                (
                    _follows(jnp.negative, [2.0], [0.7357589]),
                    "velocity(theta) = -theta should shrink theta by exp(-t).",
                ),
                (
                    _follows(_circle, [1.0, 0.0], [0.0, 1.0], np.pi / 2),
                    "recompute the velocity: a tangent leaves the circle.",
                ),
                (
                    _second_order,
                    "half the step should leave a quarter of the error: use the slope in the middle of a step.",
                ),
            ),
        ),
    )
}
"""All exercises by name."""
