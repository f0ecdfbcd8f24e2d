"""The networks and functions that the tests share, made once: compiling is most of what the tests cost."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import symtutor as st

NET = st.mlp((2, 12, 12, 1))
F = NET.apply
SO2 = st.so2(nodes=32)
ETA = st.orbit_tangent(SO2)
TO_E = st.symmetrizing_tangent(SO2)

jacobian = eqx.filter_jit(st.jacobian)
orthogonality = eqx.filter_jit(st.orthogonality)
orbit = eqx.filter_jit(st.orbit)
projection = eqx.filter_jit(st.equivariant_projection)
defect = eqx.filter_jit(st.equivariance_defect)


@eqx.filter_jit
def tangent_values(tangent, f, params, x):
    return tangent(f, params, x)


@eqx.filter_jit
def values(f, params, x):
    return jax.vmap(f, (None, 0))(params, x)


@cache
def probes():
    return st.polar_probes(radii=10, angles=32)


@cache
def heldout():
    return st.polar_probes(radii=9, angles=34, offset=0.5)


@cache
def untrained():
    return NET.init(jax.random.key(0))


@cache
def trained():
    return st.annulus.train(jax.random.key(0), NET, *st.annulus.data(jax.random.key(1), n=256), steps=600)


@cache
def lifted(state, kind, ridge=1e-4):
    """Return params and a lift of eta or -delta of the network NET, trained or not."""
    params = trained().params if state == "trained" else untrained()
    return params, st.lift(F, params, probes(), {"eta": ETA, "to_e": TO_E}[kind], ridge=ridge, heldout=heldout())


MODES = np.arange(6.0)


def band(params, x):
    """Sum of r^m (a_m cos m phi + b_m sin m phi), m < 6, with r in units of 2.5: exact on grids of 12 angles or more."""
    r, phi = jnp.hypot(x[0], x[1]) / 2.5, jnp.arctan2(x[1], x[0])
    return jnp.dot(r**MODES, params["a"] * jnp.cos(MODES * phi) + params["b"] * jnp.sin(MODES * phi))


@cache
def band_params():
    rng = np.random.default_rng(0)
    return {"a": jnp.asarray(rng.normal(size=6)), "b": jnp.asarray(rng.normal(size=6))}


def flat(tree):
    return np.asarray(ravel_pytree(tree)[0])


def angle(u, v):
    """Return the cosine between two vectors or trees."""
    u, v = flat(u), flat(v)
    return u @ v / np.linalg.norm(u) / np.linalg.norm(v)


def turn(t):
    return jnp.array([[jnp.cos(t), -jnp.sin(t)], [jnp.sin(t), jnp.cos(t)]])


COMPILED = []


@jax.monitoring.register_event_duration_secs_listener
def _listen(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(seconds)
