"""Tangents in function space: the motions of the function that a symmetry asks for.

A tangent is any function ``(f, params, x: (N, ...)) -> (N,) or (N, k)`` with values of f's own shape, so a reader can
write one and lift it. The built ones are equal and hashable by value; the anchored one, which holds arrays, is a pytree.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from symtutor.checks import (
    Number,
    check_fits,
    check_generator,
    check_haar,
    check_has_generator,
    check_params,
    check_points,
    check_probes,
    check_vector_output,
    output_shape,
)
from symtutor.groups import Group
from symtutor.probes import Probes, auto_sharded, function_norm, inner_product

POINTS_AT_ONCE = 4096
"""How many turned points a group average evaluates at a time."""


def orbit(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], group: Group, t: Number, generator: int = 0
) -> Float[Array, "N *k"]:
    """Return the function moved along its orbit: ``(exp(t xi).f)(x) = rho_out(exp(t xi)) f(exp(-t xi) x)``.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.
        group: the group that acts.
        t: parameter along the subgroup (an angle in radians, for rotations).
        generator: which generator ``xi``.

    Returns:
        Values, shape ``(N,)`` or ``(N, k)``.

    Raises:
        TypeError: if t is no number.
        ValueError: if t is not one finite number, or the generator does not exist or does not fit the input.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> height = lambda _, x: x[1]                # turned by a quarter, the height looks along -x_0
        >>> turned = orbit(height, jnp.zeros(1), jnp.array([[1.0, 0.0]]), st.so2(), jnp.pi / 2)
        >>> turned.round(6).tolist()
        [-1.0]

    Reference: theory.md, Notation.
    """
    _check(f, params, x, group)
    check_generator(group, generator, x)
    return transform(f, params, x, group.subgroup(t, generator), group.subgroup(-t, generator), group.output)


def equivariant_projection(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], group: Group
) -> Float[Array, "N *k"]:
    """Return ``P_E f``, the average of ``g.f`` over the group, at the points x.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.
        group: a compact group; its elements and weights make the average.

    Returns:
        Values, shape ``(N,)`` or ``(N, k)``.

    Raises:
        ValueError: if the group has no Haar average or does not fit the input.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> square = lambda _, x: x[0] ** 2           # averages to norm(x)^2 / 2
        >>> equivariant_projection(square, jnp.zeros(1), jnp.array([[1.0, 2.0]]), st.so2()).round(6).tolist()
        [2.5]

    Reference: theory.md, P5.
    """
    _check(f, params, x, group)
    check_haar(group)
    return _average(f, params, x, group)


def equivariance_defect(f: Callable, params: PyTree, x: Float[Array, "N *input"], group: Group) -> Float[Array, "N *k"]:
    """Return ``delta = f - P_E f``, the part of f that the group average removes.

    With probes closed under the group, its norm is the distance from f to the equivariant subspace.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        x: inputs, shape ``(N, ...)``.
        group: a compact group.

    Returns:
        Values, shape ``(N,)`` or ``(N, k)``.

    Raises:
        ValueError: as `equivariant_projection`.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> square = lambda _, x: x[0] ** 2
        >>> equivariance_defect(square, jnp.zeros(1), jnp.array([[1.0, 2.0]]), st.so2()).round(6).tolist()
        [-1.5]

    Reference: theory.md, P5.
    """
    return jax.vmap(f, (None, 0))(params, x) - equivariant_projection(f, params, x, group)


@dataclasses.dataclass(frozen=True)
class OrbitTangent:
    """The tangent ``eta`` along the orbit; see `orbit_tangent`.

    Attributes:
        group: the group that acts.
        generator: which generator.
    """

    group: Group
    generator: int = 0

    def __call__(self, f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> Float[Array, "N *k"]:
        """Return ``eta(x)``, shape ``(N,)`` or ``(N, k)``."""
        _check(f, params, x, self.group)
        check_generator(self.group, self.generator, x)
        return _along(f, params, x, self.group, self.generator)


@dataclasses.dataclass(frozen=True)
class SymmetrizingTangent:
    """The tangent ``-delta`` towards the equivariant subspace; see `symmetrizing_tangent`.

    Attributes:
        group: the compact group that averages.
    """

    group: Group

    def __call__(self, f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> Float[Array, "N *k"]:
        """Return ``-delta(x)``, shape ``(N,)`` or ``(N, k)``."""
        return -equivariance_defect(f, params, x, self.group)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AnchoredTangent:
    """The tangent ``P_E f_0 - f_theta`` towards a projection kept from the start; see `anchored_tangent`.

    Attributes:
        params: the parameters of ``f_0``.
        f: the function whose projection is the target.
        group: the compact group that averages.
    """

    params: PyTree
    f: Callable = dataclasses.field(metadata={"static": True})
    group: Group = dataclasses.field(metadata={"static": True})

    def __call__(self, f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> Float[Array, "N *k"]:
        """Return ``P_E f_0(x) - f(params, x)``, shape ``(N,)`` or ``(N, k)``."""
        return equivariant_projection(self.f, self.params, x, self.group) - jax.vmap(f, (None, 0))(params, x)


def orbit_tangent(group: Group, generator: int = 0) -> OrbitTangent:
    """Return the tangent along the orbit, ``eta = d/dt at 0 of exp(t xi).f_theta``.

    For an invariant output ``eta(x) = -grad f(x) . (xi x)``; for a vector output ``xi f(x)`` is added.

    Args:
        group: the group that acts.
        generator: which generator ``xi``.

    Returns:
        A tangent ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.

    Raises:
        ValueError: if the group has no such generator.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f = lambda w, x: jnp.dot(w, x)            # eta(x) = -w . (xi x)
        >>> st.orbit_tangent(st.so2())(f, jnp.array([1.0, 0.0]), jnp.array([[0.0, 1.0]])).tolist()
        [1.0]

    Reference: theory.md, Notation.
    """
    check_has_generator(group, generator)
    return OrbitTangent(group, generator)


def symmetrizing_tangent(group: Group) -> SymmetrizingTangent:
    """Return the tangent ``-delta = P_E f_theta - f_theta``, which points towards the equivariant subspace E.

    Args:
        group: a compact group.

    Returns:
        A tangent ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.

    Raises:
        ValueError: if the group has no Haar average.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f = lambda w, x: jnp.dot(w, x)            # averages to 0, so -delta = -f
        >>> st.symmetrizing_tangent(st.so2())(f, jnp.array([1.0, 0.0]), jnp.array([[2.0, 1.0]])).round(6).tolist()
        [-2.0]

    Reference: theory.md, P8.
    """
    check_haar(group)
    return SymmetrizingTangent(group)


def anchored_tangent(f: Callable, params: PyTree, group: Group) -> AnchoredTangent:
    """Return the tangent ``P_E f_0 - f_theta``, with ``P_E f_0`` frozen at these params.

    To first order its flow is that of `symmetrizing_tangent`, but a drift of the invariant part decays along it
    instead of adding up.

    Args:
        f: function ``f(params, x)`` of one input.
        params: the parameters of ``f_0``.
        group: a compact group.

    Returns:
        A tangent ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``, itself a pytree that holds params.

    Raises:
        TypeError: if params is no pytree of float arrays.
        ValueError: if the group has no Haar average.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, w, x = lambda w, x: jnp.dot(w, x), jnp.array([1.0, 0.0]), jnp.array([[2.0, 1.0]])
        >>> st.anchored_tangent(f, w, st.so2())(f, w, x).round(6).tolist()
        [-2.0]

    Reference: theory.md, P13.
    """
    check_haar(group)
    check_params(params)
    return AnchoredTangent(params, f, group)


def orthogonality(f: Callable, params: PyTree, probes: Probes, group: Group, generator: int = 0) -> Float[Array, ""]:
    """Return the cosine of ``eta`` and ``delta`` on the probes, which is 0 where they are closed under the group.

    A cosine above about 1e-3 says that the probes favour some directions over others, and that the two motions mix.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: points and weights.
        group: a compact group with generators.
        generator: which generator.

    Returns:
        ``<eta, delta> / (norm(eta) norm(delta))``, or 0 where one of them vanishes.

    Raises:
        ValueError: if the group has no generator or no Haar average, or something does not fit.

    Example:
        >>> import jax, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> cosine = st.orthogonality(net.apply, net.init(jax.random.key(0)), st.polar_probes(angles=64), st.so2())
        >>> abs(float(cosine)) < 1e-5
        True

    Reference: theory.md, P6.
    """
    check_probes(probes)
    probes = auto_sharded(probes)
    eta = OrbitTangent(group, generator)(f, params, probes.x)
    delta = equivariance_defect(f, params, probes.x, group)
    norms = function_norm(eta, probes.w) * function_norm(delta, probes.w)
    return jnp.where(norms > 0, inner_product(eta, delta, probes.w) / jnp.where(norms > 0, norms, 1), 0)


def _check(f: Callable, params: PyTree, x: Float[Array, "N *input"], group: Group) -> None:
    check_params(params)
    check_points(x)
    check_fits(group, x)
    check_vector_output(group, output_shape(f, params, x))


@eqx.filter_jit
def _average(f, params, x, group):
    elements = jnp.asarray(group.elements, dtype=x.dtype)
    shape = jax.eval_shape(lambda p, points: jax.vmap(f, (None, 0))(p, points), params, x)
    weights = jnp.asarray(group.weights, dtype=shape.dtype)

    # a few elements at a time: little memory, whatever the number of elements, and large enough products to be quick
    block = max(1, min(len(weights), POINTS_AT_ONCE // x.shape[0]))
    padding = -len(weights) % block  # by the identity with weight 0
    identity = jnp.eye(group.dimension, dtype=x.dtype)
    elements = jnp.concatenate([elements, jnp.broadcast_to(identity, (padding, *identity.shape))])
    weights = jnp.concatenate([weights, jnp.zeros(padding, weights.dtype)])

    def add(total, some):
        g, weight = some
        moved = jax.vmap(lambda g: transform(f, params, x, g, g.T, group.output))(g)  # g^-1 = g^T
        return total + jnp.tensordot(weight, moved, 1), None  # (b,) x (b, N, ...) -> (N, ...)

    blocks = elements.reshape(-1, block, *identity.shape), weights.reshape(-1, block)
    return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), blocks)[0]


@eqx.filter_jit
def _along(f, params, x, group, generator):
    xi = jnp.asarray(group.generators[generator], dtype=x.dtype)

    def one(point):
        value, slope = jax.jvp(lambda q: f(params, q), (point,), (-_apply(xi, point),))
        return slope + _apply(xi, value) if group.output == "vector" else slope

    return jax.vmap(one)(x)


def _apply(matrix: Float[Array, "d d"], value: Float[Array, "d *rest"]) -> Float[Array, "d *rest"]:
    return jnp.tensordot(matrix.astype(value.dtype), value, 1)  # (d, d) x (d, ...) -> (d, ...)


def transform(f, params, x, g, g_inverse, output):
    """Return ``g.f`` at the points x, unchecked."""
    values = jax.vmap(lambda point: f(params, _apply(g_inverse, point)))(x)
    return jax.vmap(lambda value: _apply(g, value))(values) if output == "vector" else values
