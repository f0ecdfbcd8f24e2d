"""Attribution: which parameters carry a lift.

``a_i = c_i <J_i, eta> / norm(eta)^2`` is the share of parameter i in what the lift explains of the tangent.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from symtutor import checks
from symtutor.lifting import Lift
from symtutor.probes import Probes, inner_product


class Attribution(NamedTuple):
    """Shares of a lift; see `attribute`.

    Attributes:
        shares: signed shares, a pytree like params; they add up to ``explained``.
        explained: ``<J c, eta> / norm(eta)^2``, shape ``()``.
    """

    shares: PyTree
    explained: Float[Array, ""]

    def by_layer(self) -> dict[str, Float[Array, ""]]:
        """Return the sum of shares under each top-level key of params (``"0"``, ``"1"``, ... for a list of layers)."""
        totals = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.shares):
            key = _name(path[:1])
            totals[key] = totals.get(key, 0) + leaf.sum()
        return totals

    def by_neuron(self, axis: int = 0) -> dict[str, Float[Array, " neurons"]]:
        """Return, for each group of leaves with one parent, the sum of shares of every neuron.

        A neuron's total runs over its incoming weights and its bias.

        Args:
            axis: the axis of a weight that counts neurons: 0 for weights ``(out, in)``, -1 for ``(in, out)``.

        Returns:
            A dict from the parent's path to totals, shape ``(neurons,)``.

        Raises:
            ValueError: if leaves with one parent count different numbers of neurons.
        """
        totals = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.shares):
            if leaf.ndim == 0:
                leaf = leaf[None]
            kept = axis % leaf.ndim if leaf.ndim > 1 else 0
            total = leaf.sum(axis=tuple(i for i in range(leaf.ndim) if i != kept))
            key = _name(path[:-1])
            if key in totals and totals[key].shape != total.shape:
                raise ValueError(
                    f"leaves under {key!r} count {totals[key].shape[0]} and {total.shape[0]} neurons along axis {axis}; "
                    "expected one number (axis=-1 for weights of shape (in, out))."
                )
            totals[key] = totals.get(key, 0) + total
        return totals

    def top(self, k: int = 10) -> list[tuple[str, tuple[int, ...], float]]:
        """Return the k parameters of largest absolute share, each as (path, index, signed share).

        Args:
            k: how many.

        Returns:
            A list, largest absolute share first; shorter if there are fewer parameters.

        Raises:
            ValueError: if k is not a positive whole number.
        """
        checks.check_count(k, "k")
        entries = [
            (_name(path), tuple(int(i) for i in np.unravel_index(j, leaf.shape)), float(leaf.reshape(-1)[j]))
            for path, leaf in jax.tree_util.tree_leaves_with_path(jax.tree.map(np.asarray, self.shares))
            for j in np.argsort(-np.abs(leaf).reshape(-1), kind="stable")[:k]
        ]
        return sorted(entries, key=lambda entry: -abs(entry[2]))[:k]


def attribute(f: Callable, params: PyTree, probes: Probes, tangent: Callable, c: Lift) -> Attribution:
    """Share out what a lift explains of its tangent among the parameters.

    ``a_i = c_i <J_i, eta> / norm(eta)^2``. The shares add up to ``<J c, eta> / norm(eta)^2``, which is
    ``1 - residual^2 - damping norm(c)^2 / norm(eta)^2``. Shares have signs and cancel. They depend on the ridge, on the
    probes, and on how the parameters are scaled: show them with those.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: the probes of the lift.
        tangent: the tangent that was lifted.
        c: its `lift`.

    Returns:
        Shares and their sum.

    Raises:
        TypeError: if c is no Lift, or as `lift`.
        ValueError: if c's direction does not fit params, or as `lift`.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, w, probes, eta = lambda w, x: jnp.dot(w, x), jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2())
        >>> att = st.attribute(f, w, probes, eta, st.lift(f, w, probes, eta, ridge=1e-3))
        >>> (att.shares.round(4) + 0.0).tolist()      # turning w = (1, 0) moves its second component alone
        [0.0, 1.0]

    Reference: theory.md, P12.
    """
    if not isinstance(c, Lift):
        raise TypeError(f"c is {type(c).__name__}; expected the Lift that st.lift returned.")
    checks.check_params(params)
    checks.check_probes(probes)
    checks.check_tangent(tangent, f, params, probes.x)
    for (path, leaf), (other_path, part) in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree_util.tree_leaves_with_path(c.direction), strict=False
    ):
        if path != other_path or leaf.shape != part.shape:
            raise ValueError(
                f"c.direction has a leaf of shape {part.shape} at {jax.tree_util.keystr(other_path)}; "
                f"expected {leaf.shape} at {jax.tree_util.keystr(path)}, as in params."
            )
    if jax.tree.structure(params) != jax.tree.structure(c.direction):
        raise ValueError("c.direction has another tree structure than params; expected a lift at these params.")
    return _attribute(f, params, probes, tangent, c.direction)


@eqx.filter_jit
def _attribute(f, params, probes, tangent, direction):
    eta = tangent(f, params, probes.x)
    square = inner_product(eta, eta, probes.w)
    _, pull_back = jax.vjp(lambda p: jax.vmap(f, (None, 0))(p, probes.x), params)
    weights = probes.w.reshape(probes.w.shape + (1,) * (eta.ndim - 1))
    (correlation,) = pull_back(eta * weights)  # <J_i, eta> for every i, by one reverse pass
    scale = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)
    shares = jax.tree.map(lambda ci, ji: ci * ji * scale, direction, correlation)
    return Attribution(shares, sum(leaf.sum() for leaf in jax.tree.leaves(shares)))


def _name(path) -> str:
    parts = (getattr(p, "key", getattr(p, "idx", getattr(p, "name", p))) for p in path)
    return ".".join(str(part) for part in parts)
