"""Groups that act linearly on inputs and, where asked, on outputs.

The action on functions is ``(g.f)(x) = rho_out(g) f(g^-1 x)``. A matrix acts on the first axis of an input, so an
input of shape ``(d,)`` is turned, and one of shape ``(d, m)`` has its m columns turned together.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from symtutor.checks import Number, check_count, check_has_generator, check_time

Matrix = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """A matrix group: its generators, and the elements and weights of its Haar average.

    Equal and hashable by value, so that functions compiled for one group serve all that equal it. Lists and arrays are
    taken too, and kept as tuples.

    Attributes:
        name: what messages call it.
        generators: matrices ``xi`` of its one-parameter subgroups ``exp(t xi)``; none for a finite group.
        elements: orthogonal matrices over which the Haar average runs; none where the group is not compact.
        weights: their weights, which sum to 1.
        output: ``"invariant"`` if outputs stay as they are, ``"vector"`` if they turn with the inputs.

    Raises:
        TypeError: if generators, elements or weights are not of numbers.
        ValueError: if matrices differ in size or are not finite, elements are not orthogonal, or weights do not sum to 1.

    Example:
        >>> so2() == so2(), so2().dimension, len(so2(nodes=8).elements)
        (True, 2, 8)

    Reference: theory.md, Notation.
    """

    name: str
    generators: tuple[Matrix, ...] = dataclasses.field(default=(), repr=False)
    elements: tuple[Matrix, ...] = dataclasses.field(default=(), repr=False)
    weights: tuple[float, ...] = dataclasses.field(default=(), repr=False)
    output: Literal["invariant", "vector"] = "invariant"

    def __post_init__(self):  # noqa: D105
        try:
            for name in ("generators", "elements"):
                object.__setattr__(self, name, _tuples(getattr(self, name)))
            object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
            shapes = {np.shape(matrix) for matrix in self.generators + self.elements}
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"group {self.name}: generators, elements or weights are not of numbers ({error}); "
                "expected tuples of square matrices, and of numbers."
            ) from error
        if len(shapes) != 1 or any(len(shape) != 2 or shape[0] != shape[1] for shape in shapes):
            raise ValueError(
                f"group {self.name}: generators and elements have shapes {sorted(shapes)}; "
                "expected square matrices of one size, at least one."
            )
        if not np.isfinite(self.generators + self.elements).all():
            raise ValueError(f"group {self.name}: a matrix is not finite; expected finite generators and elements.")
        if self.output not in ("invariant", "vector"):
            raise ValueError(f"output is {self.output!r}; expected 'invariant' or 'vector'.")
        if len(self.weights) != len(self.elements):
            raise ValueError(
                f"group {self.name} has {len(self.elements)} elements and {len(self.weights)} weights; "
                "expected a weight an element."
            )
        if self.elements:
            g = np.asarray(self.elements)
            error = np.abs(g @ g.swapaxes(1, 2) - np.eye(self.dimension)).max()
            if error > 1e-9:
                raise ValueError(
                    f"group {self.name}: an element is off orthogonality by {error:.2g}; expected g g^T = 1."
                )
            if not abs(sum(self.weights) - 1) <= 1e-9 or min(self.weights) < 0:
                raise ValueError(
                    f"group {self.name}: weights sum to {sum(self.weights):.6g} (least "
                    f"{min(self.weights):.3g}); expected non-negative weights with sum 1."
                )

    @property
    def dimension(self) -> int:
        """Size d of the matrices."""
        return len((self.generators + self.elements)[0])

    def subgroup(self, t: Number, generator: int = 0) -> Float[Array, "d d"]:
        """Return ``exp(t xi)``, the element of a one-parameter subgroup at parameter t.

        Args:
            t: the parameter (an angle, for rotations).
            generator: which generator ``xi``.

        Returns:
            The matrix, shape ``(d, d)``.

        Raises:
            TypeError: if t is no number.
            ValueError: if t is not one finite number, or there is no such generator.
        """
        check_has_generator(self, generator)
        check_time(t)
        return jax.scipy.linalg.expm(jnp.asarray(t, float) * jnp.asarray(self.generators[generator]))


def so2(nodes: int = 64, output: str = "invariant") -> Group:
    """Return the rotations of the plane, averaged over ``nodes`` equispaced angles.

    Generator 0 is ``xi = [[0, -1], [1, 0]]``, a counter-clockwise turn. The average removes angular modes exactly
    but for multiples of ``nodes``.

    Args:
        nodes: angles of the Haar average.
        output: ``"invariant"`` or ``"vector"`` (an output in the plane that turns with the input).

    Returns:
        The group.

    Raises:
        ValueError: if nodes is not a positive whole number, or output is neither of the two.

    Example:
        >>> so2().generators[0]
        ((0.0, -1.0), (1.0, 0.0))
    """
    check_count(nodes, "nodes")
    turns = cyclic(nodes).elements
    return Group("so2", (((0.0, -1.0), (1.0, 0.0)),), turns, (1 / nodes,) * nodes, output)


def cyclic(n: int, output: str = "invariant") -> Group:
    """Return the n turns of the plane by multiples of ``2 pi / n``.

    Args:
        n: order of the group.
        output: ``"invariant"`` or ``"vector"``.

    Returns:
        The group, without generators.

    Raises:
        ValueError: if n is not a positive whole number.

    Example:
        >>> len(cyclic(4).elements), cyclic(4).generators
        (4, ())
    """
    check_count(n, "n")
    phi = 2 * np.pi * np.arange(n) / n
    turns = np.stack([np.cos(phi), -np.sin(phi), np.sin(phi), np.cos(phi)], axis=-1).reshape(n, 2, 2)
    return Group(f"cyclic({n})", (), _tuples(turns), (1 / n,) * n, output)


def reflection(dimension: int = 2, output: str = "invariant") -> Group:
    """Return the group of two elements, identity and the flip of coordinate 0.

    Args:
        dimension: size of the inputs.
        output: ``"invariant"`` or ``"vector"``.

    Returns:
        The group, without generators.

    Raises:
        ValueError: if dimension is not a positive whole number.

    Example:
        >>> reflection().elements[1]
        ((-1.0, 0.0), (0.0, 1.0))
    """
    check_count(dimension, "dimension")
    flip = np.diag([-1.0] + [1.0] * (dimension - 1))
    return Group("reflection", (), _tuples(np.stack([np.eye(dimension), flip])), (0.5, 0.5), output)


def shear() -> Group:
    """Return the shears of the plane along axis 0, a control: no symmetry of the examples, and not compact.

    Returns:
        The group with generator ``[[0, 1], [0, 0]]`` and no Haar average.

    Example:
        >>> shear().elements
        ()
    """
    return Group("shear", (((0.0, 1.0), (0.0, 0.0)),))


def dilation(dimension: int = 2) -> Group:
    """Return the dilations, a control: no symmetry of the examples, and not compact.

    Args:
        dimension: size of the inputs.

    Returns:
        The group with the identity as generator and no Haar average.

    Raises:
        ValueError: if dimension is not a positive whole number.

    Example:
        >>> dilation().generators[0]
        ((1.0, 0.0), (0.0, 1.0))
    """
    check_count(dimension, "dimension")
    return Group("dilation", _tuples(np.eye(dimension)[None]))


def _tuples(matrices) -> tuple[Matrix, ...]:
    # adding 0 turns -0.0 into 0.0, so that equal matrices print alike
    return tuple(tuple(tuple(float(entry) + 0.0 for entry in row) for row in matrix) for matrix in matrices)
