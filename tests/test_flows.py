"""Flows: integrators of known trajectories, their clocks and their errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import COMPILED, turn

import symtutor as st

X = st.polar_probes(radii=2, angles=8)
SO2 = st.so2(nodes=8)
ETA, TO_E = st.orbit_tangent(SO2), st.symmetrizing_tangent(SO2)
W = jnp.array([1.0, 0.5])
TS = jnp.array([0.0, 0.5, 1.5])


def linear(w, x):
    return jnp.dot(w, x)


def resolved(w=W, tangent=ETA, ts=TS, **more):
    return st.resolved_flow(linear, w, X, tangent, ts, **{"ridge": 1e-7, "tolerance": 1e-6} | more)


def test_adaptive_and_fixed_steps_reach_the_circle():
    expected = np.stack([turn(t) @ W for t in TS])
    np.testing.assert_allclose(resolved().params, expected, atol=3e-5)
    np.testing.assert_allclose(resolved(steps=20).params, expected, atol=3e-5)


def test_error_follows_the_tolerance_and_costs_solves():
    errors, solves = [], []
    for tolerance in (1e-2, 1e-4, 1e-6, 1e-8):
        flow = resolved(tolerance=tolerance, ts=jnp.array([0.0, 1.0, 6.0]))
        errors.append(float(jnp.abs(flow.params[-1] - turn(6.0) @ W).max()))
        solves.append(int(flow.solves))
    assert errors == sorted(errors, reverse=True) and solves == sorted(solves)
    assert errors[-1] < 1e-6 < 1e-4 < errors[0]


def test_tolerance_is_relative_to_the_speed_at_the_start():
    # a function a thousand times larger takes the same steps
    assert int(resolved(w=1000 * W).solves) == int(resolved().solves)


def test_start_and_times_are_kept():
    flow = resolved()
    np.testing.assert_array_equal(flow.ts, TS)
    np.testing.assert_array_equal(flow.at(0), W)
    assert flow.params.shape == (3, 2) and flow.ok


def test_symmetrizing_flow_of_a_linear_function_decays():
    np.testing.assert_allclose(resolved(tangent=TO_E).params, np.exp(-TS)[:, None] * np.asarray(W), atol=1e-5)


@pytest.mark.parametrize(("clock", "s"), [("linear", lambda t: t), ("decay", lambda t: 1 - np.exp(-t))])
def test_fixed_flow_is_a_straight_line_with_its_clock(clock, s):
    flow = st.fixed_flow(linear, W, X, TO_E, TS, ridge=1e-7, clock=clock)
    np.testing.assert_allclose(flow.params, (1 - s(np.asarray(TS)))[:, None] * np.asarray(W), atol=1e-12)
    assert flow.solves == 1


def known(params):
    return st.Trajectory(TS, params, jnp.array(1), jnp.array(True))


def test_orbit_error_is_known_for_a_network_that_stands_still():
    # norm(w.x - w.R(-t)x) = 2 sin(t / 2) norm(w.x): relative error 1, whatever t
    still = known(jnp.stack([W, W, W]))
    size = float(st.function_norm(X.x @ W, X.w))
    np.testing.assert_allclose(st.orbit_error(linear, still, X.x, SO2), [0, 1, 1], atol=1e-14)
    absolute = st.orbit_error(linear, still, X.x, SO2, relative=False)
    np.testing.assert_allclose(absolute, 2 * np.sin(np.asarray(TS) / 2) * size, atol=1e-14)


def test_orbit_error_has_a_direction():
    right = known(jnp.stack([turn(t) @ W for t in TS]))
    wrong = known(jnp.stack([turn(-t) @ W for t in TS]))
    assert st.orbit_error(linear, right, X.x, SO2).max() < 1e-14
    np.testing.assert_allclose(st.orbit_error(linear, wrong, X.x, SO2)[1:], 2 * np.cos(TS[1:] / 2), atol=1e-13)


def shifted(params, x):
    """An invariant part a and a defect b."""
    return params["a"] * jnp.dot(x, x) + params["b"] * x[0]


def test_defect_and_drift_tell_the_two_parts_apart():
    traj = known({"a": jnp.array([1.0, 1.0, 3.0]), "b": jnp.array([2.0, 1.0, 1.0])})
    np.testing.assert_allclose(st.defect_left(shifted, traj, X.x, SO2), [1, 0.5, 0.5], rtol=1e-13)
    ratio = np.sqrt((np.sum(X.x**2, axis=1) ** 2).mean() / (np.asarray(X.x[:, 0]) ** 2).mean())
    np.testing.assert_allclose(st.invariant_drift(shifted, traj, X.x, SO2), [0, 0, ratio], atol=1e-13)


def test_nothing_over_nothing_is_nothing():
    traj = known({"a": jnp.zeros(3), "b": jnp.zeros(3)})
    for error in (st.orbit_error, st.defect_left, st.invariant_drift):
        np.testing.assert_array_equal(error(shifted, traj, X.x, SO2), 0)


def test_zero_tangent_stands_still():
    flow = resolved(w=jnp.zeros(2))
    assert flow.ok and not np.asarray(flow.params).any()


def test_flows_can_be_jitted_and_mapped_and_mark_failure():
    @jax.jit
    @jax.vmap
    def run(w):
        return st.resolved_flow(linear, w, X, ETA, TS, ridge=1e-7, tolerance=1e-6)

    flow = run(jnp.stack([W, 2 * W, W * jnp.nan]))
    np.testing.assert_array_equal(flow.ok, [True, True, False])
    np.testing.assert_allclose(flow.params[0], resolved().params, atol=1e-9)
    np.testing.assert_allclose(flow.params[1], 2 * resolved().params, atol=1e-5)


def test_flows_and_errors_compile_once():
    def again(scale):
        eta, so2 = st.orbit_tangent(st.so2(nodes=8)), st.so2(nodes=8)
        w, ts = np.array([scale, 1.0]), scale * np.array([0.0, 0.3, 0.7])
        before = len(COMPILED)
        for flow in (
            st.resolved_flow(linear, w, X, eta, ts, ridge=1e-4 * scale, tolerance=1e-3),
            st.fixed_flow(linear, w, X, eta, ts, ridge=1e-4 * scale),
        ):
            st.orbit_error(linear, flow, X.x, so2)
            st.defect_left(linear, flow, X.x, so2)
            st.invariant_drift(linear, flow, X.x, so2)
        return len(COMPILED) - before

    again(1.0)
    assert again(2.0) == 0
