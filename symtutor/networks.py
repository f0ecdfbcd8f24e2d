"""Small networks as pairs of functions ``(init, apply)`` on plain pytrees."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


class Network(NamedTuple):
    """A network as two pure functions.

    Attributes:
        init: ``init(key) -> params``.
        apply: ``apply(params, x)``, one input to one output.
    """

    init: Callable[[Array], PyTree]
    apply: Callable[[PyTree, Float[Array, "..."]], Float[Array, "..."]]


def mlp(sizes: tuple[int, ...], activation: Callable = jnp.tanh) -> Network:
    """Return a multilayer perceptron, ``W_L act(... act(W_1 x + b_1)) + b_L``.

    Weights start normal with standard deviation ``1 / sqrt(fan in)``, biases at 0. So an untrained tanh network of one
    output is odd, and its average over all rotations is 0.

    Args:
        sizes: width of the input, of the hidden layers and of the output. A last size of 1 gives a scalar output.
        activation: function applied to hidden layers, entry by entry.

    Returns:
        The network. Its parameters are a list of ``{"W": (out, in), "b": (out,)}``.

    Raises:
        TypeError: if sizes is no tuple or list.
        ValueError: if sizes are fewer than two or not positive whole numbers.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> net = mlp((2, 8, 1))
        >>> params = net.init(jax.random.key(0))
        >>> [layer["W"].shape for layer in params], net.apply(params, jnp.ones(2)).shape
        ([(8, 2), (1, 8)], ())
    """
    if not isinstance(sizes, tuple | list):
        raise TypeError(f"sizes is {sizes!r}; expected at least two positive whole numbers: (in, hidden ..., out).")
    sizes = tuple(sizes)
    if len(sizes) < 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"sizes is {sizes}; expected at least two positive whole numbers: (in, hidden ..., out).")

    def init(key):
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {"W": jax.random.normal(k, (out, fan_in)) / jnp.sqrt(fan_in), "b": jnp.zeros(out)}
            for k, fan_in, out in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]

    def apply(params, x):
        for layer in params[:-1]:
            x = activation(layer["W"] @ x + layer["b"])  # (out, in) x (in,) -> (out,)
        x = params[-1]["W"] @ x + params[-1]["b"]
        return x[0] if sizes[-1] == 1 else x

    return Network(init, apply)
