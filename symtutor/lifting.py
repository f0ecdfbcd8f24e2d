"""Lifting: the parameter motion whose image in function space is closest to a wanted tangent.

``c = argmin norm(J c - eta)^2 + (ridge s1)^2 norm(c)^2``: least squares of minimum norm, softened by a ridge.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple, no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from symtutor import checks, solvers
from symtutor.gram import DENSE_BYTES, gram, plan
from symtutor.groups import Group
from symtutor.probes import Probes, auto_sharded, function_norm
from symtutor.sensitivity import jacobian, pointwise_sensitivity
from symtutor.tangents import orthogonality

LARGE = 2**24
"""Entries of a Jacobian from which on a solve's memory is estimated, and a cosine no longer measured."""

LSMR_STEPS = 5000
"""When the iteration gives up."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
@no_type_check  # a pytree holds whatever jax maps it over, a batch as well
class Lift:
    """A lifted tangent: the parameter direction, and how much of the tangent it reaches.

    Attributes:
        direction: the motion c, a pytree like params.
        residual: ``norm(J c - eta) / norm(eta)`` on the probes; 0 for a zero tangent.
        heldout_residual: the same on held-out probes, or None if none were given.
        norm: Euclidean norm of c.
        tangent_norm: norm of the tangent in L2 of the probes.
        explained: ``<J c, eta> / norm(eta)^2``, the part of the tangent that the shares of `attribute` add up to.
        ridge: the relative ridge asked for.
        damping: ``(ridge s1)^2``, the absolute weight of ``norm(c)^2``.
        ok: whether the solve succeeded; if not, the direction is zero.
        below_floor: whether the tangent was too small to lift; then the direction is zero.
        solver: which solver was used.
        reason: why that one.
    """

    direction: PyTree
    residual: Float[Array, ""]
    heldout_residual: Float[Array, ""] | None
    norm: Float[Array, ""]
    tangent_norm: Float[Array, ""]
    explained: Float[Array, ""]
    ridge: Float[Array, ""]
    damping: Float[Array, ""]
    ok: Array
    below_floor: Array
    solver: str = dataclasses.field(metadata={"static": True})
    reason: str = dataclasses.field(metadata={"static": True}, default="")

    def __repr__(self) -> str:
        """Show the diagnostics, and not the direction, which may be large."""
        numbers = ("residual", "heldout_residual", "norm", "tangent_norm", "explained", "ridge", "damping")
        shown = {name: getattr(self, name) for name in numbers} | {"ok": self.ok, "below_floor": self.below_floor}
        if checks.is_concrete(shown) and jnp.ndim(self.residual) == 0:  # not a batch of them
            shown = {k: f"{v:.4g}" if k in numbers and v is not None else v for k, v in shown.items()}
        return "Lift(" + ", ".join(f"{k}={v}" for k, v in shown.items()) + f", solver={self.solver!r} ({self.reason}))"


class RidgePath(NamedTuple):
    """How a lift changes with the ridge; see `choose_ridge`.

    Attributes:
        ridges: relative ridges tried, shape ``(R,)``.
        residuals: residual on the probes for each, shape ``(R,)``.
        heldout_residuals: residual on the held-out probes for each, shape ``(R,)``.
        norms: Euclidean norm of the direction for each, shape ``(R,)``.
        ridge: the ridge of the least held-out residual, shape ``()``.
    """

    ridges: Float[Array, " R"]
    residuals: Float[Array, " R"]
    heldout_residuals: Float[Array, " R"]
    norms: Float[Array, " R"]
    ridge: Float[Array, ""]


def lift(
    f: Callable,
    params: PyTree,
    probes: Probes,
    tangent: Callable,
    ridge: checks.Number = 1e-6,
    heldout: Probes | None = None,
    *,
    solver: str = "auto",
    floor: checks.Number | None = None,
    chunk_size: int | None = None,
) -> Lift:
    """Lift a function-space tangent to the parameter motion that comes closest to it.

    ``c = argmin_c norm(J c - eta)^2 + (ridge s1)^2 norm(c)^2``, where J is the Jacobian on the probes, the norm of
    functions that of the probes, and s1 the largest singular value of J in it. Lifts of `orbit_tangent` are the
    method's c*, those of `symmetrizing_tangent` its b*.

    A small residual says that the parametrisation can follow the tangent, not that the network has the symmetry.

    Args:
        f: function ``f(params, x)`` of one input, with an output of shape ``()`` or ``(k,)``.
        params: pytree of float arrays.
        probes: points and weights of the function space.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        ridge: relative to s1. Typical values: 1e-6 for c*, 1e-4 for b* of a trained network; see `choose_ridge`.
        heldout: probes that the solve does not use, for ``heldout_residual``.
        solver: ``"auto"``; ``"gram"``, Cholesky of ``J J^T`` without building J (see `plan`), for fewer probes than
            parameters; ``"cholesky"`` or ``"eigh"`` with J; ``"svd"``, for a ridge below 5e-8 (float64) or 1e-3 (float32);
            ``"lsmr"``, an iteration with neither, where not even ``J J^T`` fits into memory. Ridge 0 is the pseudo-inverse.
        floor: below ``floor * norm(f - mean f)`` a tangent is noise and is not lifted. The square root of the
            machine precision if None.
        chunk_size: how many probes at a time when gradients are taken: bounds the memory for those that are not factored
            (see `plan`), at the price of time. If None, what takes up to a gigabyte is held at once.

    Returns:
        The lift.

    Raises:
        TypeError: if params, probes or outputs are not of floats, or f or tangent is no function.
        ValueError: if shapes do not fit, a value is not finite, weights, ridge, floor or solver are unusable, or held-out
            points are among the probes. Values are checked outside ``jax.jit`` only; inside, a failed solve has
            ``ok = False``.
        MemoryError: outside ``jax.jit``, if the solve would not fit into the memory that is free.

    Warns:
        UserWarning: outside ``jax.jit``: if the tangent is below the floor; if ``eta`` and ``delta`` of the tangent's
            group have a cosine above 1e-3 on the probes, which says they are not closed under the group. Of more than
            2^24 entries of J the cosine is not measured, since it would cost more than the lift: see `orthogonality`.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f = lambda w, x: jnp.dot(w, x)            # the tangent along the orbit lifts to xi w
        >>> c = st.lift(f, jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2()), ridge=1e-3)
        >>> (c.direction.round(4) + 0.0).tolist()
        [0.0, 1.0]

    Reference: theory.md, P1, P3 and Numerics; the source paper's c* and b*.
    """
    checks.check_params(params)
    checks.check_probes(probes)
    probes = auto_sharded(probes)
    checks.check_tangent(tangent, f, params, probes.x)
    checks.check_ridge(ridge)
    checks.check_chunk_size(chunk_size)
    if heldout is not None:
        checks.check_heldout(probes, heldout)
        heldout = auto_sharded(heldout)
    dtype = jacobian_dtype(params)
    solver, reason = choose_solver(solver, ridge, f, params, probes)
    floor = default_floor(dtype) if floor is None else floor
    checks.check_ridge(floor, "floor")
    result = unchecked_lift(f, params, probes, tangent, ridge, heldout, floor, solver=solver, chunk_size=chunk_size)
    if checks.is_concrete(result):
        if not result.ok:
            explain_failure(f, params, probes, tangent, ridge, chunk_size, solver)
        _warn(f, params, probes, tangent, result.tangent_norm, result.below_floor)
    return dataclasses.replace(result, reason=reason)


def choose_ridge(
    f: Callable,
    params: PyTree,
    probes: Probes,
    tangent: Callable,
    heldout: Probes,
    ridges: Float[Array, " R"] | None = None,
    *,
    chunk_size: int | None = None,
) -> RidgePath:
    """Lift for many ridges and choose the one whose residual on held-out probes is least.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: points and weights that the solves use.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        heldout: probes that no solve uses.
        ridges: relative ridges to try. By default half-decades up to 0.1, from 1e-7 in float64 and from
            1e-5 in float32.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        The path; ``.ridge`` is the choice.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`.
        MemoryError: as `lift`; a path needs eigenvectors, so there is no iteration to fall back to.

    Warns:
        UserWarning: as `lift`.

    Example:
        >>> import jax, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> path = st.choose_ridge(net.apply, net.init(jax.random.key(0)), st.polar_probes(), st.orbit_tangent(st.so2()),
        ...                        heldout=st.polar_probes(11, 50, offset=0.5))
        >>> path.ridges.shape == path.heldout_residuals.shape
        True

    Reference: theory.md, Numerics.
    """
    checks.check_params(params)
    checks.check_probes(probes)
    probes = auto_sharded(probes)
    checks.check_tangent(tangent, f, params, probes.x)
    checks.check_heldout(probes, heldout)
    heldout = auto_sharded(heldout)
    checks.check_chunk_size(chunk_size)
    dtype = jacobian_dtype(params)
    if ridges is None:
        ridges = 10.0 ** jnp.arange(-7 if dtype == jnp.float64 else -5, -0.9, 0.5)
    ridges = checks.as_ridges(ridges, dtype)
    least = float(min(ridges)) if checks.is_concrete(ridges) else 0.0
    path = _ridge_path(f, params, probes, tangent, heldout, ridges, spectrum_for(f, params, probes, least), chunk_size)
    if checks.is_concrete(path):
        # the same words for the same faults: a tangent below the floor, probes that are not closed, values not finite
        lift(f, params, probes, tangent, path.ridge, chunk_size=chunk_size)
    return path


def exact_lift(params: PyTree, group: Group, generator: int = 0) -> PyTree:
    """Return ``c_ex``, which lifts the orbit tangent of a network of `mlp` exactly, at any weights.

    ``c_ex = (-W_1 xi, 0, 0, ...)``: inputs enter through ``W_1 x`` only, so turning the input is a change of ``W_1``. For a
    vector output the last layer turns too: ``xi W_L`` and ``xi b_L`` are added.

    It exists for every linear action, whether a symmetry or not.

    Args:
        params: parameters of a network of `mlp`: a list of ``{"W": (out, in), "b": (out,)}``.
        group: the group that acts.
        generator: which generator ``xi``.

    Returns:
        A pytree like params.

    Raises:
        TypeError: if params is no such list.
        ValueError: if the generator does not exist, or does not fit the input or output.

    Example:
        >>> import jax, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> c = st.exact_lift(net.init(jax.random.key(0)), st.so2())
        >>> c[0]["W"].shape, float(abs(c[1]["W"]).max())
        ((8, 2), 0.0)

    Reference: theory.md, P10.
    """
    checks.check_params(params)
    if not isinstance(params, list) or not all(
        isinstance(layer, dict) and set(layer) == {"W", "b"} for layer in params
    ):
        raise TypeError("params is not that of a network of st.mlp; expected a list of {'W': (out, in), 'b': (out,)}.")
    checks.check_generator(group, generator, params[0]["W"][:1])  # a row of W_1 is of the shape of an input
    xi = jnp.asarray(group.generators[generator], dtype=params[0]["W"].dtype)
    c = jax.tree.map(jnp.zeros_like, params)
    c[0]["W"] = -params[0]["W"] @ xi  # (out, in) x (in, in) -> (out, in)
    if group.output == "vector":
        checks.check_vector_output(group, params[-1]["b"].shape)
        c[-1]["W"] = c[-1]["W"] + xi @ params[-1]["W"]
        c[-1]["b"] = xi @ params[-1]["b"]
    return c


def weighted_rows(values: Float[Array, "Nk *n"], w: Float[Array, " N"]) -> Float[Array, "Nk *n"]:
    """Multiply the rows of probe j by ``sqrt(w_j)``, so that Euclidean norms are norms of functions."""
    rows = jnp.repeat(jnp.sqrt(w), values.shape[0] // w.shape[0])
    return values * rows.reshape(rows.shape + (1,) * (values.ndim - 1))


def linear_system(f, params, probes, tangent, chunk_size=None) -> tuple[Float[Array, "P n"], Float[Array, " P"]]:
    """Return the weighted Jacobian A, shape (P, n) with P = N k, and the weighted tangent y, shape (P,)."""
    A = weighted_rows(jacobian(f, params, probes.x, chunk_size=chunk_size), probes.w)
    return A, weighted_rows(tangent(f, params, probes.x).reshape(A.shape[0]), probes.w)


def solve(
    A: Float[Array, "P n"], y: Float[Array, " P"], ridge, solver: str
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """Return the minimiser c, not finite where the solve failed, and the damping."""
    if solver == "cholesky":
        solve_for, damping = solvers.cholesky(A, ridge)
        return solve_for(y), damping
    return {"eigh": solvers.eigh, "svd": solvers.svd}[solver](A).solve(y, ridge)


def jacobian_dtype(params):
    """Return the dtype in which the Jacobian comes out, refusing one in which no linear system can be solved."""
    dtype = jnp.result_type(*jax.tree.leaves(params))
    if dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"params are {dtype}; expected float32 or float64, which linear systems are solved in.")
    return dtype


def relative(part, whole):
    """Return ``part / whole``, and 0 where the whole is 0."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)


def tangent_residual(f, params, probes, tangent, direction):
    """Return norm(J c - eta) / norm(eta) on any probes, by one forward pass, without the Jacobian."""
    direction = jax.tree.map(lambda c, p: c.astype(p.dtype), direction, params)
    eta = tangent(f, params, probes.x)
    moved = jax.vmap(lambda x: jax.jvp(lambda p: f(p, x), (params,), (direction,))[1])(probes.x)
    return relative(function_norm(moved - eta, probes.w), function_norm(eta, probes.w))


def choose_solver(solver, ridge, f, params, probes) -> tuple[str, str]:
    """Return the solver for these sizes and why, refusing what would be unsound or would not fit into memory."""
    dtype = jacobian_dtype(params)
    rows = probes.x.shape[0] * math.prod(checks.output_shape(f, params, probes.x))
    columns = sum(leaf.size for leaf in jax.tree.leaves(params))
    asked = solver
    solver, reason = solvers.choose_solver(solver, ridge, dtype, rows, columns)
    if (
        not checks.is_concrete(params, probes, ridge) or rows * max(rows, columns) <= LARGE
    ):  # small ones need no estimate
        return solver, reason
    kept, device = 0, next(iter(probes.x.devices()))
    if solver == "gram":
        leaves = plan(f, params, probes.x).values()
        dense = sum(leaf.stored for leaf in leaves if not leaf.factored)
        dense = min(dense, DENSE_BYTES // (rows * dtype.itemsize))  # then they go by chunks
        kept = dense + sum(leaf.stored for leaf in leaves if leaf.factored)
        size, free = solvers.memory(solver, rows, columns, kept) * dtype.itemsize, solvers.free_memory(device)
        if asked == "auto" and free is not None and size > free:
            solver, reason = (
                "lsmr",
                f"{rows} rows: J J^T would take {size / 1e9:.3g} GB, and {free / 1e9:.3g} GB are free",
            )
    solvers.check_memory(solver, dtype, rows, columns, kept, device)
    return solver, reason


def unchecked_lift(
    f: Callable, params: PyTree, probes: Probes, tangent: Callable, ridge: checks.Number, heldout: Probes | None = None,
    floor: checks.Number = 0.0, *, solver: str, chunk_size: int | None = None,
) -> Lift:  # fmt: skip
    """Lift without looking at the arguments; compiled in parts, so that parts that do not depend on f serve every f."""
    if solver in WITHOUT_J:
        y, spread = target(f, params, probes, tangent)
        ridge, floor = jnp.asarray(ridge, y.dtype), jnp.asarray(floor, y.dtype)
        c, image, damping = WITHOUT_J[solver](f, params, probes, y, ridge, chunk_size)
        result = dataclasses.replace(_finished(c, image, y, spread, ridge, floor, damping), solver=solver)
    else:
        A, y, spread = _system(f, params, probes, tangent, chunk_size)
        ridge, floor = jnp.asarray(ridge, A.dtype), jnp.asarray(floor, A.dtype)
        result = _solved(A, y, spread, params, ridge, floor, solver)
    if heldout is None:
        return result
    residual = _heldout_residual(f, params, heldout, tangent, result.direction)
    return dataclasses.replace(result, heldout_residual=residual)


def direction(f, params, probes, tangent, ridge, solver, chunk_size=None) -> Float[Array, " n"]:
    """Return the minimiser as a vector, not finite where the solve failed: the field of a flow."""
    if solver not in WITHOUT_J:
        return solve(*linear_system(f, params, probes, tangent, chunk_size), ridge, solver)[0]
    y = weighted_rows(tangent(f, params, probes.x).reshape(-1), probes.w)
    return ravel_pytree(WITHOUT_J[solver](f, params, probes, y, ridge, chunk_size)[0])[0]


def gram_solve(f, params, probes, y, ridge, chunk_size=None) -> tuple[PyTree, Float[Array, " P"], Float[Array, ""]]:
    """Return the minimiser c, its image ``J c`` and the damping, by Cholesky of ``J J^T + damping``, without J.

    ``c = J^T a`` with ``(J J^T + damping) a = y``. One step of refinement, with residuals through J itself, takes away
    most of what forming the Gram matrix lost. Where the factorisation failed c is not finite.
    """
    factor, a, shift, damping = _factored(_kernel(f, params, probes, chunk_size), y, ridge)
    c, image = _moved(f, params, probes, a, chunk_size)
    a = _refined(factor, a, shift, y, image)
    return *_moved(f, params, probes, a, chunk_size), damping


@eqx.filter_jit
def lsmr_solve(f, params, probes, y, ridge, chunk_size=None) -> tuple[PyTree, Float[Array, " P"], Float[Array, ""]]:
    """As `gram_solve`, by the damped LSMR of matfree: products with J and its transpose, nothing else.

    LSMR's own stopping tests are loose, so the result is judged here, by the slope ``g = J^T (y - J c) - damping c``.
    The value that c minimises is at most ``norm(g)^2 / damping`` above the least. Where the root of that is above
    ``tolerance norm(y)``, with a tolerance of 1e-6 (1e-3 in float32), c is not finite.
    """
    from matfree.lstsq import lsmr  # needed only here

    flat, unravel = ravel_pytree(params)
    wide = jnp.result_type(float)  # in which matfree makes its own numbers

    def pull(a):
        return ravel_pytree(_moved(f, params, probes, a.astype(y.dtype), chunk_size)[0])[0].astype(wide)

    square = solvers.largest_eigenvalue(lambda a: _moved(f, params, probes, a, chunk_size)[1], 30, y.shape[0], y.dtype)
    damping = ridge**2 * square
    tolerance = max(1e-6, 1e4 * float(jnp.finfo(y.dtype).eps))
    iterate = lsmr(atol=0.1 * tolerance * ridge.astype(wide), btol=0.0, ctol=0.0, maxiter=LSMR_STEPS, custom_vjp=False)
    c, _ = iterate(pull, y.astype(wide), damp=jnp.sqrt(jnp.where(square > 0, damping, 1)).astype(wide))
    image = _image(f, params, probes, unravel(c.astype(flat.dtype)), chunk_size)
    slope = jnp.linalg.norm(pull(y - image) - damping * c)
    good = slope <= tolerance * jnp.sqrt(damping) * jnp.linalg.norm(y)
    return unravel(jnp.where(good, c, jnp.nan).astype(flat.dtype)), image, damping


WITHOUT_J = {"gram": gram_solve, "lsmr": lsmr_solve}


@eqx.filter_jit
def _kernel(f, params, probes, chunk_size):
    K = gram(f, params, probes.x, chunk_size=chunk_size)
    roots = weighted_rows(jnp.ones(K.shape[0], K.dtype), probes.w)
    return roots[:, None] * K * roots


def _spread(f, params, probes):
    values = jax.vmap(f, (None, 0))(params, probes.x)
    largest = jnp.abs(values).max()
    values = values / jnp.where(largest > 0, largest, 1)  # so that squares of large values do not overflow
    mean = jnp.tensordot(probes.w, values, 1)  # (N,) x (N, ...) -> (...)
    return largest * function_norm(values - jnp.broadcast_to(mean, values.shape), probes.w)


@eqx.filter_jit
def target(f, params, probes, tangent):
    """Return the weighted tangent, shape (P,), and norm(f - mean f)."""
    eta = tangent(f, params, probes.x)
    return weighted_rows(eta.reshape(-1), probes.w), _spread(f, params, probes)


@jax.jit
def _factored(K, y, ridge):
    square = solvers.largest_eigenvalue(K)
    damping = ridge**2 * square
    shift = jnp.where(square > 0, damping, 1)  # K = 0 has no scale: any positive shift gives c = 0
    factor = jax.scipy.linalg.cholesky(K + shift * jnp.eye(K.shape[0], dtype=K.dtype), lower=True)
    return factor, jax.scipy.linalg.cho_solve((factor, True), y), shift, damping


@jax.jit
def _refined(factor, a, shift, y, image):
    return a + jax.scipy.linalg.cho_solve((factor, True), y - image - shift * a)


@eqx.filter_jit
def _moved(f, params, probes, a, chunk_size):
    """Return ``c = J^T a`` by one reverse pass and ``J c`` by one forward pass, rows weighted."""

    def batched(p, x):
        return jax.vmap(f, (None, 0))(p, x)

    out = jax.eval_shape(batched, params, probes.x)
    cotangent = weighted_rows(a, probes.w).reshape(out.shape).astype(out.dtype)
    if chunk_size is None or chunk_size >= out.shape[0]:
        (c,) = jax.vjp(lambda p: batched(p, probes.x), params)[1](cotangent)
        return c, _image(f, params, probes, c, None)

    def pull(x, part):
        return jax.vjp(lambda p: f(p, x), params)[1](part)[0]

    def add(c, chunk):
        return jax.tree.map(lambda total, part: total + part.sum(axis=0), c, jax.vmap(pull)(*chunk)), None

    whole = out.shape[0] // chunk_size * chunk_size
    parts = jax.tree.map(lambda v: v[:whole].reshape(-1, chunk_size, *v.shape[1:]), (probes.x, cotangent))
    rest = jax.tree.map(lambda v: v[whole:], (probes.x, cotangent))
    c = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)[0]
    c = add(c, rest)[0] if whole < out.shape[0] else c
    return c, _image(f, params, probes, c, chunk_size)


def _image(f, params, probes, c, chunk_size):
    """Return ``J c`` by one forward pass, rows weighted."""

    def one(x):
        return jax.jvp(lambda p: f(p, x), (params,), (c,))[1]

    image = jax.vmap(one)(probes.x) if chunk_size is None else jax.lax.map(one, probes.x, batch_size=chunk_size)
    return weighted_rows(image.reshape(-1), probes.w)


@jax.jit
def _finished(c, image, y, spread, ridge, floor, damping):
    """Put together the Lift; a direction that is not finite or not wanted becomes zero."""
    tangent_norm = jnp.linalg.norm(y)
    flat = ravel_pytree(c)[0]
    # where f is not finite, and so spread, its derivatives may still be, as those of jnp.where
    ok = jnp.isfinite(flat).all() & jnp.isfinite(image).all() & jnp.isfinite(tangent_norm) & jnp.isfinite(spread)
    # a minimiser is no worse than standing still: a solve that is has lost its figures
    ok = ok & (jnp.linalg.norm(image - y) <= 1.001 * tangent_norm)
    is_below = below_floor(y, spread, floor)
    kept = ok & ~is_below
    image = jnp.where(kept, image, 0)
    return Lift(
        direction=jax.tree.map(lambda leaf: jnp.where(kept, leaf, 0), c),
        residual=jnp.where(ok, relative(jnp.linalg.norm(image - y), tangent_norm), 1),
        heldout_residual=None,
        norm=jnp.where(kept, jnp.linalg.norm(flat), 0),
        tangent_norm=tangent_norm,
        explained=jnp.where(ok, relative(jnp.dot(image, y), tangent_norm**2), 0),
        ridge=ridge,
        damping=damping,
        ok=ok,
        below_floor=is_below,
        solver="",
    )


@eqx.filter_jit
def _system(f, params, probes, tangent, chunk_size):
    return *linear_system(f, params, probes, tangent, chunk_size), _spread(f, params, probes)


@eqx.filter_jit
def _solved(A, y, spread, params, ridge, floor, solver):
    c, damping = solve(A, y, ridge, solver)
    image = A @ c + 0 * A.sum()  # (P, n) x (n,) -> (P,); not finite where A is not
    result = _finished(ravel_pytree(params)[1](c), image, y, spread, ridge, floor, damping)
    return dataclasses.replace(result, solver=solver)


@eqx.filter_jit
def _heldout_residual(f, params, heldout, tangent, direction):
    return tangent_residual(f, params, heldout, tangent, direction)


@eqx.filter_jit
def _ridge_path(f, params, probes, tangent, heldout, ridges, spectrum, chunk_size):
    solve_at, y = spectrum(f, params, probes, tangent, chunk_size)

    def one(ridge):
        c, image = solve_at(ridge)
        residual = relative(jnp.linalg.norm(image - y), jnp.linalg.norm(y))
        return residual, tangent_residual(f, params, heldout, tangent, c), jnp.linalg.norm(ravel_pytree(c)[0])

    residuals, heldout_residuals, norms = jax.lax.map(one, ridges)
    return RidgePath(ridges, residuals, heldout_residuals, norms, ridges[jnp.argmin(heldout_residuals)])


def spectrum_for(f, params, probes, least: float) -> Callable:
    """Return which spectrum to use for many ridges, the least of which is given: without J where that is sound."""
    dtype = jacobian_dtype(params)
    rows = probes.x.shape[0] * math.prod(checks.output_shape(f, params, probes.x))
    columns = sum(leaf.size for leaf in jax.tree.leaves(params))
    ridge = max(least, float(jnp.finfo(dtype).eps))
    sound, _ = solvers.choose_solver("auto", ridge, dtype, rows, columns)
    solver, _ = choose_solver(sound, ridge, f, params, probes)  # by its name: there is nothing to fall back to
    return {"gram": gram_spectrum, "cholesky": eigh_spectrum, "svd": svd_spectrum}[solver]


def gram_spectrum(f, params, probes, tangent, chunk_size):
    """Return the function from a ridge to (c, J c), and the weighted tangent, by eigenvectors of ``J J^T``, without J."""
    y, _ = target(f, params, probes, tangent)
    values, U = jnp.linalg.eigh(_kernel(f, params, probes, chunk_size))
    parts = U.T @ y

    def solve_at(ridge):
        damping = ridge**2 * values[-1]
        a = U @ (parts / jnp.where(values + damping > 0, values + damping, jnp.inf))
        return _moved(f, params, probes, a, chunk_size)

    return solve_at, y


def eigh_spectrum(f, params, probes, tangent, chunk_size):
    """As `gram_spectrum`, with J, by eigenvectors of its smaller Gram matrix."""
    return _dense_spectrum(solvers.eigh, f, params, probes, tangent, chunk_size)


def svd_spectrum(f, params, probes, tangent, chunk_size):
    """As `gram_spectrum`, with J, by singular vectors: sound at any ridge."""
    return _dense_spectrum(solvers.svd, f, params, probes, tangent, chunk_size)


def _dense_spectrum(factorise, f, params, probes, tangent, chunk_size):
    A, y = linear_system(f, params, probes, tangent, chunk_size)
    spectrum, unravel = factorise(A), ravel_pytree(params)[1]

    def solve_at(ridge):
        c, _ = spectrum.solve(y, ridge)
        return unravel(c), A @ c

    return solve_at, y


def explain_failure(f, params, probes, tangent, ridge, chunk_size, solver="auto"):
    """Raise for a solve that came to nothing: naming the value that is not finite, if one is."""
    sensitivities = pointwise_sensitivity(f, params, probes.x, chunk_size=chunk_size)
    checks.explain_not_finite(f, params, probes.x, tangent(f, params, probes.x), sensitivities)
    raise FloatingPointError(
        f"solver {solver!r} failed at ridge {float(ridge):.3g}; expected a larger ridge, or solver='svd'."
    )


def look_at_tangent(f, params, probes, tangent, ridge, chunk_size):
    """Raise and warn as `lift` does, for what solves without it; only where values are concrete."""
    y, spread = target(f, params, probes, tangent)
    if not checks.is_concrete(y, spread):
        return
    tangent_norm = jnp.linalg.norm(y)
    if not jnp.isfinite(tangent_norm + spread):
        explain_failure(f, params, probes, tangent, ridge, chunk_size)
    _warn(f, params, probes, tangent, tangent_norm, below_floor(y, spread, default_floor(y.dtype)))


def default_floor(dtype) -> float:
    """Return the part of the spread of f below which a tangent is noise: the square root of the machine precision."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def below_floor(y, spread, floor) -> Array:
    """Tell whether a weighted tangent is too small beside the spread of f to be lifted."""
    return jnp.linalg.norm(y) <= floor * spread


def _warn(f, params, probes, tangent, tangent_norm, below_floor):
    if below_floor:
        warnings.warn(
            f"the tangent has norm {float(tangent_norm):.3g}, below the floor relative to norm(f - mean f): "
            "there is nothing to lift, and the direction is zero.",
            stacklevel=4,
        )
        return
    cosine = _cosine(f, params, probes, tangent)
    if cosine is not None and abs(float(cosine)) > 1e-3:
        warnings.warn(
            f"eta and delta of {tangent.group.name} have cosine {abs(float(cosine)):.2g} on these probes, where 0 was "
            "expected: the probes are not closed under the group. Polar probes with more angles, or more of the data, "
            "bring it down.",
            stacklevel=4,
        )


def _cosine(f, params, probes, tangent) -> Float[Array, ""] | None:
    """Return the cosine of eta and delta of the tangent's group, or None where it has none or would cost too much."""
    group, size = getattr(tangent, "group", None), sum(leaf.size for leaf in jax.tree.leaves(params))
    if not isinstance(group, Group) or not group.generators or not group.elements:
        return None
    if not checks.is_concrete(params, probes) or probes.x.shape[0] * size > LARGE:
        return None
    return _orthogonality(f, params, probes, group, getattr(tangent, "generator", 0))


_orthogonality = eqx.filter_jit(orthogonality)
