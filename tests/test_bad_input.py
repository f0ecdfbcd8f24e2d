"""What a user gets wrong, and the sentence that says so: the argument, what was seen, what was expected."""

# ruff: noqa: E501  (a case a line reads better than one a paragraph)

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import symtutor as st
from symtutor import checks
from symtutor import mexican_hat as hat
from symtutor.fitting import minimise

X = st.polar_probes(radii=3, angles=8)
OTHERS = st.polar_probes(radii=2, angles=9, offset=0.5)
SO2 = st.so2(nodes=8)
ETA = st.orbit_tangent(SO2)
TO_E = st.symmetrizing_tangent(SO2)
W = {"w": jnp.array([1.0, 2.0])}
TS = jnp.array([0.0, 1.0])
SHORT = hat.Trajectories(X.x, X.x, X.w, X.x[:, None], X.x[:, None])  # one sample each


def f(params, x):
    return jnp.dot(params["w"], x)


def root(params, x):
    """Not finite below w_0 = 0, and not differentiable there: one program for many failures."""
    return jnp.sqrt(params["w"][0]) + x[0] + params["w"][1] * x[1]


def lift(f=f, params=W, probes=X, tangent=ETA, **more):
    return st.lift(f, params, probes, tangent, **{"ridge": 1e-3} | more)


def flow(f=f, params=W, probes=X, tangent=ETA, ts=TS, **more):
    return st.resolved_flow(f, params, probes, tangent, ts, **{"ridge": 1e-3} | more)


def fixed(ts=TS, **more):
    return st.fixed_flow(f, W, X, ETA, ts, **{"ridge": 1e-3} | more)


def trajectory():
    return st.Trajectory(TS, {"w": jnp.ones((2, 2))}, jnp.array(1), jnp.array(True))


def reweighted(w, x=X.x):
    return st.Probes(x, w)


@dataclasses.dataclass
class Unhashable:
    scale: float

    def __call__(self, params, x):
        return self.scale * f(params, x)


def subset(scores=W, sizes=(1, 2), probes=X, heldout=OTHERS, f=f, params=W, tangent=ETA, **more):
    return st.subset_check(f, params, probes, tangent, scores, heldout, sizes, **{"ridge": 1e-3} | more)


def nan_at_one(f, params, x):
    return jnp.where(x[:, 0] > 2.2, jnp.nan, x[:, 0])


def nan_in_f(params, x):
    """Not finite at a probe, with a Jacobian that is."""
    return jnp.where(x[0] > 2.2, jnp.nan, f(params, x))


def band(f=f, params=W, probes=X, tangent=ETA, ridges=(1e-3,), **more):
    return st.attribution_band(f, params, [probes], tangent, ridges, **more)


def greedy(f=f, params=W, probes=X, tangent=ETA, k=1, **more):
    return st.greedy_scores(f, params, probes, tangent, k, **more)


def attributed(shares):
    return st.Attribution(shares, jnp.array(1.0), shares)


BATCH = st.Attribution(jnp.ones((2, 3)), jnp.ones(2), jnp.ones((2, 3)))


def descend(checkpoints):
    return minimise(f, W, X.x[0], optax.sgd(0.1), 3, checkpoints=checkpoints)


NARROW = {"w": jnp.array([1.0, 2.0], jnp.float32)}
N = X.x.shape[0]
EVEN = X.w

CASES = {
    # parameters
    "params not finite": (lambda: lift(params={"w": jnp.array([1.0, jnp.nan])}), ValueError, "params['w'] holds nan at index (1,); expected finite"),
    "params of integers": (lambda: lift(params={"w": jnp.array([1, 2])}), TypeError, "params['w'] is int64; expected a float array"),
    "params of Python floats": (lambda: lift(params={"w": [1.0, 2.0]}), TypeError, "params['w'][0] is float; expected a float array"),
    "params of strings": (lambda: lift(params={"w": W["w"], "name": "net"}), TypeError, "params['name'] is str; expected a float array"),
    "params of complex": (lambda: lift(params={"w": jnp.array([1.0 + 1j, 2.0])}), TypeError, "params['w'] is complex128; expected a float array"),
    "params empty": (lambda: lift(params={}), ValueError, "params has no leaves; expected a pytree of float arrays"),
    "params None": (lambda: lift(params=None), ValueError, "params has no leaves; expected a pytree of float arrays"),
    "params a network": (lambda: lift(params=st.mlp((2, 3, 1))), TypeError, "params.init is function; expected a float array"),
    # f
    "f no function": (lambda: lift(f=W), TypeError, "f is dict; expected a function f(params, x)"),
    "f a network": (lambda: lift(f=st.mlp((2, 3, 1))), TypeError, "f is Network; expected a function f(params, x)"),
    "f and params swapped": (lambda: st.lift(W, f, X, ETA), TypeError, "params is function; expected a float array"),
    "f batched": (lambda: lift(f=lambda p, x: jnp.zeros((N, 1)) + p["w"].sum()), ValueError, "f(params, x) returns shape (24, 1) for one input of shape (2,); expected () or (k,)"),
    "f batched that fails on one input": (lambda: lift(f=lambda p, x: x[:, 0] * p["w"][0]), ValueError, "f(params, x) fails on one input of shape (2,)"),
    "f unhashable": (lambda: lift(f=Unhashable(2.0)), TypeError, "f is a Unhashable, which cannot be hashed; expected a function, a method or a frozen dataclass"),
    "f of a tuple": (lambda: lift(f=lambda p, x: (f(p, x), x)), TypeError, "f(params, x) returns tuple; expected one float array"),
    "f of integers": (lambda: lift(f=lambda p, x: jnp.array(1)), TypeError, "f(params, x) returns int64; expected one float array"),
    "f of None": (lambda: lift(f=lambda p, x: None), TypeError, "f(params, x) returns NoneType; expected one float array"),
    "f arguments swapped": (lambda: lift(f=lambda x, p: f(p, x)), ValueError, "f(params, x) fails on one input of shape (2,)"),
    "f not finite at one probe": (lambda: lift(f=lambda p, x: jnp.where(x[0] > 2.2, jnp.nan, f(p, x))), ValueError, "f(params, x) holds nan at index (16,) (probe first); expected finite values"),
    "f not finite": (lambda: lift(f=root, params={"w": jnp.array([-1.0, 1.0])}), ValueError, "f(params, x) holds nan at index (0,) (probe first); expected finite values"),
    "Jacobian not finite": (lambda: lift(f=root, params={"w": jnp.array([0.0, 1.0])}), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0) (probe first); expected finite values"),
    "tangent not finite": (lambda: lift(tangent=lambda f, p, x: x[:, 0] / 0.0), ValueError, "the tangent holds"),
    # probes
    "probes a bare array": (lambda: lift(probes=X.x), TypeError, "probes is ArrayImpl; expected Probes(x, w)"),
    "probes and tangent swapped": (lambda: st.lift(f, W, ETA, X), TypeError, "probes is OrbitTangent; expected Probes(x, w)"),
    "probes empty": (lambda: lift(probes=reweighted(jnp.zeros(0), jnp.zeros((0, 2)))), ValueError, "probes.x has shape (0, 2); expected (N, ...) with at least one point"),
    "probes of a list": (lambda: lift(probes=st.Probes(X.x.tolist(), EVEN)), TypeError, "probes.x is list; expected a float array of shape (N, ...)"),
    "probes of integers": (lambda: lift(probes=reweighted(EVEN, X.x.astype(int))), TypeError, "probes.x has dtype int64; expected floats"),
    "probes not finite": (lambda: lift(probes=reweighted(EVEN, X.x.at[3, 1].set(jnp.inf))), ValueError, "probes.x holds inf at index (3, 1); expected finite"),
    "weights negative": (lambda: lift(probes=reweighted(EVEN.at[0].set(-EVEN[0]))), ValueError, "probes.w has the negative weight -0.0417; expected none below 0"),
    "weights off 1": (lambda: lift(probes=reweighted(2 * EVEN)), ValueError, "probes.w sums to 2; expected 1"),
    "weights not finite": (lambda: lift(probes=reweighted(EVEN.at[1].set(jnp.nan))), ValueError, "probes.w holds nan at index (1,); expected finite"),
    "weights too few": (lambda: lift(probes=reweighted(jnp.array([0.5, 0.5]))), ValueError, "probes.w has shape (2,); expected (24,), a weight a point"),
    "weights a list": (lambda: st.probes_from_data(X.x, [1 / N] * N), TypeError, "probes.w is list; expected a float array"),
    "data a list": (lambda: st.probes_from_data([[1.0, 2.0]]), TypeError, "x is list; expected a float array of shape (N, ...)"),
    "radii 0": (lambda: st.polar_probes(radii=0), ValueError, "radii is 0; expected a positive whole number"),
    "angles a float": (lambda: st.polar_probes(angles=8.0), ValueError, "angles is 8.0; expected a positive whole number"),
    "angles a bool": (lambda: st.polar_probes(angles=True), ValueError, "angles is True; expected a positive whole number"),
    "rmax negative": (lambda: st.polar_probes(rmax=-1.0), ValueError, "rmax is -1.0; expected a positive finite number"),
    "offset NaN": (lambda: st.polar_probes(offset=float("nan")), ValueError, "offset is nan; expected a finite fraction"),
    "rmax a string": (lambda: st.polar_probes(rmax="2.5"), TypeError, "rmax is '2.5'; expected a positive finite number"),
    # held-out probes
    "held-out overlaps": (lambda: lift(heldout=X), ValueError, "heldout shares 24 of its 24 points with probes (the first is number 0, probe 0); expected points that the solve does not use"),
    "held-out of another shape": (lambda: lift(heldout=st.probes_from_data(jnp.ones((4, 3)))), ValueError, "heldout.x holds inputs of shape (3,); expected (2,)"),
    "held-out a bare array": (lambda: lift(heldout=OTHERS.x), TypeError, "heldout is ArrayImpl; expected Probes(x, w)"),
    "held-out missing": (lambda: st.choose_ridge(f, W, X, ETA, heldout=None), TypeError, "heldout is NoneType; expected Probes(x, w)"),
    # tangents and groups
    "tangent no function": (lambda: lift(tangent=X.x), TypeError, "tangent is ArrayImpl; expected a function (f, params, x) -> (N,) or (N, k)"),
    "tangent a group": (lambda: lift(tangent=SO2), TypeError, "tangent is Group; expected a function"),
    "tangent of another shape": (lambda: lift(tangent=lambda f, p, x: x), ValueError, "tangent(f, params, x) has shape (24, 2); expected (24,), f's own"),
    "tangent of one point": (lambda: lift(tangent=lambda f, p, x: f(p, x)), ValueError, "tangent(f, params, x) fails"),
    "generator too large": (lambda: st.orbit_tangent(SO2, generator=1), ValueError, "generator is 1, but so2 has 1 generators; expected one of them, from 0"),
    "generator negative": (lambda: st.orbit_tangent(SO2, generator=-1), ValueError, "generator is -1, but so2 has 1"),
    "generator a bool": (lambda: st.orbit_tangent(SO2, generator=False), ValueError, "generator is False, but so2 has 1"),
    "generator a matrix": (lambda: st.orbit_tangent(SO2, generator=np.eye(2)), ValueError, "generator is array"),
    "group no group": (lambda: st.orbit_tangent("so2"), TypeError, "group is str; expected a Group, such as st.so2()"),
    "group called by name only": (lambda: st.symmetrizing_tangent(st.so2), TypeError, "group is function; expected a Group, such as st.so2()"),
    "orbit of a finite group": (lambda: st.orbit_tangent(st.cyclic(4)), ValueError, "generator is 0, but cyclic(4) has 0"),
    "generator of another size": (lambda: lift(f=lambda p, x: x.sum() * p["w"][0], probes=st.probes_from_data(jnp.eye(3))), ValueError, "group so2 acts on inputs whose first axis has length 2, but one input has shape (3,)"),
    "average of a non-compact group": (lambda: st.symmetrizing_tangent(st.shear()), ValueError, "group shear is not compact: it has no Haar average"),
    "defect of a non-compact group": (lambda: st.equivariance_defect(f, W, X.x, st.dilation()), ValueError, "group dilation is not compact: it has no Haar average"),
    "vector output of a scalar": (lambda: lift(tangent=st.orbit_tangent(st.so2(output="vector"))), ValueError, "group so2 has output='vector', but f's output has shape (); expected (2,)"),
    "unknown output": (lambda: st.so2(output="covector"), ValueError, "output is 'covector'; expected 'invariant' or 'vector'"),
    "nodes 0": (lambda: st.so2(nodes=0), ValueError, "nodes is 0; expected a positive whole number"),
    "nodes a bool": (lambda: st.so2(nodes=True), ValueError, "nodes is True; expected a positive whole number"),
    "turns a float": (lambda: st.cyclic(4.0), ValueError, "n is 4.0; expected a positive whole number"),
    "dimension 0": (lambda: st.reflection(0), ValueError, "dimension is 0; expected a positive whole number"),
    "dilation dimension": (lambda: st.dilation(-1), ValueError, "dimension is -1; expected a positive whole number"),
    "elements not orthogonal": (lambda: st.Group("odd", elements=(((2.0, 0.0), (0.0, 1.0)),), weights=(1.0,)), ValueError, "group odd: an element is off orthogonality by 3; expected g g^T = 1"),
    "group weights off 1": (lambda: st.Group("odd", elements=(((1.0,),),), weights=(0.5,)), ValueError, "group odd: weights sum to 0.5 (least 0.5); expected non-negative weights with sum 1"),
    "group weights too few": (lambda: st.Group("odd", elements=(((1.0,),),)), ValueError, "group odd has 1 elements and 0 weights; expected a weight an element"),
    "matrices not finite": (lambda: st.Group("odd", (((jnp.nan, 0.0), (0.0, 0.0)),)), ValueError, "group odd: a matrix is not finite; expected finite generators and elements"),
    "elements not finite": (lambda: st.Group("odd", (), (((jnp.nan,),),), (1.0,)), ValueError, "group odd: a matrix is not finite; expected finite generators and elements"),
    "group weights not finite": (lambda: st.Group("odd", (), (((1.0,),),), (jnp.nan,)), ValueError, "group odd: weights sum to nan (least nan); expected non-negative weights with sum 1"),
    "group of strings": (lambda: st.Group("odd", "ab"), TypeError, "group odd: generators, elements or weights are not of numbers"),
    "group of ragged rows": (lambda: st.Group("odd", [[[1.0], [1.0, 2.0]]]), TypeError, "group odd: generators, elements or weights are not of numbers"),
    "subgroup of a generator it lacks": (lambda: st.so2(8).subgroup(0.1, 3), ValueError, "generator is 3, but so2 has 1 generators; expected one of them, from 0"),
    "orbit at many times": (lambda: st.orbit(f, W, X.x, SO2, jnp.array([0.1, 0.2])), ValueError, "t has shape (2,); expected one number"),
    "orbit at NaN": (lambda: st.orbit(f, W, X.x, SO2, jnp.nan), ValueError, "t is nan; expected a finite number"),
    "orbit at a string": (lambda: st.orbit(f, W, X.x, SO2, "a"), TypeError, "t is 'a'; expected a finite number"),
    "group without matrices": (lambda: st.Group("none"), ValueError, "group none: generators and elements have shapes []; expected square matrices of one size"),
    # solving
    "ridge negative": (lambda: lift(ridge=-1e-3), ValueError, "ridge is -0.001; expected a finite number of at least 0"),
    "ridge NaN": (lambda: lift(ridge=float("nan")), ValueError, "ridge is nan; expected a finite number of at least 0"),
    "ridge infinite": (lambda: lift(ridge=jnp.inf), ValueError, "ridge is inf; expected a finite number of at least 0"),
    "ridge an array": (lambda: lift(ridge=jnp.array([1e-3, 1e-2])), ValueError, "ridge has shape (2,); expected one number"),
    "ridge a string": (lambda: lift(ridge="auto"), TypeError, "ridge is 'auto'; expected a finite number of at least 0"),
    "ridge None": (lambda: lift(ridge=None), TypeError, "ridge is None; expected a finite number of at least 0"),
    "ridge below the dtype": (lambda: lift(ridge=1e-17), ValueError, "ridge is 1e-17, below what float64 supports; expected 0 (a pseudo-inverse), or at least 2.2e-16"),
    "ridge unsound for a Gram solver": (lambda: lift(ridge=1e-9, solver="eigh"), ValueError, "ridge is 1e-09, unsound for solver='eigh' in float64; expected at least 4.7e-08, or solver='svd'"),
    "unknown solver": (lambda: lift(solver="lstsq"), ValueError, "solver is 'lstsq'; expected one of 'auto', 'gram', 'cholesky', 'eigh', 'svd', 'lsmr'"),
    "floor negative": (lambda: lift(floor=-1.0), ValueError, "floor is -1.0; expected a finite number of at least 0"),
    "chunk size 0": (lambda: lift(chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "chunk size a bool": (lambda: lift(chunk_size=True), ValueError, "chunk_size is True; expected None or a positive whole number of probes"),
    "ridges a number": (lambda: st.choose_ridge(f, W, X, ETA, OTHERS, ridges=1e-3), ValueError, "ridges has shape (); expected (R,), at least one"),
    "ridges hold a negative": (lambda: st.choose_ridge(f, W, X, ETA, OTHERS, ridges=[1e-3, -1.0]), ValueError, "an entry of ridges is -1.0; expected a finite number of at least 0"),
    # flows
    "ts not from 0": (lambda: flow(ts=jnp.array([0.1, 1.0])), ValueError, "ts runs [0.1 1. ]; expected finite times that increase strictly from 0"),
    "ts falling": (lambda: fixed(ts=jnp.array([0.0, 2.0, 1.0])), ValueError, "ts runs [0. 2. 1.]; expected finite times that increase strictly from 0"),
    "ts one time": (lambda: flow(ts=jnp.array([0.0])), ValueError, "ts has shape (1,); expected (T,) with at least two times"),
    "ts a number": (lambda: fixed(ts=1.0), ValueError, "ts has shape (); expected (T,) with at least two times"),
    "ts NaN": (lambda: flow(ts=[0.0, float("nan")]), ValueError, "ts runs [ 0. nan]; expected finite times"),
    "ts strings": (lambda: flow(ts=["0", "1"]), TypeError, "ts is ['0', '1']; expected a float array of shape (T,)"),
    "steps negative": (lambda: flow(steps=-4), ValueError, "steps is -4; expected a positive whole number"),
    "steps a float": (lambda: flow(steps=4.0), ValueError, "steps is 4.0; expected a positive whole number"),
    "max_steps 0": (lambda: flow(max_steps=0), ValueError, "max_steps is 0; expected a positive whole number"),
    "tolerance 0": (lambda: flow(tolerance=0.0), ValueError, "tolerance is 0.0; expected a positive finite number"),
    "tolerance NaN": (lambda: flow(tolerance=float("nan")), ValueError, "tolerance is nan; expected a positive finite number"),
    "unknown clock": (lambda: fixed(clock="log"), ValueError, "clock is 'log'; expected 'linear' or 'decay'"),
    "not finite in a resolved flow": (lambda: flow(f=root, params={"w": jnp.array([0.0, 1.0])}, max_steps=2), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0)"),
    "not finite in a fixed flow": (lambda: st.fixed_flow(root, {"w": jnp.array([0.0, 1.0])}, X, ETA, TS, ridge=1e-3), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0)"),
    "too few steps": (lambda: flow(f=root, ts=[0.0, 30.0], max_steps=2), FloatingPointError, "the flow did not reach t = 30 within 2 steps at ridge 0.001 and tolerance 1e-05"),
    "trajectory of bare params": (lambda: st.orbit_error(f, W, X.x, SO2), TypeError, "traj is dict; expected a Trajectory"),
    "probes for x": (lambda: st.defect_left(f, trajectory(), X, SO2), TypeError, "x is Probes; expected a float array of shape (N, ...)"),
    "drift of a non-compact group": (lambda: st.invariant_drift(f, trajectory(), X.x, st.shear()), ValueError, "group shear is not compact"),
    "orbit error of a finite group": (lambda: st.orbit_error(f, trajectory(), X.x, st.cyclic(4)), ValueError, "generator is 0, but cyclic(4) has 0 generators"),
    "orbit error of a scalar turned": (lambda: st.orbit_error(f, trajectory(), X.x, st.so2(output="vector")), ValueError, "group so2 has output='vector', but f's output has shape (); expected (2,)"),
    "flow of two precisions": (lambda: flow(params=NARROW), TypeError, "params are float32 and probes.x is float64; expected one precision. Make both after st.enable_x64()"),
    # exact lifts and attribution
    "exact lift of other params": (lambda: st.exact_lift(W, SO2), TypeError, "params is not that of a network of st.mlp; expected a list of {'W': (out, in), 'b': (out,)}"),
    "exact lift of another size": (lambda: st.exact_lift(st.mlp((3, 1)).init(jax.random.key(0)), SO2), ValueError, "group so2 acts on inputs whose first axis has length 2, but one input has shape (3,)"),
    "exact lift of a scalar turned": (lambda: st.exact_lift(st.mlp((2, 1)).init(jax.random.key(0)), st.so2(output="vector")), ValueError, "group so2 has output='vector', but f's output has shape (1,); expected (2,)"),
    "attribution of a direction": (lambda: st.attribute(f, W, X, ETA, W), TypeError, "c is dict; expected the Lift that st.lift returned"),
    "attribution at other params": (lambda: st.attribute(f, {"w": jnp.ones(2), "v": jnp.ones(2)}, X, ETA, lift()), ValueError, "c.direction has"),
    "top 0": (lambda: st.attribute(f, W, X, ETA, lift()).top(0), ValueError, "k is 0; expected a positive whole number"),
    "band of no probes": (lambda: st.attribution_band(f, W, [], ETA, [1e-3]), ValueError, "probe_sets is empty; expected at least one Probes"),
    "band of bare points": (lambda: st.attribution_band(f, W, [X, X.x], ETA, [1e-3]), TypeError, "probe_sets[1] is ArrayImpl; expected Probes(x, w)"),
    "band of no ridges": (lambda: st.attribution_band(f, W, [X], ETA, []), ValueError, "ridges has shape (0,); expected (R,), at least one"),
    "band of a negative ridge": (lambda: st.attribution_band(f, W, [X], ETA, [-1.0]), ValueError, "an entry of ridges is -1.0; expected a finite number of at least 0"),
    "overlap 0": (lambda: st.attribution_band(f, W, [X], ETA, [1e-3]).overlap(0), ValueError, "k is 0; expected a positive whole number"),
    "band of nothing": (lambda: st.attribution_band(f, W, None, ETA, [1e-3]), TypeError, "probe_sets is NoneType; expected a sequence of Probes"),
    "band of ridges None": (lambda: band(ridges=None), TypeError, "ridges is None; expected a float array of shape (R,)"),
    "band of ridges of strings": (lambda: band(ridges=["a"]), TypeError, "ridges is ['a']; expected a float array of shape (R,)"),
    "band of a dict of ridges": (lambda: band(ridges={"a": 1}), TypeError, "ridges is {'a': 1}; expected a float array of shape (R,)"),
    "band of a ridge below the dtype": (lambda: band(ridges=[1e-20]), ValueError, "an entry of ridges is 1e-20, below what float64 supports; expected 0 (a pseudo-inverse), or at least 2.2e-16"),
    "band of a tangent not finite": (lambda: band(tangent=nan_at_one), ValueError, "the tangent holds nan at index (16,) (probe first); expected finite values"),
    "band of f not finite": (lambda: band(nan_in_f), ValueError, "f(params, x) holds nan at index (16,) (probe first)"),
    "band of a Jacobian not finite": (lambda: band(root, {"w": jnp.array([0.0, 1.0])}), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0) (probe first)"),
    "subset of a tangent not finite": (lambda: subset(tangent=nan_at_one), ValueError, "the tangent holds nan at index (16,) (probe first); expected finite values"),
    "subset of f not finite": (lambda: subset(f=nan_in_f), ValueError, "f(params, x) holds nan at index (16,) (probe first)"),
    "subset of a Jacobian not finite": (lambda: subset(f=root, params={"w": jnp.array([0.0, 1.0])}), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0) (probe first)"),
    "greedy of a tangent not finite": (lambda: greedy(tangent=nan_at_one), ValueError, "the tangent holds nan at index (16,) (probe first); expected finite values"),
    "greedy of f not finite": (lambda: greedy(nan_in_f), ValueError, "f(params, x) holds nan at index (16,) (probe first)"),
    "greedy of a Jacobian not finite": (lambda: greedy(root, {"w": jnp.array([0.0, 1.0])}), ValueError, "the Jacobian by params['w'] holds inf at index (0, 0) (probe first)"),
    "attribution chunk size 0": (lambda: st.attribute(f, W, X, ETA, lift(), chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "band chunk size 0": (lambda: band(chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "band chunk size 0 without J": (lambda: band(lambda p, x: jnp.sin(p["w"] * x[0]).sum(), {"w": jnp.ones(40)}, chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "subset chunk size 0": (lambda: subset(chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "greedy chunk size 0": (lambda: greedy(chunk_size=0), ValueError, "chunk_size is 0; expected None or a positive whole number of probes"),
    "axis too large": (lambda: attributed(jnp.ones((2, 3))).by_neuron(axis=2), ValueError, "axis is 2; expected an axis of the weight of shape (2, 3) under ''"),
    "axis a float": (lambda: attributed(jnp.ones((2, 3))).by_neuron(axis=0.5), ValueError, "axis is 0.5; expected an axis of the weight of shape (2, 3)"),
    "axis None": (lambda: attributed(jnp.ones(3)).by_neuron(axis=None), ValueError, "axis is None; expected an axis of the weight of shape (3,)"),
    "layers of a batch": (lambda: BATCH.by_layer(), ValueError, "explained has shape (2,); expected (): index the batch first"),
    "neurons of a batch": (lambda: BATCH.by_neuron(), ValueError, "explained has shape (2,); expected (): index the batch first"),
    "top of a batch": (lambda: BATCH.top(1), ValueError, "explained has shape (2,); expected (): index the batch first"),
    "positive of a batch": (lambda: BATCH.positive, ValueError, "explained has shape (2,); expected (): index the batch first"),
    "negative of a batch": (lambda: BATCH.negative, ValueError, "explained has shape (2,); expected (): index the batch first"),
    "top of traced shares": (lambda: jax.jit(lambda s: attributed(s).top(1))(jnp.ones(2)), TypeError, "shares are traced, by jax.jit or jax.vmap; expected values"),
    "restrict of no function": (lambda: st.restrict(W, W, W, 1), TypeError, "f is dict; expected a function f(params, x) of one input"),
    "restrict to a bool": (lambda: st.restrict(f, W, W, True), ValueError, "k is True; expected a whole number from 1 to 2, the number of parameters"),
    "restrict to 0": (lambda: st.restrict(f, W, W, 0), ValueError, "k is 0; expected a whole number from 1 to 2, the number of parameters"),
    "restrict to more": (lambda: st.restrict(f, W, W, 3), ValueError, "k is 3; expected a whole number from 1 to 2, the number of parameters"),
    "scores of integers": (lambda: st.restrict(f, W, {"w": jnp.array([1, 2])}, 1), TypeError, "scores['w'] is int64; expected a float array"),
    "scores of another shape": (lambda: subset(scores={"w": jnp.ones(3)}), ValueError, "scores has a leaf of shape (3,) at ['w']; expected (2,), as in params"),
    "scores of more leaves": (lambda: subset(scores=W | {"z": jnp.ones(1)}), ValueError, "scores has another tree structure than params; expected one number a parameter"),
    "scores not finite": (lambda: subset(scores={"w": jnp.array([1.0, jnp.nan])}), ValueError, "scores['w'] holds nan at index (1,); expected finite values"),
    "sizes falling": (lambda: subset(sizes=[2, 1]), ValueError, "sizes are [2, 1]; expected whole numbers that increase from at least 1"),
    "sizes ragged": (lambda: subset(sizes=[[1], [1, 2]]), ValueError, "sizes are [[1], [1, 2]]; expected whole numbers that increase from at least 1"),
    "sizes of floats": (lambda: subset(sizes=[1.0, 2.0]), ValueError, "sizes are [1.0, 2.0]; expected whole numbers that increase from at least 1"),
    "sizes too large": (lambda: subset(sizes=[1, 5]), ValueError, "sizes go up to 5; expected at most 2, the number of parameters"),
    "subset on its own held-out": (lambda: subset(heldout=X), ValueError, "heldout shares 24 of its 24 points with probes"),
    "subset ridge negative": (lambda: subset(ridge=-1.0), ValueError, "ridge is -1.0; expected a finite number of at least 0"),
    "area of one size": (lambda: subset(sizes=[2]).area(), ValueError, "sizes are [2]; expected at least two for an area"),
    "greedy of 0": (lambda: st.greedy_scores(f, W, X, ETA, 0), ValueError, "k is 0; expected a whole number from 1 to 2, the number of parameters"),
    "greedy of more": (lambda: greedy(k=3), ValueError, "k is 3; expected a whole number from 1 to 2, the number of parameters"),
    # networks and data
    "sizes of one": (lambda: st.mlp((2,)), ValueError, "sizes is (2,); expected at least two positive whole numbers"),
    "sizes a number": (lambda: st.mlp(2), TypeError, "sizes is 2; expected at least two positive whole numbers"),
    "sizes 0": (lambda: st.mlp((2, 0, 1)), ValueError, "sizes is (2, 0, 1); expected at least two positive whole numbers"),
    "odd n": (lambda: st.annulus.data(jax.random.key(0), n=7), ValueError, "n is 7; expected a positive even number"),
    "sector reversed": (lambda: st.annulus.data(jax.random.key(0), sector=(1.0, 0.0)), ValueError, "sector is (1.0, 0.0); expected two increasing angles"),
    "labels too few": (lambda: st.annulus.train(jax.random.key(0), st.mlp((2, 1)), X.x, jnp.zeros(3, int)), ValueError, "y has shape (3,); expected (24,), a label a point"),
    "labels of -1": (lambda: st.annulus.train(jax.random.key(0), st.mlp((2, 1)), X.x, -jnp.ones(24, int)), ValueError, "y holds [-1]; expected labels 0 and 1"),
    "two logits": (lambda: st.annulus.train(jax.random.key(0), st.mlp((2, 2)), X.x, jnp.zeros(24, int)), ValueError, "net has an output of shape (2,); expected one logit"),
    "no training": (lambda: st.annulus.train(jax.random.key(0), st.mlp((2, 1)), X.x, jnp.zeros(24, int), steps=0), ValueError, "steps is 0; expected a positive whole number"),
    "learning rate negative": (lambda: st.annulus.train(jax.random.key(0), st.mlp((2, 1)), X.x, jnp.zeros(24, int), learning_rate=-1.0), ValueError, "learning_rate is -1.0; expected a positive finite number"),
    "net of params": (lambda: st.annulus.train(jax.random.key(0), W, X.x, jnp.zeros(24, int)), TypeError, "net is dict; expected a Network"),
    # Hamiltonians and their data
    "width 0": (lambda: st.asrnn(width=0), ValueError, "width is 0; expected a positive whole number"),
    "width a float": (lambda: st.hnn(width=8.0), ValueError, "width is 8.0; expected a positive whole number"),
    "steps of a simulation": (lambda: hat.simulate(X.x, X.x, X.w, 0.1, 0), ValueError, "steps is 0; expected a positive whole number"),
    "finer 0": (lambda: hat.simulate(X.x, X.x, X.w, 0.1, 5, finer=0), ValueError, "finer is 0; expected a positive whole number"),
    "dt negative": (lambda: hat.simulate(X.x, X.x, X.w, -0.1, 5), ValueError, "dt is -0.1; expected a positive finite number"),
    "dt a string": (lambda: hat.simulate(X.x, X.x, X.w, "0.1", 5), TypeError, "dt is '0.1'; expected a positive finite number"),
    "no trajectories": (lambda: hat.trajectories(jax.random.key(0), n=0), ValueError, "n is 0; expected a positive whole number"),
    "no starts": (lambda: hat.starts(jax.random.key(0), n=True), ValueError, "n is True; expected a positive whole number"),
    "starts without a circle": (lambda: hat.starts(jax.random.key(0), a=-1.0), ValueError, "a is -1.0; expected a positive finite number"),
    "a simulation of other shapes": (lambda: hat.simulate(X.x, X.x[1:], X.w, 0.1, 5), ValueError, "q, p and a have shapes"),
    "trajectories of another length": (
        lambda: hat.train(jax.random.key(0), st.asrnn(width=2), data=SHORT), ValueError, "data has 1 samples a trajectory; expected 15"
    ),
    "a network for a Hamiltonian": (
        lambda: hat.train(jax.random.key(0), st.mlp((2, 1))), TypeError, "ham is Network; expected a Hamiltonian"
    ),
    "no training of a Hamiltonian": (lambda: hat.train(jax.random.key(0), st.asrnn(width=2), steps=0), ValueError, "steps is 0; expected a positive whole number"),
    "minimise for a float": (lambda: minimise(f, W, X.x, optax.sgd(0.1), 3.0), ValueError, "steps is 3.0; expected a positive whole number"),
    "checkpoints falling": (lambda: descend([2, 1]), ValueError, "checkpoints are [2, 1]; expected whole numbers that increase, from 0 to steps = 3"),
    "checkpoints too late": (lambda: descend([4]), ValueError, "checkpoints are [4]; expected whole numbers that increase, from 0 to steps = 3"),
    "checkpoints of floats": (lambda: descend([1.0]), ValueError, "checkpoints are [1.0]; expected whole numbers that increase, from 0 to steps = 3"),
    "checkpoints a number": (lambda: descend(10), ValueError, "checkpoints are 10; expected whole numbers that increase, from 0 to steps = 3"),
    "checkpoints None": (lambda: descend(None), ValueError, "checkpoints are None; expected whole numbers that increase, from 0 to steps = 3"),
    "checkpoints of bools": (lambda: descend([True]), ValueError, "checkpoints are [True]; expected whole numbers that increase, from 0 to steps = 3"),
    # orbits of probes
    "orbit of a list": (lambda: st.orbit_probes([[1.0, 0.0]], SO2), TypeError, "x is list; expected a float array of shape (N, ...)"),
    "orbit of integers": (lambda: st.orbit_probes(jnp.ones((3, 2), int), SO2), TypeError, "x has dtype int64; expected floats"),
    "orbit of no points": (lambda: st.orbit_probes(jnp.zeros((0, 2)), SO2), ValueError, "x has shape (0, 2); expected (N, ...) with at least one point"),
    "orbit not finite": (lambda: st.orbit_probes(jnp.array([[1.0, jnp.nan]]), SO2), ValueError, "x holds nan at index (0, 1); expected finite"),
    "orbit of no group": (lambda: st.orbit_probes(X.x, "so2"), TypeError, "group is str; expected a Group, such as st.so2()"),
    "orbit without elements": (lambda: st.orbit_probes(X.x, st.shear()), ValueError, "group shear is not compact"),
    "orbit of another size": (lambda: st.orbit_probes(jnp.ones((4, 3)), SO2), ValueError, "group so2 acts on inputs whose first axis has length 2, but one input has shape (3,)"),
    "orbit of one input": (lambda: st.orbit_probes(jnp.ones(2), SO2), ValueError, "group so2 acts on inputs whose first axis has length 2, but one input has shape ()"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_is_refused_by_name(case):
    call, error, said = CASES[case]
    with pytest.raises(error, match=re.escape(said)):
        call()


def test_tangent_below_the_floor_warns_and_gives_zero():
    with pytest.warns(UserWarning, match="the tangent has norm 0, below the floor.*the direction is zero"):
        c = lift(params={"w": jnp.zeros(2)})
    assert c.below_floor and not c.direction["w"].any() and c.ok


def test_probes_that_are_not_closed_warn_with_the_measured_cosine():
    probes = st.probes_from_data(X.x[:9] + 0.5)
    cosine = abs(float(st.orthogonality(f, W, probes, SO2)))
    with pytest.warns(UserWarning, match=f"eta and delta of so2 have cosine {cosine:.2g} on these probes, where 0 was"):
        lift(probes=probes)


def test_choosing_a_ridge_warns_as_a_lift_does():
    with pytest.warns(UserWarning, match="the tangent has norm 0, below the floor"):
        st.choose_ridge(f, {"w": jnp.zeros(2)}, X, ETA, OTHERS, ridges=[1e-3])
    with pytest.warns(UserWarning, match="eta and delta of so2 have cosine"):
        st.choose_ridge(f, W, st.probes_from_data(X.x[:9] + 0.5), ETA, OTHERS, ridges=[1e-3])


@pytest.mark.parametrize("call", [band, subset, greedy])
def test_attributing_warns_as_a_lift_does(call):
    with pytest.warns(UserWarning, match="the tangent has norm 0, below the floor"):
        call(params={"w": jnp.zeros(2)})
    with pytest.warns(UserWarning, match="eta and delta of so2 have cosine"):
        call(probes=st.probes_from_data(X.x[:9] + 0.5))


@pytest.mark.filterwarnings("error")
def test_functions_of_large_values_are_lifted():
    steep = lift(f=lambda p, x: f(p, x) + jnp.where(x[0] > 0, 1e200, -1e200), floor=0.0)
    np.testing.assert_allclose(steep.direction["w"], lift().direction["w"], rtol=1e-12)


def test_a_fixed_flow_keeps_the_precision_of_each_leaf():
    mixed = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(())}
    flow = st.fixed_flow(lambda p, x: jnp.dot(p["a"].astype(x.dtype), x) + p["b"] * x[0], mixed, X, ETA, TS, ridge=1e-3)
    assert {k: v.dtype.name for k, v in flow.params.items()} == {"a": "float32", "b": "float64"}


def test_what_f_closes_over_is_read_when_it_is_compiled_as_by_jax_jit():
    scale = [2.0]

    def scaled(params, x):
        return scale[0] * f(params, x)

    before = st.sensitivity(scaled, W, X)["w"]
    scale[0] = 3.0
    np.testing.assert_array_equal(st.sensitivity(scaled, W, X)["w"], before)  # the API page says so
    again = st.sensitivity(lambda params, x: scaled(params, x), W, X)["w"]  # defined anew, read anew
    np.testing.assert_allclose(again, 1.5 * before)


@pytest.mark.filterwarnings("error")
def test_good_input_of_other_kinds_passes_without_a_warning():
    wanted = lift().direction["w"]
    numpy = st.Probes(np.asarray(X.x), np.asarray(X.w))
    for more in (
        {"probes": numpy},
        {"params": {"w": np.asarray(W["w"])}},
        {"params": W | {"unused": None}},
        {"ridge": np.float64(1e-3)},
        {"ridge": jnp.array(1e-3)},
        {"heldout": OTHERS},
    ):
        np.testing.assert_allclose(lift(**more).direction["w"], wanted, atol=1e-12)
    assert lift(ridge=1).ok and lift(ridge=0).ok
    for ts in ([0, 1], np.array([0, 1]), (0.0, 1.0)):
        np.testing.assert_allclose(fixed(ts=ts).params["w"][1], W["w"] + wanted, atol=1e-12)


def test_shapes_that_are_remembered_are_those_of_these_arguments():
    f = lambda w, x: jnp.dot(w, x)  # noqa: E731
    assert checks.output_shape(f, jnp.zeros(2), jnp.zeros((1, 2))) == ()
    assert checks.output_shape(f, jnp.zeros((3, 2)), jnp.zeros((1, 2))) == (3,)
    for _ in range(2):  # what failed once is no memory
        with pytest.raises(ValueError, match="fails on one input of shape"):
            checks.output_shape(f, jnp.zeros(2), jnp.zeros((1, 4)))
