"""The annulus: tell a ring from the disc inside it. The truth is invariant under rotations; a network need not be."""

from collections.abc import Callable, Sequence
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from symtutor import checks
from symtutor.fitting import Fit, minimise
from symtutor.networks import Network

DISC = 1.0
"""Radius of the disc, class 0."""
RING = (1.5, 2.5)
"""Radii of the annulus, class 1."""


def data(
    key: Array, n: int = 512, sector: tuple[float, float] = (0.0, 2 * np.pi)
) -> tuple[Float[Array, "n 2"], Int[Array, " n"]]:
    """Draw points of the disc ``r <= 1`` and the annulus ``1.5 <= r <= 2.5``, half each, uniform by area within each.

    Args:
        key: random key.
        n: number of points, even.
        sector: angles to draw from, in radians, increasing; by default the whole turn.

    Returns:
        Points, shape ``(n, 2)``, and labels, shape ``(n,)``, 1 for the annulus and 0 for the disc.

    Raises:
        ValueError: if n is not a positive even number, or the sector is empty or more than a turn.

    Example:
        >>> import jax
        >>> x, y = data(jax.random.key(0), n=8)
        >>> x.shape, y.tolist()
        ((8, 2), [0, 0, 0, 0, 1, 1, 1, 1])

    Reference: experiments.md, 1; the settings are ours, not the source paper's.
    """
    if type(n) is not int or n < 2 or n % 2:
        raise ValueError(f"n is {n!r}; expected a positive even number, half of it in each class.")
    if not 0 < sector[1] - sector[0] <= 2 * np.pi + 1e-9:
        raise ValueError(f"sector is {sector}; expected two increasing angles, at most a full turn apart.")
    radius_key, angle_key = jax.random.split(key)
    low = jnp.repeat(jnp.array([0.0, RING[0]]), n // 2)
    high = jnp.repeat(jnp.array([DISC, RING[1]]), n // 2)
    # uniform by area: the square of the radius is uniform
    r = jnp.sqrt(low**2 + jax.random.uniform(radius_key, (n,)) * (high**2 - low**2))
    phi = sector[0] + jax.random.uniform(angle_key, (n,)) * (sector[1] - sector[0])
    return jnp.stack([r * jnp.cos(phi), r * jnp.sin(phi)], axis=-1), jnp.repeat(jnp.array([0, 1]), n // 2)


def train(
    key: Array,
    net: Network,
    x: Float[Array, "n 2"],
    y: Int[Array, " n"],
    steps: int = 2000,
    learning_rate: float = 3e-3,
    checkpoints: Sequence[int] = (),
) -> Fit:
    """Train a classifier of one logit by full-batch Adam on the binary cross-entropy.

    Args:
        key: random key of the initial parameters.
        net: network with a scalar output.
        x: points, shape ``(n, 2)``.
        y: labels 0 or 1, shape ``(n,)``.
        steps: number of steps.
        learning_rate: of Adam.
        checkpoints: numbers of steps after which to keep the parameters, increasing, from 0 to steps.

    Returns:
        Parameters after and before training, the losses, and the checkpoints.

    Raises:
        TypeError: if net is no network, or x is no float array.
        ValueError: if shapes do not fit, steps or learning_rate is not positive, labels are not 0 or 1, or the output is
            no scalar.

    Example:
        >>> import jax, symtutor as st
        >>> fit = train(jax.random.key(0), st.mlp((2, 8, 1)), *data(jax.random.key(1), n=64), steps=200)
        >>> bool(fit.losses[-1] < fit.losses[0])
        True

    Reference: experiments.md, 1.
    """
    checks.check_points(x)
    y = jnp.asarray(y)
    if y.shape != x.shape[:1]:
        raise ValueError(f"y has shape {jnp.shape(y)}; expected {x.shape[:1]}, a label a point.")
    if checks.is_concrete(y) and not np.isin(y, (0, 1)).all():
        raise ValueError(f"y holds {sorted(set(np.asarray(y).tolist()))[:5]}; expected labels 0 and 1.")
    checks.check_count(steps, "steps")
    checks.check_positive(learning_rate, "learning_rate")
    if not (hasattr(net, "init") and hasattr(net, "apply")):
        raise TypeError(f"net is {type(net).__name__}; expected a Network, such as st.mlp((2, 32, 32, 1)).")
    initial = net.init(key)
    if (shape := checks.output_shape(net.apply, initial, x)) != ():
        raise ValueError(f"net has an output of shape {shape}; expected one logit, a last size of 1.")
    optimizer = _adam(float(learning_rate)) if checks.is_concrete(learning_rate) else optax.adam(learning_rate)
    return minimise(_cross_entropy(net.apply), initial, (x, y), optimizer, steps, None, checkpoints)


# made once for each network and rate, since the steps are compiled for them


@cache
def _cross_entropy(f):
    def loss(params, data):
        logits = jax.vmap(f, (None, 0))(params, data[0])
        return optax.sigmoid_binary_cross_entropy(logits, data[1].astype(logits.dtype)).mean()

    return loss


@cache
def _adam(learning_rate):
    return optax.adam(learning_rate)


def accuracy(f: Callable, params: PyTree, x: Float[Array, "n 2"], y: Int[Array, " n"]) -> Float[Array, ""]:
    """Return the fraction of points on the right side of ``f = 0``.

    Args:
        f: function ``f(params, x)`` of one input, a logit.
        params: pytree of float arrays.
        x: points, shape ``(n, 2)``.
        y: labels 0 or 1, shape ``(n,)``.

    Returns:
        The fraction, shape ``()``.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> x, y = data(jax.random.key(0))
        >>> float(accuracy(lambda radius, x: jnp.linalg.norm(x) - radius, jnp.array(1.25), x, y))
        1.0
    """
    return jnp.mean((jax.vmap(f, (None, 0))(params, x) > 0) == (y == 1))
