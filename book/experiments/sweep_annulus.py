"""Ten seeds of the annulus experiment, trained and untrained: ``make sweep``. The chapter reads and claims the table."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import symtutor as st
from symtutor.tables import write_table

SETTINGS = {
    "net": [2, 32, 32, 1],
    "steps": 2000,
    "points": 512,
    "probes": [12, 48],
    "heldout": [11, 50],
    "ridge of c*": 1e-6,
    "ridge of b*": 1e-4,
    "tolerance": 1e-5,
}
SEEDS = range(10)

net = st.mlp(tuple(SETTINGS["net"]))
f, so2 = net.apply, st.so2()
eta, towards_E = st.orbit_tangent(so2), st.symmetrizing_tangent(so2)
controls = {"shear": st.orbit_tangent(st.shear()), "dilation": st.orbit_tangent(st.dilation())}


def measure(seed: int) -> dict:
    """Train one network and measure it before and after."""
    data_key, init_key = jax.random.split(jax.random.key(seed))
    x, y = st.annulus.data(data_key, n=SETTINGS["points"])
    fit = st.annulus.train(init_key, net, x, y, steps=SETTINGS["steps"])
    test_x, test_y = st.annulus.data(jax.random.key(1000 + seed), n=4096)
    row = {"accuracy": st.annulus.accuracy(f, fit.params, test_x, test_y)}
    for state, params in (("untrained", fit.initial), ("trained", fit.params)):
        row |= {f"{state}: {key}": value for key, value in _measure(params).items()}
    return row


def _measure(params) -> dict:
    probes, heldout = st.polar_probes(*SETTINGS["probes"]), st.polar_probes(*SETTINGS["heldout"], offset=0.5)
    ridge_c, ridge_b, tolerance = SETTINGS["ridge of c*"], SETTINGS["ridge of b*"], SETTINGS["tolerance"]
    lift = jax.jit(st.lift, static_argnums=(0, 3))  # jitted: no warning about the measured cosine, which is a column
    lifts = {"rotation": lift(f, params, probes, eta, ridge_c, heldout)}
    lifts |= {name: lift(f, params, probes, tangent, ridge_c, heldout) for name, tangent in controls.items()}
    b = lift(f, params, probes, towards_E, ridge_b, heldout)

    def rms(values):
        return jnp.sqrt(jnp.mean(values**2))

    values = jax.vmap(f, (None, 0))(params, probes.x)
    defect = rms(st.equivariance_defect(f, params, probes.x, so2)) / rms(values)
    row = {"relative defect": defect, "relative defect, distance from 1": jnp.abs(1 - defect)}
    for name, c in lifts.items():
        row[f"{name}, residual"] = c.residual
        row[f"{name}, held-out residual"] = c.heldout_residual
        row[f"{name}, size"] = c.tangent_norm / jnp.std(values)
    row |= {"b*, held-out residual": b.heldout_residual, "b*, size": b.tangent_norm / jnp.std(values)}

    c_flat, b_flat = ravel_pytree(lifts["rotation"].direction)[0], ravel_pytree(b.direction)[0]
    row["cosine in function space"] = st.orthogonality(f, params, probes, so2)
    row["cosine in parameter space"] = c_flat @ b_flat / jnp.linalg.norm(c_flat) / jnp.linalg.norm(b_flat)

    ts = jnp.array([0.0, 0.01, jnp.pi / 4, jnp.pi / 2])
    resolved = st.resolved_flow(f, params, probes, eta, ts, ridge_c, tolerance)
    fixed = st.fixed_flow(f, params, probes, eta, ts, ridge_c)
    fixed_errors = st.orbit_error(f, fixed, heldout.x, so2)
    row["c* resolved, error at pi/2"] = st.orbit_error(f, resolved, heldout.x, so2)[-1]
    row["c* fixed, error at pi/2"] = fixed_errors[-1]
    row["c* fixed, error at 0.01"] = fixed_errors[1]
    row["c* resolved, change of the defect"] = jnp.abs(st.defect_left(f, resolved, heldout.x, so2) - 1).max()

    ts = jnp.array([0.0, 1.0, 2.0, 3.0])
    resolved = st.resolved_flow(f, params, probes, towards_E, ts, ridge_b, tolerance)
    fixed = st.fixed_flow(f, params, probes, towards_E, ts, ridge_b, clock="decay")
    row["b* resolved, defect left at 3"] = st.defect_left(f, resolved, heldout.x, so2)[-1]
    row["b* resolved, drift at 3"] = st.invariant_drift(f, resolved, heldout.x, so2)[-1]
    row["b* fixed, defect left at 3"] = st.defect_left(f, fixed, heldout.x, so2)[-1]
    return row


if __name__ == "__main__":
    st.enable_x64()
    write_table("annulus", __file__, measure, SEEDS, SETTINGS)
