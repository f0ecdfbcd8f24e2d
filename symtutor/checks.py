"""What the library refuses, and the sentences it says then.

Shapes and types are checked always. Values are checked where they are concrete, that is outside ``jax.jit``.
Every message names the argument, what was seen and what was expected.
"""

import math
import operator
from collections.abc import Callable
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

Number = float | int | Float[Array, ""]
"""A Python number or an array of shape (), which ``jax.jit`` may trace."""


def is_concrete(*trees: PyTree) -> bool:
    """Tell whether all leaves hold values, rather than being traced by ``jax.jit`` or ``jax.vmap``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def check_count(count: int, argument: str, expected: str = "a positive whole number") -> None:
    """Refuse what is no positive ``int``; a bool is none."""
    if type(count) is not int or count < 1:
        raise ValueError(f"{argument} is {count!r}; expected {expected}.")


def whole(value) -> int | None:
    """Return a whole number of Python, NumPy or JAX as an ``int``, and None for anything else; a bool is none."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def check_positive(value: Number, argument: str) -> None:
    """Refuse what is no positive finite number."""
    _check_number(value, argument, "a positive finite number")
    if is_concrete(value) and not 0 < value < math.inf:
        raise ValueError(f"{argument} is {value}; expected a positive finite number.")


def check_params(params: PyTree, argument: str = "params") -> None:
    """Refuse a tree that is empty, holds a leaf that is no float array, or holds a value that is not finite."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    if not leaves:
        raise ValueError(f"{argument} has no leaves; expected a pytree of float arrays.")
    for path, leaf in leaves:
        name = argument + jax.tree_util.keystr(path)
        if not isinstance(leaf, jax.Array | np.ndarray) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            seen = getattr(leaf, "dtype", type(leaf).__name__)
            raise TypeError(f"{name} is {seen}; expected a float array (keep other leaves out of {argument}).")
        if is_concrete(leaf) and not np.isfinite(leaf).all():
            raise ValueError(f"{name} holds {_first_bad(leaf)}; expected finite values.")


def check_points(x: Float[Array, "N *input"], argument: str = "x") -> None:
    """Refuse points that are no float array with a leading axis, are none at all, or are not finite."""
    if not isinstance(x, jax.Array | np.ndarray):
        raise TypeError(f"{argument} is {type(x).__name__}; expected a float array of shape (N, ...).")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{argument} has dtype {x.dtype}; expected floats.")
    if x.ndim == 0 or x.shape[0] == 0:
        raise ValueError(f"{argument} has shape {x.shape}; expected (N, ...) with at least one point.")
    if is_concrete(x) and not np.isfinite(x).all():
        raise ValueError(f"{argument} holds {_first_bad(x)}; expected finite values.")


def check_probes(probes, argument: str = "probes") -> None:
    """Refuse probes whose points or weights are unusable: weights are non-negative and sum to 1."""
    if not (hasattr(probes, "x") and hasattr(probes, "w")):
        raise TypeError(f"{argument} is {type(probes).__name__}; expected Probes(x, w), as from polar_probes.")
    check_points(probes.x, f"{argument}.x")
    check_points(probes.w, f"{argument}.w")
    if probes.w.shape != probes.x.shape[:1]:
        raise ValueError(f"{argument}.w has shape {probes.w.shape}; expected {probes.x.shape[:1]}, a weight a point.")
    if is_concrete(probes.w):
        weights = np.asarray(probes.w)
        if weights.min() < 0:
            raise ValueError(f"{argument}.w has the negative weight {weights.min():.3g}; expected none below 0.")
        tolerance = 10 * math.sqrt(len(weights)) * jnp.finfo(weights.dtype).eps
        if abs(weights.sum() - 1) > tolerance:
            raise ValueError(f"{argument}.w sums to {weights.sum():.6g}; expected 1.")


def output_shape(f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> tuple[int, ...]:
    """Return the shape of ``f(params, one input)``, refusing an ``f`` that is no function of one input."""
    if not callable(f):
        raise TypeError(f"f is {type(f).__name__}; expected a function f(params, x) of one input, like net.apply.")
    if not isinstance(f, eqx.Module):  # compiled for f itself, so f is a key; a module's arrays are traced instead
        try:
            hash(f)
        except TypeError as error:
            raise TypeError(
                f"f is a {type(f).__name__}, which cannot be hashed; expected a function, a method or a frozen dataclass."
            ) from error
    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    try:
        out = _shape_of(f, (), params, one)
    except Exception as error:
        raise ValueError(
            f"f(params, x) fails on one input of shape {one.shape}: {error}\n"
            "Expected f to map one input to one output; the library batches it over the probes itself."
        ) from error
    if not isinstance(out, jax.ShapeDtypeStruct) or not jnp.issubdtype(out.dtype, jnp.floating):
        seen = getattr(out, "dtype", type(out).__name__)
        raise TypeError(f"f(params, x) returns {seen}; expected one float array of shape () or (k,).")
    if out.ndim > 1 or out.size == 0:
        raise ValueError(
            f"f(params, x) returns shape {out.shape} for one input of shape {one.shape}; expected () or (k,). "
            "If f is batched already, pass the function of one input."
        )
    return out.shape


def _shape_of(call, fixed, *args):
    """Return what ``call(*fixed, *args)`` would look like; remembered, since tracing takes a tenth of a small lift's time."""
    leaves, tree = jax.tree.flatten(args)
    described = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    try:
        hash((call, fixed, tree))
    except TypeError:  # a module, or a tangent that holds arrays
        return jax.eval_shape(partial(call, *fixed), *args)
    return _remembered_shape(call, fixed, tree, described, jax.config.jax_enable_x64)


@lru_cache(maxsize=64)
def _remembered_shape(call, fixed, tree, described, wide):
    args = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in described])
    return jax.eval_shape(partial(call, *fixed), *args)


def check_tangent(tangent: Callable, f: Callable, params: PyTree, x: Float[Array, "N *input"]) -> None:
    """Refuse a tangent whose values do not have the shape of f's."""
    if not callable(tangent):
        raise TypeError(f"tangent is {type(tangent).__name__}; expected a function (f, params, x) -> (N,) or (N, k).")
    expected = x.shape[:1] + output_shape(f, params, x)
    try:
        seen = _shape_of(tangent, (f,), params, x)
    except Exception as error:
        if hasattr(tangent, "group"):  # the built tangents say themselves what is wrong
            raise
        raise ValueError(
            f"tangent(f, params, x) fails on x of shape {x.shape}: {error}\n"
            f"Expected a function of all points at once, with values of shape {expected}."
        ) from error
    if getattr(seen, "shape", None) != expected:
        raise ValueError(
            f"tangent(f, params, x) has shape {getattr(seen, 'shape', type(seen).__name__)}; expected {expected}, f's own."
        )


def check_heldout(probes, heldout, argument: str = "heldout") -> None:
    """Refuse held-out probes of another shape than the probes', or with points among them."""
    check_probes(heldout, argument)
    if heldout.x.shape[1:] != probes.x.shape[1:]:
        raise ValueError(f"{argument}.x holds inputs of shape {heldout.x.shape[1:]}; expected {probes.x.shape[1:]}.")
    if is_concrete(probes.x, heldout.x):
        from scipy.spatial import cKDTree  # a quarter of a second to import, needed only here

        points, others = (np.asarray(p.x, float).reshape(p.x.shape[0], -1) for p in (probes, heldout))
        distance, index = cKDTree(points).query(others)
        shared = distance <= 1e-6 * np.abs(points).max()
        if shared.any():
            first = int(np.argmax(shared))
            raise ValueError(
                f"{argument} shares {shared.sum()} of its {len(others)} points with probes (the first is number {first}, "
                f"probe {index[first]}); expected points that the solve does not use."
            )


def check_ridge(ridge: Number, argument: str = "ridge") -> None:
    """Refuse a ridge that is negative or not a finite number."""
    _check_number(ridge, argument, "a finite number of at least 0")
    if jnp.ndim(ridge) != 0:
        raise ValueError(f"{argument} has shape {jnp.shape(ridge)}; expected one number.")
    if is_concrete(ridge) and not (math.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"{argument} is {float(ridge)}; expected a finite number of at least 0.")


def as_ridges(ridges, dtype) -> Float[Array, " R"]:
    """Return relative ridges in a dtype, refusing what are none, and one that is below what the dtype supports."""
    try:
        ridges = jnp.asarray(ridges, dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"ridges is {ridges!r}; expected a float array of shape (R,).") from error
    if ridges.ndim != 1 or ridges.size == 0:
        raise ValueError(f"ridges has shape {ridges.shape}; expected (R,), at least one.")
    eps = float(jnp.finfo(dtype).eps)
    for ridge in ridges if is_concrete(ridges) else ():
        check_ridge(ridge, "an entry of ridges")
        if 0 < ridge < eps:
            raise ValueError(
                f"an entry of ridges is {ridge:.3g}, below what {dtype} supports; expected 0 (a pseudo-inverse), or at "
                f"least {eps:.1e}."
            )
    return ridges


def check_time(t: Number, argument: str = "t") -> None:
    """Refuse a parameter of a subgroup that is not one finite number."""
    _check_number(t, argument, "a finite number")
    if jnp.ndim(t) != 0:
        raise ValueError(f"{argument} has shape {jnp.shape(t)}; expected one number.")
    if is_concrete(t) and not math.isfinite(t):
        raise ValueError(f"{argument} is {float(t)}; expected a finite number.")


def check_times(ts: Float[Array, " T"]) -> None:
    """Refuse times that do not increase from 0."""
    try:
        ts = jnp.asarray(ts)
    except (TypeError, ValueError) as error:
        raise TypeError(f"ts is {ts!r}; expected a float array of shape (T,).") from error
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(f"ts has shape {ts.shape}; expected (T,) with at least two times.")
    if is_concrete(ts):
        times = np.asarray(ts)
        if not np.isfinite(times).all() or times[0] != 0 or (np.diff(times) <= 0).any():
            raise ValueError(f"ts runs {_shortened(times)}; expected finite times that increase strictly from 0.")


def check_group(group) -> None:
    """Refuse what is no group."""
    if not (hasattr(group, "generators") and hasattr(group, "elements")):
        raise TypeError(f"group is {type(group).__name__}; expected a Group, such as st.so2().")


def check_has_generator(group, generator: int) -> None:
    """Refuse a generator that the group does not have."""
    check_group(group)
    if type(generator) is not int or not 0 <= generator < len(group.generators):
        raise ValueError(
            f"generator is {generator!r}, but {group.name} has {len(group.generators)} generators; "
            "expected one of them, from 0."
            + ("" if group.generators else " A finite group has a defect, but no orbit tangent.")
        )


def check_generator(group, generator: int, x: Float[Array, "N *input"]) -> None:
    """Refuse a generator that the group does not have, or that does not fit the input."""
    check_group(group)
    if type(generator) is not int or not 0 <= generator < len(group.generators):
        raise ValueError(
            f"generator is {generator!r}, but {group.name} has {len(group.generators)} generators; "
            f"expected a whole number from 0 to {len(group.generators) - 1}."
            + ("" if group.generators else " A finite group has a defect, but no orbit tangent.")
        )
    check_fits(group, x)


def check_fits(group, x: Float[Array, "N *input"]) -> None:
    """Refuse inputs on which the group's matrices cannot act."""
    check_group(group)
    if x.ndim < 2 or x.shape[1] != group.dimension:
        raise ValueError(
            f"group {group.name} acts on inputs whose first axis has length {group.dimension}, "
            f"but one input has shape {x.shape[1:]}."
        )


def check_vector_output(group, shape: tuple[int, ...]) -> None:
    """Refuse an output that the group is told to turn but cannot."""
    if group.output == "vector" and shape != (group.dimension,):
        raise ValueError(
            f"group {group.name} has output='vector', but f's output has shape {shape}; expected ({group.dimension},)."
        )


def check_haar(group) -> None:
    """Refuse to average over a group that has no Haar average."""
    check_group(group)
    if not group.elements:
        raise ValueError(
            f"group {group.name} is not compact: it has no Haar average, so no equivariant projection and no defect. "
            "Expected a compact group, such as so2 or cyclic."
        )


def check_chunk_size(chunk_size: int | None) -> None:
    """Refuse a chunk size that is no positive whole number."""
    if chunk_size is not None:
        check_count(chunk_size, "chunk_size", "None or a positive whole number of probes")


def explain_not_finite(
    f: Callable, params: PyTree, x: Float[Array, "N *input"], tangent_values: Array, sensitivities: PyTree
):
    """Raise with the first value that is not finite: an output, an entry of the Jacobian (which leaf) or the tangent."""
    values = jax.vmap(f, (None, 0))(params, x)
    if not np.isfinite(values).all():
        raise ValueError(f"f(params, x) holds {_first_bad(values)} (probe first); expected finite values.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(sensitivities):
        if not np.isfinite(leaf).all():
            name = "params" + jax.tree_util.keystr(path)
            raise ValueError(f"the Jacobian by {name} holds {_first_bad(leaf)} (probe first); expected finite values.")
    if not np.isfinite(tangent_values).all():
        raise ValueError(f"the tangent holds {_first_bad(tangent_values)} (probe first); expected finite values.")


def _check_number(value, argument: str, expected: str) -> None:
    if not isinstance(value, int | float | np.generic | np.ndarray | jax.Array):
        raise TypeError(f"{argument} is {value!r}; expected {expected}.")


def _first_bad(values) -> str:
    values = np.asarray(values)
    index = np.unravel_index(np.argmin(np.isfinite(values)), values.shape)
    return f"{values[index]} at index {tuple(int(i) for i in index)}" if index else str(values)


def _shortened(values: np.ndarray) -> str:
    return np.array2string(values, threshold=6, edgeitems=3, precision=4)
