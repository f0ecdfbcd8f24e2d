"""Minimisation: known answers, and the losses that it keeps."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examples import COMPILED

from symtutor.fitting import Fit, minimise

CURVATURE, TARGET = jnp.array([1.0, 4.0]), jnp.array([3.0, -2.0])
START = {"x": jnp.array([1.0, 1.0])}


def quadratic(params, target):
    return jnp.dot(CURVATURE, (params["x"] - target) ** 2) / 2


def test_gradient_descent_on_a_quadratic():
    fit = minimise(quadratic, START, TARGET, optax.sgd(0.1), 12)
    assert isinstance(fit, Fit) and fit.initial is START
    # each coordinate shrinks by 1 - 0.1 curvature a step
    gaps = (1 - 0.1 * np.asarray(CURVATURE)) ** np.arange(13)[:, None] * np.asarray(START["x"] - TARGET)
    np.testing.assert_allclose(fit.params["x"], TARGET + gaps[-1], rtol=1e-13)
    assert fit.losses.shape == (12,)
    np.testing.assert_allclose(fit.losses, gaps[:-1] ** 2 @ CURVATURE / 2, rtol=1e-13)  # before each step


def test_lbfgs_gets_what_its_line_search_asks_for():
    fit = minimise(quadratic, START, TARGET, optax.lbfgs(), 8)
    np.testing.assert_allclose(fit.params["x"], TARGET, atol=1e-9)
    assert fit.losses.shape == (8,)
    descended = minimise(quadratic, START, TARGET, optax.sgd(0.1), 8)
    assert float(fit.losses[-1]) < 1e-6 * float(descended.losses[-1])


@pytest.mark.parametrize(
    ("steps", "lines"), [(3, [1, 2, 3]), (20, range(2, 21, 2)), (15, [1, 3, 4, 6, 7, 9, 10, 12, 13, 15])]
)
def test_progress_prints_each_tenth_and_changes_nothing(capsys, steps, lines):
    quiet = minimise(quadratic, START, TARGET, optax.adam(0.1), steps)
    assert capsys.readouterr().out == ""
    told = minimise(quadratic, START, TARGET, optax.adam(0.1), steps, "descent")
    np.testing.assert_allclose(told.losses, quiet.losses, rtol=1e-13)
    np.testing.assert_allclose(told.params["x"], quiet.params["x"], rtol=1e-13)
    assert capsys.readouterr().out.splitlines() == [
        f"descent: step {i} of {steps}, loss {float(told.losses[i - 1]):.3g}" for i in lines
    ]


def test_checkpoints_are_the_parameters_on_the_way_and_change_nothing():
    plain = minimise(quadratic, START, TARGET, optax.adam(0.1), 12)
    assert plain.checkpoints is None
    fit = minimise(quadratic, START, TARGET, optax.adam(0.1), 12, checkpoints=(0, 4, 8, 12))
    np.testing.assert_allclose(fit.losses, plain.losses, rtol=1e-13)
    path = np.asarray(fit.checkpoints["x"])
    np.testing.assert_array_equal(path[[0, -1]], [START["x"], fit.params["x"]])
    for i, steps in ((1, 4), (2, 8)):
        np.testing.assert_allclose(
            path[i], minimise(quadratic, START, TARGET, optax.adam(0.1), steps).params["x"], rtol=1e-13
        )


def test_one_program_serves_wherever_the_stops_are():
    descent = optax.sgd(0.1)
    minimise(quadratic, START, TARGET, descent, 30, checkpoints=(1, 15, 30))
    before = len(COMPILED)
    fit = minimise(quadratic, START, TARGET, descent, 30, checkpoints=np.array([1, 7, 29]))
    assert len(COMPILED) == before
    np.testing.assert_allclose(fit.losses, minimise(quadratic, START, TARGET, descent, 30).losses, rtol=1e-13)
