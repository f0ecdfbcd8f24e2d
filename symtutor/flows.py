"""Flows: following a lifted direction over finite time, and how far the function strays.

A resolved flow recomputes the lift as it goes, ``theta' = c(theta)``; a fixed flow keeps the first one.
"""

from collections.abc import Callable
from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from symtutor import checks
from symtutor.groups import Group
from symtutor.lifting import choose_solver, direction, jacobian_dtype, lift, unchecked_lift
from symtutor.probes import Probes, auto_sharded, function_norm
from symtutor.tangents import equivariance_defect, equivariant_projection, transform


class Trajectory(NamedTuple):
    """Parameters along a flow.

    Attributes:
        ts: times, shape ``(T,)``, from 0.
        params: a pytree like params, each leaf with a leading axis ``(T,)``.
        solves: how many lifts were computed.
        ok: whether the flow reached the last time with finite parameters.
    """

    ts: Float[Array, " T"]
    params: PyTree
    solves: Array
    ok: Array

    def at(self, i: int) -> PyTree:
        """Return the parameters at time ``ts[i]``."""
        return jax.tree.map(lambda leaf: leaf[i], self.params)


def resolved_flow(
    f: Callable,
    params: PyTree,
    probes: Probes,
    tangent: Callable,
    ts: Float[Array, " T"],
    ridge: checks.Number = 1e-6,
    tolerance: checks.Number = 1e-5,
    steps: int | None = None,
    *,
    chunk_size: int | None = None,
    max_steps: int = 4096,
    progress: bool = False,
) -> Trajectory:
    """Follow ``theta' = c(theta)``, with the lift computed anew at every stage of the integrator.

    The integrator is diffrax's Tsit5. Its step adapts to the error in function space, ``rms(J_0 e)`` with ``J_0`` the
    Jacobian at the start, relative to the rms of the tangent at the start. The field can be stiff: a step that is too
    long destroys the invariant part of the function while its defect still looks right. So leave it adaptive, and look at
    `invariant_drift`.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays, the start.
        probes: points and weights of the lifts.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``, taken anew at each theta.
        ts: times to report, increasing from 0. For an orbit tangent, t is the group's parameter (an angle in radians);
            for a symmetrizing tangent the defect decays as ``exp(-t)``.
        ridge: relative ridge of the lifts, as in `lift`.
        tolerance: error allowed in a step.
        steps: if given, this many equal steps over the whole time instead of adaptive ones.
        chunk_size: how many probes at a time when a Jacobian is built.
        max_steps: give up after so many steps.
        progress: whether to print a progress meter.

    Returns:
        The trajectory. ``.solves`` counts lifts.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if ts does not increase from 0, or tolerance, steps or max_steps is not positive.
        FloatingPointError: outside ``jax.jit``, if the flow does not reach the last time; inside, ``ok`` is False.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f = lambda w, x: jnp.dot(w, x)            # w turns on a circle
        >>> ts = jnp.array([0.0, jnp.pi / 2])
        >>> flow = st.resolved_flow(f, jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2()), ts, ridge=2e-3)
        >>> (flow.at(-1).round(3) + 0.0).tolist()
        [0.0, 1.0]

    Reference: theory.md, P2, P8, P9 and Numerics.
    """
    probes, ts, solver = _check(f, params, probes, tangent, ts, ridge, chunk_size)
    if steps is not None:
        checks.check_count(steps, "steps")
    checks.check_count(max_steps, "max_steps")
    checks.check_positive(tolerance, "tolerance")
    dtype = jacobian_dtype(params)
    trajectory = _resolved(
        f, params, probes, tangent, ts, jnp.asarray(ridge, dtype), jnp.asarray(tolerance, dtype),
        steps, solver, chunk_size, max_steps, progress,
    )  # fmt: skip
    if checks.is_concrete(trajectory) and not trajectory.ok:
        lift(f, params, probes, tangent, ridge, chunk_size=chunk_size)  # says more, if the start itself is at fault
        reached = jnp.isfinite(ravel_pytree(jax.tree.map(lambda leaf: leaf.T, trajectory.params))[0])
        raise FloatingPointError(
            f"the flow did not reach t = {float(ts[-1]):.3g} within {max_steps} steps at ridge {float(ridge):.3g} and "
            f"tolerance {float(tolerance):.3g} ({int((~reached).sum())} parameter values are not finite); "
            "expected a larger ridge or tolerance, a shorter time, or more max_steps."
        )
    return trajectory


def fixed_flow(
    f: Callable,
    params: PyTree,
    probes: Probes,
    tangent: Callable,
    ts: Float[Array, " T"],
    ridge: checks.Number = 1e-6,
    clock: str = "linear",
    *,
    chunk_size: int | None = None,
) -> Trajectory:
    """Follow the first lift in a straight line, ``theta_0 + s(t) c``.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays, the start.
        probes: points and weights of the lift.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        ts: times to report, increasing from 0.
        ridge: relative ridge of the lift.
        clock: ``"linear"``: ``s = t``; ``"decay"``: ``s = 1 - exp(-t)``, the fair comparison for a symmetrizing tangent.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        The trajectory, with one solve.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if ts does not increase from 0, or clock is neither of the two.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f = lambda w, x: jnp.dot(w, x)            # w leaves the circle on its tangent
        >>> ts = jnp.array([0.0, 1.0])
        >>> flow = st.fixed_flow(f, jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2()), ts, ridge=2e-3)
        >>> flow.at(-1).round(3).tolist()
        [1.0, 1.0]

    Reference: theory.md, P9.
    """
    probes, ts, solver = _check(f, params, probes, tangent, ts, ridge, chunk_size)
    if clock not in ("linear", "decay"):
        raise ValueError(f"clock is {clock!r}; expected 'linear' or 'decay'.")
    c = unchecked_lift(f, params, probes, tangent, ridge, solver=solver, chunk_size=chunk_size)
    if checks.is_concrete(c) and not c.ok:
        lift(f, params, probes, tangent, ridge, chunk_size=chunk_size)  # says more
        raise FloatingPointError(f"the lift failed at ridge {float(ridge):.3g}; expected a larger ridge.")
    return _line(ts, params, c.direction, c.ok, clock)


def orbit_error(
    f: Callable, traj: Trajectory, x: Float[Array, "N *input"], group: Group, generator: int = 0, relative: bool = True
) -> Float[Array, " T"]:
    """Return how far a trajectory is from the true orbit of its start, ``norm(f_t - R_t f_0)`` at each time.

    Norms are root mean squares over x. Relative errors are divided by ``norm(R_t f_0 - f_0)``, how far the orbit has gone
    by then; 0/0 counts as 0. Where the orbit comes back to its start (a full turn) they blow up: use absolute ones.

    Args:
        f: function ``f(params, x)`` of one input.
        traj: trajectory of `resolved_flow` or `fixed_flow`, with t the group's parameter.
        x: inputs on which to compare, best held out, shape ``(N, ...)``.
        group: the group.
        generator: which generator.
        relative: whether to divide.

    Returns:
        Errors, shape ``(T,)``; 0 at t = 0.

    Raises:
        ValueError: if the generator does not exist or does not fit the input.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, probes, so2 = lambda w, x: jnp.dot(w, x), st.polar_probes(), st.so2()
        >>> flow = st.fixed_flow(f, jnp.array([1.0, 0.0]), probes, st.orbit_tangent(so2), jnp.array([0.0, 0.1]), ridge=2e-3)
        >>> st.orbit_error(f, flow, probes.x, so2).round(2).tolist()
        [0.0, 0.05]

    Reference: theory.md, P9.
    """
    _check_trajectory(traj, x)
    checks.check_generator(group, generator, x)
    checks.check_vector_output(group, checks.output_shape(f, traj.at(0), x))
    turns, backs = _subgroup(group, generator, traj.ts), _subgroup(group, generator, -traj.ts)
    return _orbit_errors(f, traj, x, turns, backs, group.output, relative)


def defect_left(f: Callable, traj: Trajectory, x: Float[Array, "N *input"], group: Group) -> Float[Array, " T"]:
    """Return the equivariance defect left at each time, ``norm(delta_t) / norm(delta_0)``.

    Along the resolved flow of a symmetrizing tangent it is ``exp(-t)``, where delta stays in the image of J. Norms are root
    mean squares over x; 0/0 counts as 0. Judge by held-out x, together with `invariant_drift`.

    Args:
        f: function ``f(params, x)`` of one input.
        traj: a trajectory.
        x: inputs, best held out, shape ``(N, ...)``.
        group: a compact group.

    Returns:
        Ratios, shape ``(T,)``.

    Raises:
        ValueError: if the group has no Haar average or does not fit the input.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, probes, so2 = lambda w, x: jnp.dot(w, x), st.polar_probes(), st.so2()
        >>> flow = st.fixed_flow(f, jnp.array([1.0, 0.0]), probes, st.symmetrizing_tangent(so2), jnp.array([0.0, 1.0]),
        ...                      ridge=2e-3, clock="decay")
        >>> st.defect_left(f, flow, probes.x, so2).round(3).tolist()
        [1.0, 0.368]

    Reference: theory.md, P8.
    """
    _check_trajectory(traj, x)
    checks.check_haar(group)
    return _defects_left(f, traj, x, group)


def invariant_drift(f: Callable, traj: Trajectory, x: Float[Array, "N *input"], group: Group) -> Float[Array, " T"]:
    """Return how far the invariant part has moved at each time, ``norm(P_E f_t - P_E f_0) / norm(delta_0)``.

    A symmetrizing flow should leave it where it was. Norms are root mean squares over x; 0/0 counts as 0.

    Args:
        f: function ``f(params, x)`` of one input.
        traj: a trajectory.
        x: inputs, best held out, shape ``(N, ...)``.
        group: a compact group.

    Returns:
        Ratios, shape ``(T,)``; 0 at t = 0.

    Raises:
        ValueError: if the group has no Haar average or does not fit the input.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, probes, so2 = lambda w, x: jnp.dot(w, x), st.polar_probes(), st.so2()
        >>> flow = st.fixed_flow(f, jnp.array([1.0, 0.0]), probes, st.symmetrizing_tangent(so2), jnp.array([0.0, 1.0]),
        ...                      ridge=2e-3, clock="decay")
        >>> bool(st.invariant_drift(f, flow, probes.x, so2).max() < 1e-5)     # w.x has no invariant part
        True

    Reference: theory.md, P8 and P13.
    """
    _check_trajectory(traj, x)
    checks.check_haar(group)
    return _invariant_drifts(f, traj, x, group)


def _check(f, params, probes, tangent, ts, ridge, chunk_size):
    checks.check_params(params)
    checks.check_probes(probes)
    probes = auto_sharded(probes)
    checks.check_tangent(tangent, f, params, probes.x)
    checks.check_ridge(ridge)
    checks.check_chunk_size(chunk_size)
    checks.check_times(ts)
    dtype = jacobian_dtype(params)
    if dtype != probes.x.dtype:
        raise TypeError(
            f"params are {dtype} and probes.x is {probes.x.dtype}; expected one precision. Make both after st.enable_x64()."
        )
    return probes, jnp.asarray(ts, dtype), choose_solver("auto", ridge, f, params, probes)[0]


def _check_trajectory(traj, x):
    if not isinstance(traj, Trajectory):
        raise TypeError(f"traj is {type(traj).__name__}; expected a Trajectory, as from resolved_flow.")
    checks.check_points(x)


def _rms(values):
    return jnp.sqrt((values**2).sum() / values.shape[0])


def _ratio(part, whole):
    # 0/0 counts as 0; a positive part over 0 is infinite
    return jnp.where((whole == 0) & (part == 0), 0, part / jnp.where((whole == 0) & (part == 0), 1, whole))


@eqx.filter_jit
def _resolved(f, params, probes, tangent, ts, ridge, tolerance, steps, solver, chunk_size, max_steps, progress):
    start, unravel = ravel_pytree(params)

    def field(t, theta, args):
        # a failed solve is not finite here: the integrator then stops and says so, instead of standing still
        return direction(f, unravel(theta), probes, tangent, ridge, solver, chunk_size)

    def function_space(error):
        """Root mean square of J_0 e, with J_0 frozen at the start."""
        moved = jax.vmap(lambda x: jax.jvp(lambda p: f(p, x), (params,), (unravel(error),))[1])(probes.x)
        return function_norm(moved, probes.w)

    scale = function_norm(tangent(f, params, probes.x), probes.w)
    scale = jnp.where(scale > 0, scale, 1)
    if steps is None:
        controller = diffrax.PIDController(rtol=0, atol=tolerance * scale, norm=function_space)
        first, most = None, max_steps
    else:
        controller, first, most = diffrax.ConstantStepSize(), ts[-1] / steps, steps + 1
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        t0=ts[0],
        t1=ts[-1],
        dt0=first,
        y0=start,
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=controller,
        max_steps=most,
        throw=False,
        progress_meter=diffrax.TextProgressMeter() if progress else diffrax.NoProgressMeter(),
    )
    ok = (solution.result == diffrax.RESULTS.successful) & jnp.isfinite(solution.ys).all()
    # the last stage of a Tsit5 step is the first of the next
    solves = 6 * solution.stats["num_steps"] + 1
    return Trajectory(ts, jax.vmap(unravel)(solution.ys), solves, ok)


@eqx.filter_jit
def _line(ts, params, direction, ok, clock):
    s = ts if clock == "linear" else -jnp.expm1(-ts)

    def move(by):
        return jax.tree.map(lambda start, slope: start + (by * slope).astype(start.dtype), params, direction)

    return Trajectory(ts, jax.vmap(move)(s), jnp.asarray(1), ok)


@eqx.filter_jit
def _subgroup(group, generator, ts):
    # apart from the errors: a matrix exponential takes longer to compile than all the rest, and depends on no f
    return jax.lax.map(lambda t: group.subgroup(t, generator), ts)


@eqx.filter_jit
def _orbit_errors(f, traj, x, turns, backs, output, relative):
    start = traj.at(0)
    begin = jax.vmap(f, (None, 0))(start, x)

    def one(t, params, turn, back):
        true = transform(f, start, x, turn, back, output)
        error = _rms(jax.vmap(f, (None, 0))(params, x) - true)
        # at t = 0 both norms are rounding, whose ratio may be anything
        return jnp.where(t == 0, 0, _ratio(error, _rms(true - begin)) if relative else error)

    return jax.lax.map(lambda each: one(*each), (traj.ts, traj.params, turns, backs))


@eqx.filter_jit
def _defects_left(f, traj, x, group):
    norms = jax.lax.map(lambda params: _rms(equivariance_defect(f, params, x, group)), traj.params)
    return _ratio(norms, jnp.broadcast_to(norms[0], norms.shape))


@eqx.filter_jit
def _invariant_drifts(f, traj, x, group):
    start = equivariant_projection(f, traj.at(0), x, group)
    scale = _rms(equivariance_defect(f, traj.at(0), x, group))
    moved = jax.lax.map(lambda params: _rms(equivariant_projection(f, params, x, group) - start), traj.params)
    # the start itself has not moved, whatever rounding says
    return _ratio(jnp.where(traj.ts == 0, 0, moved), jnp.broadcast_to(scale, moved.shape))
