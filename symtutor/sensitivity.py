"""Functional sensitivity: how the realised function answers to each parameter.

``S*_i(x) = d f_theta(x) / d theta_i`` is column i of the Jacobian J of the realisation map theta -> f_theta.
"""

import math
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from symtutor.checks import check_chunk_size, check_params, check_points, check_probes, output_shape
from symtutor.probes import Probes, auto_sharded

BYTES_AT_ONCE = 2**29
"""Derivatives that are only summed up are held up to this size."""


def pointwise_sensitivity(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], *, chunk_size: int | None = None
) -> PyTree:
    """Return ``S*_i(x_j) = d f(x_j) / d theta_i`` for every parameter and point.

    Args:
        f: function ``f(params, x)`` of one input, with an output of shape ``()`` or ``(k,)``.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.
        chunk_size: how many points at a time; all at once if None.

    Returns:
        A pytree like params, each leaf with leading axes ``(N,)`` or ``(N, k)``.

    Raises:
        TypeError: if params, x or f's output is not of floats.
        ValueError: if f does not map one input to one output, or a value is not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> f = lambda w, x: jnp.dot(w, x)            # S*_i(x) = x_i
        >>> pointwise_sensitivity(f, jnp.zeros(2), jnp.array([[3.0, 4.0]])).tolist()
        [[3.0, 4.0]]

    Reference: theory.md, Notation.
    """
    check_params(params)
    check_points(x)
    check_chunk_size(chunk_size)
    return _pointwise(f, params, x, output_shape(f, params, x) == (), chunk_size)


def sensitivity(f: Callable, params: PyTree, probes: Probes, *, chunk_size: int | None = None) -> PyTree:
    """Return ``S_i = sqrt(sum_j w_j abs(S*_i(x_j))^2)``, the sensitivity aggregated over probes.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: points and weights.
        chunk_size: how many probes at a time; if None, as many as take half a gigabyte.

    Returns:
        A pytree of the shape of params, with entries of at least 0.

    Raises:
        TypeError: as `pointwise_sensitivity`.
        ValueError: as `pointwise_sensitivity`, or if the weights are unusable.

    Example:
        >>> import jax.numpy as jnp
        >>> import symtutor as st
        >>> probes = st.polar_probes(rmax=2.0)           # the mean of x_i^2 over the disc is rmax^2 / 4
        >>> sensitivity(lambda w, x: jnp.dot(w, x), jnp.zeros(2), probes).round(6).tolist()
        [1.0, 1.0]

    Reference: theory.md, Notation.
    """
    check_params(params)
    check_probes(probes)
    check_chunk_size(chunk_size)
    probes, out = auto_sharded(probes), output_shape(f, params, probes.x)
    return _aggregated(f, params, probes, out, chunk_size)


def jacobian(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], *, chunk_size: int | None = None
) -> Float[Array, "Nk n"]:
    """Return J, the derivative of all outputs by all parameters, unweighted.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays, n numbers in all.
        x: inputs, shape ``(N, ...)``.
        chunk_size: how many points at a time; all at once if None.

    Returns:
        The matrix, shape ``(N k, n)``. Rows run over points, then outputs; columns as in ``ravel_pytree(params)``.

    Raises:
        TypeError: as `pointwise_sensitivity`.
        ValueError: as `pointwise_sensitivity`.

    Example:
        >>> import jax.numpy as jnp
        >>> jacobian(lambda w, x: jnp.dot(w, x), jnp.zeros(2), jnp.array([[3.0, 4.0], [5.0, 6.0]])).tolist()
        [[3.0, 4.0], [5.0, 6.0]]

    Reference: theory.md, Notation.
    """
    columns = pointwise_sensitivity(f, params, x, chunk_size=chunk_size)
    return _side_by_side(columns, params, x.shape[0] * math.prod(output_shape(f, params, x)))


@eqx.filter_jit
def _pointwise(f, params, x, scalar, chunk_size):
    # one reverse pass a probe, batched: far faster than one jacrev of the batched function
    derivative = jax.grad if scalar else jax.jacrev

    def one(point):
        return derivative(f)(params, point)

    return jax.vmap(one)(x) if chunk_size is None else jax.lax.map(one, x, batch_size=chunk_size)


@eqx.filter_jit
def _aggregated(f, params, probes, out, chunk_size):
    """Sum squares over chunks of probes, so that only one chunk's derivatives are held."""
    N, a_probe = probes.x.shape[0], math.prod(out) * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    size = min(N, chunk_size or max(1, BYTES_AT_ONCE // max(a_probe, 1)))
    padding = -N % size  # by the first probe with weight 0
    x = jnp.concatenate([probes.x, jnp.broadcast_to(probes.x[:1], (padding, *probes.x.shape[1:]))])
    w = jnp.concatenate([probes.w, jnp.zeros(padding, probes.w.dtype)])

    def add(total, chunk):
        points, weights = chunk

        def square(leaf, so_far):
            squares = (leaf**2).reshape(size, math.prod(out), *so_far.shape).sum(axis=1)  # sum over outputs
            return so_far + jnp.tensordot(weights.astype(squares.dtype), squares, 1)  # (size,) x (size, ...) -> (...)

        return jax.tree.map(square, _pointwise(f, params, points, out == (), None), total), None

    chunks = x.reshape(-1, size, *x.shape[1:]), w.reshape(-1, size)
    return jax.tree.map(jnp.sqrt, jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), chunks)[0])


@partial(jax.jit, static_argnums=2)
def _side_by_side(columns, params, rows):
    sizes = (leaf.size for leaf in jax.tree.leaves(params))  # not -1: a leaf may be empty
    return jnp.concatenate(
        [leaf.reshape(rows, size) for leaf, size in zip(jax.tree.leaves(columns), sizes, strict=True)], axis=1
    )
