"""Figures that more than one chapter draws: functions on the plane, and networks with coloured edges.

Colours are told apart without colour vision, and lines also by dash. Each function draws into axes that it is given.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array, Float, PyTree
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Circle

from symtutor import checks

RESOLVED = {"color": "#0072B2", "linestyle": "-"}
"""Line style of resolved flows."""
FIXED = {"color": "#D55E00", "linestyle": "--"}
"""Line style of fixed flows."""
PREDICTED = {"color": "#444444", "linestyle": ":"}
"""Line style of predictions."""
DIVERGING = "PuOr_r"
"""Colour map of signed values."""


def use_style() -> None:
    """Set matplotlib's defaults to those of the book: constrained layout, no frame, a palette safe for colour blindness."""
    plt.rcParams.update(
        {
            "figure.constrained_layout.use": True,
            "figure.figsize": (7.2, 3.0),
            "figure.dpi": 100,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]),
            "axes.titlesize": 10,
            "axes.labelsize": 10,
            "font.size": 9,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
        }
    )


def plane(
    ax: Axes,
    values: Callable[[Float[Array, "N 2"]], Float[Array, " N"]],
    *,
    limit: float = 2.5,
    scale: float | None = None,
    boundary: bool = True,
    points: int = 121,
):
    """Draw a function on a disc of the plane as colours, with the line where it is 0.

    Args:
        ax: axes to draw into.
        values: function from points ``(N, 2)`` to values ``(N,)``.
        limit: radius of the disc.
        scale: value at the ends of the colour map, which is symmetric about 0. The largest absolute value if None, or 1
            where that is 0.
        boundary: whether to draw the line of value 0.
        points: points a side of the grid.

    Returns:
        The image, for a colour bar.

    Raises:
        ValueError: if limit or scale is not positive, or points is no positive whole number.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> image = plane(plt.subplot(), lambda x: x[:, 0], points=11)
        >>> plt.close()
    """
    checks.check_positive(limit, "limit")
    checks.check_count(points, "points")
    side = np.linspace(-limit, limit, points)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    field = np.array(values(jnp.asarray(grid.reshape(-1, 2)))).reshape(points, points)
    inside = np.linalg.norm(grid, axis=-1) <= limit
    seen = field[inside & np.isfinite(field)]
    norm = _symmetric(seen, scale)
    image = ax.pcolormesh(side, side, field, cmap=DIVERGING, norm=norm, shading="nearest", rasterized=True)
    disc = Circle((0, 0), limit, transform=ax.transData)  # nothing was asked of the function outside
    image.set_clip_path(disc)
    if boundary and seen.min(initial=0) < 0 < seen.max(initial=0):
        ax.contour(side, side, field, levels=[0], colors="black", linewidths=1.5).set_clip_path(disc)
    ax.set(aspect="equal", xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return image


def network_graph(ax: Axes, shares: PyTree, *, scale: float | None = None, inputs: tuple[str, ...] | None = None):
    """Draw a network of `mlp` as a graph: edges are weights, nodes are biases, coloured and sized by signed values.

    Args:
        ax: axes to draw into.
        shares: a list of ``{"W": (out, in), "b": (out,)}``: shares, sensitivities or any value a parameter.
        scale: value at the ends of the colour map. The largest absolute value if None, or 1 where that is 0.
        inputs: names of the inputs.

    Returns:
        The edges, for a colour bar.

    Raises:
        TypeError: if shares are no list of layers.
        ValueError: if there is nothing to draw, scale is not positive, or there are more or fewer names than inputs.

    Example:
        >>> import jax, matplotlib.pyplot as plt, symtutor as st
        >>> edges = network_graph(plt.subplot(), st.mlp((2, 4, 1)).init(jax.random.key(0)))
        >>> plt.close()
    """
    if not isinstance(shares, list | tuple) or not all(
        isinstance(layer, dict) and {"W", "b"} <= set(layer) for layer in shares
    ):
        raise TypeError(
            f"shares is {type(shares).__name__}; expected a list of {{'W': (out, in), 'b': (out,)}}, as of st.mlp."
        )
    shares = jax.tree.map(np.asarray, shares)
    if not shares:
        raise ValueError("shares is an empty list; expected at least one layer.")
    sizes = [shares[0]["W"].shape[1]] + [layer["W"].shape[0] for layer in shares]
    if inputs is not None and len(inputs) != sizes[0]:
        raise ValueError(f"inputs has {len(inputs)} names; expected {sizes[0]}, a name an input.")
    height = [np.linspace(0.5, -0.5, size) if size > 1 else np.zeros(1) for size in sizes]
    height[0] = height[0] * 0.4  # few inputs: not at the very ends
    values = np.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(shares)])
    norm = _symmetric(values[np.isfinite(values)], scale)
    scale = norm.vmax

    segments, values = [], []
    for i, layer in enumerate(shares):
        for (out, source), value in np.ndenumerate(layer["W"]):
            segments.append([(i, height[i][source]), (i + 1, height[i + 1][out])])
            values.append(value)
    values = np.array(values)
    order = np.argsort(np.abs(values))  # the strongest on top
    strength = np.clip(np.abs(values[order]) / scale, 0, 1)
    ax.add_collection(LineCollection([segments[j] for j in order], colors="0.75", linewidths=0.2, zorder=1))
    edges = LineCollection(
        [segments[j] for j in order],
        array=values[order],
        cmap=DIVERGING,
        norm=norm,
        linewidths=0.2 + 3.5 * strength,
        alpha=np.where(strength > 0.02, 1.0, 0.0),
        zorder=2,
    )
    ax.add_collection(edges)
    ax.scatter(np.zeros(sizes[0]), height[0], s=30, color="black", zorder=3)
    for i, layer in enumerate(shares):
        b = layer["b"]
        sizes_of_nodes = 12 + 90 * np.clip(np.abs(b) / scale, 0, 1)
        ax.scatter(
            np.full(len(b), i + 1), height[i + 1], c=b, cmap=DIVERGING, norm=norm, s=sizes_of_nodes, edgecolors="0.3",
            linewidths=0.6, zorder=3,
        )  # fmt: skip
    for name, y in zip(inputs or (), height[0], strict=inputs is not None):
        ax.annotate(name, (0, y), xytext=(-6, 0), textcoords="offset points", ha="right", va="center")
    ax.set(xlim=(-0.25, len(shares) + 0.15), ylim=(-0.56, 0.56))
    ax.axis("off")
    return edges


def _symmetric(values: np.ndarray, scale: float | None) -> TwoSlopeNorm:
    """Return the norm from -scale to scale, by default the largest absolute value, so that 0 is always neutral."""
    if scale is None:
        scale = float(np.abs(values).max(initial=0)) or 1.0
    checks.check_positive(scale, "scale")
    return TwoSlopeNorm(0, -scale, scale)
