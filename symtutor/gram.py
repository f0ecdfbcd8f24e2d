"""The Gram matrix ``K = J J^T`` of any function, without its Jacobian: you can use the library and never read this file.

The gradient of one output by the weight of a dense layer is an outer product: of what enters the layer and of what comes
back to it. Over two probes the inner product of two such gradients is a product of two short inner products, so the
layer's part of K costs ``P^2 (d_in + d_out)`` and not ``P^2 d_in d_out``.

Nothing here looks for layers. The program of the *gradient* at one probe is run by a small interpreter that leaves an outer
product unmultiplied (an `Outer`), carries it through the linear operations that it knows, and multiplies it out where any
other operation asks for it. So every function is treated rightly, and those made of dense layers are treated quickly.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, Float, PyTree

DENSE_BYTES = 2**30
"""Rows that are not factored are held at once up to this size."""
CALLS = ("jit", "pjit", "remat2", "closed_call")
"""Operations that run a program of their own, which is entered. Of jax before 0.7: pjit."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Outer:
    """``sum_r left[r] (x) right[r]``: an array of shape ``left.shape[1:] + right.shape[1:]`` that is not multiplied out."""

    left: Array
    right: Array

    @property
    def rank(self) -> int:
        """How many outer products are summed."""
        return self.left.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that it stands for."""
        return self.left.shape[1:] + self.right.shape[1:]

    @property
    def dtype(self):
        """Precision of the array that it stands for."""
        return self.left.dtype

    def astype(self, dtype) -> "Outer":
        """Return the factors in another precision."""
        return Outer(self.left.astype(dtype), self.right.astype(dtype))

    def map(self, left=lambda a: a, right=lambda a: a) -> "Outer":
        """Return the factors changed, each by a function of its own."""
        return Outer(left(self.left), right(self.right))


class LeafPlan(NamedTuple):
    """How the Gram matrix treats one leaf of params; see `plan`.

    Attributes:
        factored: whether its gradient stays an outer product.
        rank: of how many outer products; 0 if it does not.
        size: numbers in the leaf.
        stored: numbers kept a probe and output.
    """

    factored: bool
    rank: int
    size: int
    stored: int


def rows(f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> list[Outer | Array]:
    """Return the rows of the Jacobian, leaf by leaf: an `Outer` where that is shorter, else the gradients themselves.

    Args:
        f: function ``f(params, x)`` of one input, with an output of shape ``()`` or ``(k,)``.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.

    Returns:
        One entry a leaf: arrays ``(N k, *leaf)``, or an `Outer` of factors ``(N k, r, ...)``.
    """
    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    out = jax.eval_shape(f, params, one)
    units = jnp.eye(out.size, dtype=out.dtype).reshape(out.size, *out.shape)

    def gradient(params, point, cotangent):
        return jax.tree.leaves(jax.vjp(lambda p: f(p, point), params)[1](cotangent)[0])

    program = jax.make_jaxpr(gradient)(params, one, jax.ShapeDtypeStruct(out.shape, out.dtype))

    def at(point, cotangent):
        return evaluate(program.jaxpr, program.consts, [*jax.tree.leaves(params), point, cotangent])

    batched = jax.vmap(jax.vmap(at, (None, 0)), (0, None))(x, units)
    return jax.tree.map(lambda leaf: leaf.reshape(x.shape[0] * out.size, *leaf.shape[2:]), batched)  # (N, k, ...)


@eqx.filter_jit
def gram(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], *, chunk_size: int | None = None
) -> Float[Array, "P P"]:
    """Return ``K = J J^T``, with P = N k rows for N inputs and k outputs, without building J.

    ``K = sum over leaves of sum_rs (A_r A_s^T) * (B_r B_s^T)`` (elementwise) for leaves whose gradient is
    ``sum_r A_r (x) B_r``, and ``G G^T`` for the others.

    Args:
        f: function ``f(params, x)`` of one input, with an output of shape ``()`` or ``(k,)``.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.
        chunk_size: how many inputs at a time where gradients are not factored; a chunk's gradients are taken once for
            every chunk before it, so small ones cost time, and K can then not be differentiated in reverse. If None, all at
            once up to `DENSE_BYTES`, then as many as that allows. Factors are held for all inputs.

    Returns:
        The matrix, shape ``(P, P)``; rows run over inputs, then outputs.

    Example:
        >>> import jax.numpy as jnp
        >>> gram(lambda w, x: jnp.dot(w, x), jnp.zeros(2), jnp.array([[3.0, 4.0], [1.0, 0.0]])).tolist()
        [[25.0, 3.0], [3.0, 1.0]]

    Reference: theory.md, Numerics; Novak, Sohl-Dickstein and Schoenholz (2022), for neural tangent kernels.
    """
    leaves = rows(f, params, x)
    dtype = jnp.result_type(*(leaf.dtype for leaf in leaves))
    K = sum(_outer_gram(leaf, dtype) for leaf in leaves if isinstance(leaf, Outer))
    dense = [_flat(leaf) for leaf in leaves if not isinstance(leaf, Outer)]
    if not dense:
        return K
    if chunk_size is None:
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in dense)
        chunk_size = x.shape[0] if size <= DENSE_BYTES else max(1, x.shape[0] * DENSE_BYTES // size)
    if chunk_size >= x.shape[0]:
        G = jnp.concatenate(dense, axis=1)
        return K + G @ G.T  # (P, m) x (m, P) -> (P, P)
    return K + _dense_gram(f, params, x, chunk_size)


def plan(f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> dict[str, LeafPlan]:
    """Tell for each leaf of params whether `gram` keeps its gradient factored: why a lift is fast, or is not.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``. Nothing is computed.

    Returns:
        A dict from the leaf's path to its plan.

    Example:
        >>> import jax, jax.numpy as jnp, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> for name, leaf in plan(net.apply, net.init(jax.random.key(0)), jnp.zeros((1, 2))).items():
        ...     print(name, leaf)
        0.W LeafPlan(factored=True, rank=1, size=16, stored=10)
        0.b LeafPlan(factored=False, rank=0, size=8, stored=8)
        1.W LeafPlan(factored=False, rank=0, size=8, stored=8)
        1.b LeafPlan(factored=False, rank=0, size=1, stored=1)
    """
    leaves = jax.eval_shape(
        lambda p, points: rows(f, p, points), params, jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    )
    plans = {}
    for (path, leaf), row in zip(jax.tree_util.tree_leaves_with_path(params), leaves, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if isinstance(row, Outer):
            stored = math.prod(row.left.shape[1:]) + math.prod(row.right.shape[1:])
            plans[name] = LeafPlan(True, row.left.shape[1], leaf.size, stored)
        else:
            plans[name] = LeafPlan(False, 0, leaf.size, leaf.size)
    return plans


def _flat(leaf):
    return leaf.reshape(leaf.shape[0], math.prod(leaf.shape[1:]))  # not -1: a leaf may be empty


def _outer_gram(leaf: Outer, dtype) -> Float[Array, "P P"]:
    wide = leaf.astype(dtype)
    A, B = (factor.reshape(*factor.shape[:2], -1) for factor in (wide.left, wide.right))  # (P, r, a), (P, r, b)
    rank = A.shape[1]
    if rank == 1:
        return (A[:, 0] @ A[:, 0].T) * (B[:, 0] @ B[:, 0].T)

    def add(pair, K):
        r, s = pair // rank, pair % rank
        return K + (A[:, r] @ A[:, s].T) * (B[:, r] @ B[:, s].T)

    return jax.lax.fori_loop(0, rank**2, add, jnp.zeros((A.shape[0],) * 2, A.dtype))


def _dense_gram(f, params, x, chunk_size):
    """Return the part of K of the leaves that are not factored, block by block, those above the diagonal mirrored."""
    padded = -(-x.shape[0] // chunk_size) * chunk_size
    # padding repeats a point, so that nothing new can fail there; its rows are cut off
    parts = jnp.concatenate([x, jnp.broadcast_to(x[:1], (padded - x.shape[0], *x.shape[1:]))])
    parts = parts.reshape(-1, chunk_size, *x.shape[1:])
    count = len(parts)

    def dense_rows(points):
        return jnp.concatenate([_flat(leaf) for leaf in rows(f, params, points) if not isinstance(leaf, Outer)], axis=1)

    one = jax.eval_shape(dense_rows, parts[0])
    size, dtype = one.shape[0], one.dtype  # rows a chunk

    def strip(i, K):
        G = dense_rows(parts[i])

        def block(j, K):
            part = G @ dense_rows(parts[j]).T
            K = jax.lax.dynamic_update_slice(K, part, (i * size, j * size))
            return jax.lax.dynamic_update_slice(K, part.T, (j * size, i * size))

        return jax.lax.fori_loop(i, count, block, K)

    K = jax.lax.fori_loop(0, count, strip, jnp.zeros((count * size,) * 2, dtype))
    kept = x.shape[0] * (size // chunk_size)
    return K[:kept, :kept]


# The interpreter ----------------------------------------------------------------------------------------------------


def evaluate(jaxpr: Jaxpr, consts: list, args: list) -> list[Outer | Array]:
    """Run a program, keeping outer products unmultiplied as long as the operations allow."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(var):
        return var.val if isinstance(var, Literal) else env[var]

    for eqn in jaxpr.eqns:
        values = [read(var) for var in eqn.invars]
        name = eqn.primitive.name
        if name in CALLS:
            inner = eqn.params["call_jaxpr" if name == "closed_call" else "jaxpr"]
            inner, inner_consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, [])
            results = evaluate(inner, inner_consts, values)
        else:
            kept = _dot(eqn, *values) if name == "dot_general" else _linear(name, eqn, values)
            results = [kept] if kept is not None else _multiplied_out(jaxpr, eqn, values)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _multiplied_out(jaxpr, eqn, values):
    """Run one operation on plain arrays, as a program of one line: that works for every operation and every jax."""
    places = {var: value for var, value in zip(eqn.invars, values, strict=True) if not isinstance(var, Literal)}
    line = jaxpr.replace(constvars=[], invars=list(places), outvars=eqn.outvars, eqns=[eqn], effects=eqn.effects)
    return jaxpr_as_fun(ClosedJaxpr(line, []))(*(_dense(value) for value in places.values()))


def _dense(value):
    return jnp.tensordot(value.left, value.right, ((0,), (0,))) if isinstance(value, Outer) else value


def _if_shorter(outer: Outer):
    """Return an outer product if it is shorter than what it stands for, else that."""
    a, b = (math.prod(factor.shape[1:]) for factor in (outer.left, outer.right))
    return outer if outer.rank * (a + b) < a * b else _dense(outer)


def _dot(eqn, lhs, rhs):
    """Leave ``dot_general`` undone where its result is an outer product, or one factor of it takes the other operand in."""
    (contract_l, contract_r), batch = eqn.params["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype  # may be asked to be wider than the operands
    if any(batch) or not (_holds(dtype, lhs.dtype) and _holds(dtype, rhs.dtype)):
        return None
    lhs, rhs = lhs.astype(dtype), rhs.astype(dtype)
    if not isinstance(lhs, Outer) and not isinstance(rhs, Outer):
        r = math.prod(lhs.shape[i] for i in contract_l)
        a, b = math.prod(lhs.shape) // max(r, 1), math.prod(rhs.shape) // max(r, 1)
        if r * (a + b) >= a * b:
            return None
        return Outer(_factor(lhs, contract_l, r), _factor(rhs, contract_r, r))
    if isinstance(lhs, Outer) and isinstance(rhs, Outer):
        return None
    first = isinstance(lhs, Outer)
    outer, other = (lhs, rhs) if first else (rhs, lhs)
    own, its = (contract_l, contract_r) if first else (contract_r, contract_l)
    split = outer.left.ndim - 1
    if all(i >= split for i in own):  # the right factor takes it in
        right = jnp.tensordot(outer.right, other, (tuple(i - split + 1 for i in own), its))
        if first:  # axes: left, what is left of right, other
            return _if_shorter(Outer(outer.left, right))
        if outer.right.ndim - 1 == len(own):  # axes: other, left
            return _if_shorter(Outer(right, outer.left))
    elif all(i < split for i in own):
        left = jnp.tensordot(outer.left, other, (tuple(i + 1 for i in own), its))
        kept = split - len(own)
        if first and kept == 0:  # axes: right, other
            return _if_shorter(Outer(outer.right, left))
        if not first:  # axes: other, what is left of left, right
            axes = (0, *range(1 + kept, left.ndim), *range(1, 1 + kept))
            return _if_shorter(Outer(left.transpose(axes), outer.right))
    return None


def _holds(wide, narrow) -> bool:
    """Tell whether every number of one precision is one of the other, so that factors may be cast instead of products."""
    floating = jnp.issubdtype(wide, jnp.floating) and jnp.issubdtype(narrow, jnp.floating)
    return floating and jnp.promote_types(wide, narrow) == wide


def _factor(value, contracted, r):
    free = [i for i in range(value.ndim) if i not in contracted]
    return value.transpose(*contracted, *free).reshape(r, *(value.shape[i] for i in free))


def _linear(name, eqn, values):
    """Carry outer products through an operation that acts on one factor alone; None if it does not."""
    outers = [value for value in values if isinstance(value, Outer)]
    if not outers:
        return None
    outer = outers[0]
    if name in ("add_any", "add") and len(outers) == 2:
        other = outers[1]
        if outer.left.shape[1:] == other.left.shape[1:] and outer.right.shape[1:] == other.right.shape[1:]:
            both = (jnp.concatenate(pair) for pair in ((outer.left, other.left), (outer.right, other.right)))
            return _if_shorter(Outer(*both))
        return None
    if len(outers) > 1:
        return None
    if name == "neg":
        return outer.map(left=jnp.negative)
    if name in ("mul", "div"):
        scalar = values[1] if isinstance(values[0], Outer) else values[0]
        if jnp.ndim(scalar) == 0 and (name == "mul" or isinstance(values[0], Outer)):
            return outer.map(left=lambda a: a * scalar if name == "mul" else a / scalar)
        return None
    if name == "convert_element_type":
        dtype = eqn.params["new_dtype"]
        return outer.astype(dtype) if _holds(dtype, outer.dtype) else None
    if name == "transpose":
        return _transposed(outer, eqn.params["permutation"])
    if name in ("reshape", "squeeze", "broadcast_in_dim") and eqn.params.get("dimensions") is None:
        return _reshaped(outer, eqn.outvars[0].aval.shape)
    return None


def _transposed(outer, permutation):
    split = outer.left.ndim - 1
    sides = [i >= split for i in permutation]
    left = (0, *(i + 1 for i in permutation if i < split))
    right = (0, *(i - split + 1 for i in permutation if i >= split))
    turned = outer.map(lambda a: a.transpose(left), lambda b: b.transpose(right))
    if sides == sorted(sides):
        return turned
    return Outer(turned.right, turned.left) if sides == sorted(sides, reverse=True) else None


def _reshaped(outer, shape):
    size = math.prod(outer.left.shape[1:])
    if math.prod(shape) != math.prod(outer.shape):  # broadcast to more
        return None
    for split in range(len(shape) + 1):
        if math.prod(shape[:split]) == size:
            left, right = (outer.rank, *shape[:split]), (outer.rank, *shape[split:])
            return Outer(outer.left.reshape(left), outer.right.reshape(right))
    return None
