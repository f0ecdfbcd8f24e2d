"""Full-batch minimisation, shared by the experiments."""

from collections.abc import Callable, Sequence
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
        checkpoints: parameters after the numbers of steps asked for, a pytree like params with a leading axis, or None.
    """

    params: PyTree
    initial: PyTree
    losses: Float[Array, " steps"]
    checkpoints: PyTree = None


def minimise(
    loss: Callable[..., Float[Array, ""]],
    initial: PyTree,
    data: PyTree,
    optimizer: optax.GradientTransformationExtraArgs,
    steps: int,
    progress: str | None = None,
    checkpoints: Sequence[int] = (),
) -> Fit:
    """Take full-batch steps of an optax optimizer on ``loss(params, data)``.

    Args:
        loss: function ``loss(params, data)``, shape ``()``.
        initial: pytree of float arrays.
        data: a pytree, passed on.
        optimizer: of optax; one with a line search (L-BFGS) gets what it asks for.
        steps: number of steps.
        progress: a title under which to print the loss every tenth of the way, or None.
        checkpoints: numbers of steps after which to keep the parameters, increasing, from 0 to steps.

    Returns:
        Parameters after and before, the losses, and the checkpoints.

    Raises:
        ValueError: if steps is not a positive whole number, or checkpoints do not increase from 0 to steps.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> fit = minimise(lambda x, target: jnp.sum((x - target) ** 2), jnp.zeros(2), jnp.ones(2), optax.sgd(0.25), 30)
        >>> fit.params.round(6).tolist()
        [1.0, 1.0]
    """
    checks.check_count(steps, "steps")
    try:
        keep = [checks.whole(i) for i in checkpoints]
    except TypeError:  # nothing to run over
        keep = [None]
    if None in keep or sorted(set(keep)) != keep or any(not 0 <= i <= steps for i in keep):
        raise ValueError(
            f"checkpoints are {checkpoints}; expected whole numbers that increase, from 0 to steps = {steps}."
        )
    tenths = {steps * (i + 1) // 10 for i in range(10)} if progress else set()
    state = initial, optax.with_extra_args_support(optimizer).init(initial)
    losses = jnp.zeros(steps, jax.eval_shape(loss, initial, data).dtype)
    kept, done = [initial] if 0 in keep else [], 0
    for stop in sorted((tenths | set(keep) | {steps}) - {0}):
        state, losses = _steps(loss, optimizer, done, stop, state, losses, data)
        done = stop
        if stop in keep:
            kept.append(state[0])
        if stop in tenths:
            print(f"{progress}: step {stop} of {steps}, loss {float(losses[stop - 1]):.3g}", flush=True)
    kept = jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept) if kept else None
    return Fit(state[0], initial, losses, kept)


@partial(jax.jit, static_argnums=(0, 1))
def _steps(loss, optimizer, done, stop, state, losses, data):
    """Go on from ``done`` to ``stop`` steps; both are traced, so that one program serves, wherever the stops are."""

    def value_of(params):
        return loss(params, data)

    def step(i, carry):
        (params, memory), losses = carry
        value, gradient = jax.value_and_grad(value_of)(params)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to the step's count, an integer
            updates, memory = optax.with_extra_args_support(optimizer).update(
                gradient, memory, params, value=value, grad=gradient, value_fn=value_of
            )
        return (optax.apply_updates(params, updates), memory), losses.at[i].set(value)

    return jax.lax.fori_loop(done, stop, step, (state, losses))
