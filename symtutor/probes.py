"""Probes: the points and weights on which functions are compared.

They define the inner product ``<u, v> = sum_j w_j u(x_j) . v(x_j)`` of everything that follows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jaxtyping import Array, Float

from symtutor.checks import check_count, check_fits, check_group, check_haar, check_points, check_positive, check_probes


class Probes(NamedTuple):
    """Points and weights that stand for a distribution of inputs.

    Attributes:
        x: the points, one input each, shape ``(N, ...)``.
        w: their weights, non-negative with sum 1, shape ``(N,)``.

    They are checked where they are used, so that a ``Probes`` can be traced, mapped and sharded.

    Example:
        >>> import jax.numpy as jnp
        >>> probes = Probes(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.array([0.5, 0.5]))
        >>> probes.x.shape
        (2, 2)
    """

    x: Float[Array, "N *input"]
    w: Float[Array, " N"]


def auto_sharded(probes: Probes) -> Probes:
    """Return probes sharded as they are, but on a mesh that leaves the layout of results to the compiler.

    ``jax.make_mesh`` makes explicit axes by default, on which a product of two sharded arrays, such as a Gram matrix, is an
    error until its layout is spelt out.
    """

    def auto(values):
        sharding = None if isinstance(values, jax.core.Tracer) else getattr(values, "sharding", None)
        if not isinstance(sharding, NamedSharding) or AxisType.Explicit not in sharding.mesh.axis_types:
            return values
        names = sharding.mesh.axis_names
        mesh = Mesh(sharding.mesh.devices, names, axis_types=(AxisType.Auto,) * len(names))
        return jax.device_put(values, NamedSharding(mesh, sharding.spec))

    return jax.tree.map(auto, probes)


def polar_probes(radii: int = 12, angles: int = 48, rmax: float = 2.5, offset: float = 0.0) -> Probes:
    """Place probes on a polar grid in the plane: rings of equal area, equispaced angles, equal weights.

    The point of ring ``i`` and angle ``j`` has radius ``rmax sqrt((i + 1/2) / radii)`` and angle
    ``2 pi (j + offset) / angles``. The grid is closed under turns by ``2 pi / angles``, so averages over it commute
    with those turns exactly, and with all turns up to aliasing.

    Args:
        radii: number of rings.
        angles: points a ring. Take it well above the angular detail of the function.
        rmax: radius of the disc that the rings fill.
        offset: fraction of one angular step by which the grid is turned, for held-out probes.

    Returns:
        Probes with ``x`` of shape ``(radii * angles, 2)`` and equal weights.

    Raises:
        ValueError: if a count is not a positive whole number, or rmax is not positive.

    Example:
        >>> polar_probes(radii=3, angles=8).x.shape
        (24, 2)

    Reference: theory.md, P5 and P6.
    """
    check_count(radii, "radii")
    check_count(angles, "angles")
    check_positive(rmax, "rmax")
    if not (-float("inf") < offset < float("inf")):
        raise ValueError(f"offset is {offset}; expected a finite fraction of one angular step.")
    r = rmax * jnp.sqrt((jnp.arange(radii, dtype=float) + 0.5) / radii)
    phi = 2 * jnp.pi * (jnp.arange(angles, dtype=float) + offset) / angles
    x = jnp.stack([jnp.outer(r, jnp.cos(phi)), jnp.outer(r, jnp.sin(phi))], axis=-1).reshape(-1, 2)
    return probes_from_data(x)


def probes_from_data(x: Float[Array, "N *input"], w: Float[Array, " N"] | None = None) -> Probes:
    """Take given inputs as probes, with equal weights unless others are given.

    Data are seldom closed under a group: `lift` then warns with the measured cosine (see `orthogonality`).

    Args:
        x: inputs, shape ``(N, ...)``.
        w: weights, shape ``(N,)``, non-negative with sum 1.

    Returns:
        The probes.

    Raises:
        TypeError: if x or w is no float array.
        ValueError: if there are no points, a value is not finite, or the weights do not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> probes_from_data(jnp.ones((4, 2))).w.tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    check_points(x)
    probes = Probes(x, jnp.full(x.shape[0], 1 / x.shape[0], dtype=x.dtype) if w is None else w)
    check_probes(probes)
    return probes


def orbit_probes(x: Float[Array, "N *input"], group) -> Probes:
    """Close given inputs under a finite set of group elements: all ``g x`` with equal weights.

    With the elements of a finite group, such as ``cyclic(24)``, the probes are closed under it, and averages over them
    commute with its action. It makes probes in any dimension where a polar grid is not at hand.

    Args:
        x: inputs, shape ``(N, ...)``.
        group: a group with elements.

    Returns:
        Probes with ``x`` of shape ``(N * elements, ...)``, the images of one input next to each other.

    Raises:
        TypeError: if x is no float array.
        ValueError: if the group has no elements or does not fit the inputs.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> st.orbit_probes(jnp.array([[1.0, 0.0]]), st.cyclic(4)).x.round(6).tolist()
        [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-0.0, -1.0]]

    Reference: theory.md, P5.
    """
    check_points(x)
    check_group(group)
    check_haar(group)
    check_fits(group, x)
    elements = jnp.asarray(group.elements, dtype=x.dtype)
    images = jax.vmap(lambda point: jax.vmap(lambda g: jnp.tensordot(g, point, 1))(elements))(x)
    return probes_from_data(images.reshape(-1, *x.shape[1:]))


def inner_product(u: Float[Array, "N *k"], v: Float[Array, "N *k"], w: Float[Array, " N"]) -> Float[Array, ""]:
    """Return ``<u, v> = sum_j w_j u_j . v_j`` of two functions given by their values on probes.

    Args:
        u: values, shape ``(N,)`` or ``(N, k)``.
        v: values of the same shape.
        w: weights of the probes, shape ``(N,)``.

    Returns:
        The inner product, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(inner_product(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]), jnp.array([0.5, 0.5])))
        2.0
    """
    return jnp.dot(w, (u * v).reshape(w.shape[0], -1).sum(axis=1))  # (N,) . (N,) -> ()


def function_norm(u: Float[Array, "N *k"], w: Float[Array, " N"]) -> Float[Array, ""]:
    """Return ``norm(u) = sqrt(<u, u>)`` in L2 of the probe distribution.

    Args:
        u: values, shape ``(N,)`` or ``(N, k)``.
        w: weights of the probes, shape ``(N,)``.

    Returns:
        The norm, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(function_norm(jnp.array([3.0, 4.0]), jnp.array([0.0, 1.0])))
        4.0
    """
    return jnp.sqrt(inner_product(u, u, w))
