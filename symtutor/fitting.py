"""Full-batch minimisation, shared by the experiments."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from symtutor import checks


class Fit(NamedTuple):
    """A trained network.

    Attributes:
        params: parameters after training.
        initial: parameters before it.
        losses: loss before each step, shape ``(steps,)``.
    """

    params: PyTree
    initial: PyTree
    losses: Float[Array, " steps"]


def minimise(
    loss: Callable[..., Float[Array, ""]],
    initial: PyTree,
    data: PyTree,
    optimizer: optax.GradientTransformationExtraArgs,
    steps: int,
    progress: str | None = None,
) -> Fit:
    """Take full-batch steps of an optax optimizer on ``loss(params, data)``.

    Args:
        loss: function ``loss(params, data)``, shape ``()``.
        initial: pytree of float arrays.
        data: a pytree, passed on.
        optimizer: of optax; one with a line search (L-BFGS) gets what it asks for.
        steps: number of steps.
        progress: a title under which to print the loss every tenth of the way, or None.

    Returns:
        Parameters after and before, and the losses.

    Raises:
        ValueError: if steps is not a positive whole number.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> fit = minimise(lambda x, target: jnp.sum((x - target) ** 2), jnp.zeros(2), jnp.ones(2), optax.sgd(0.25), 30)
        >>> fit.params.round(6).tolist()
        [1.0, 1.0]
    """
    checks.check_count(steps, "steps")
    state = initial, optax.with_extra_args_support(optimizer).init(initial)
    parts = 10 if progress else 1
    lengths = [steps * (i + 1) // parts - steps * i // parts for i in range(parts)]
    losses, done = [], 0
    for length in filter(None, lengths):
        state, part = _steps(loss, optimizer, length, state, data)
        losses.append(part)
        done += length
        if progress:
            print(f"{progress}: step {done} of {steps}, loss {float(part[-1]):.3g}", flush=True)
    return Fit(state[0], initial, jnp.concatenate(losses))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _steps(loss, optimizer, length, state, data):
    def value_of(params):
        return loss(params, data)

    def step(state, _):
        params, memory = state
        value, gradient = jax.value_and_grad(value_of)(params)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to the step's count, an integer
            updates, memory = optax.with_extra_args_support(optimizer).update(
                gradient, memory, params, value=value, grad=gradient, value_fn=value_of
            )
        return (optax.apply_updates(params, updates), memory), value

    return jax.lax.scan(step, state, length=length)
