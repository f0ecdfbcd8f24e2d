"""Ten seeds of the repair of a classifier that never saw a part of the plane: ``make sweep``. The chapter claims the table."""

import jax
import jax.numpy as jnp
import optax

import symtutor as st
from symtutor.tables import write_table

st.enable_x64()  # before any array is made

SETTINGS = {
    "net": [2, 32, 32, 1],
    "steps": 3000,
    "points": 256,
    "probes": [14, 64],
    "heldout": [13, 66],
    "ridge": 1e-4,
    "tolerance": 1e-4,
    "time": 4.0,
    "steps of the competitors": 2000,
    "learning rate of distilling": 3e-3,
    "turns a point": 8,
    "turns at test time": 64,
    "test points": 4096,
}
SECTORS = {"quadrant unseen": (0.0, 3 * jnp.pi / 2), "half unseen": (0.0, jnp.pi)}
SEEDS = range(10)

# the same objects for all seeds and sectors, so that each flow is compiled once
net = st.mlp(tuple(SETTINGS["net"]))
f, so2 = net.apply, st.so2(nodes=SETTINGS["turns at test time"])
towards_E = st.symmetrizing_tangent(so2)
probes = st.polar_probes(*SETTINGS["probes"])
heldout = st.polar_probes(*SETTINGS["heldout"], offset=0.5)
ts = jnp.array([0.0, SETTINGS["time"]])


def measure(seed: int) -> dict:
    """Train a network on each sector, and measure it before and after each repair."""
    return _repairs(seed, "quadrant unseen") | _repairs(seed, "half unseen")


def before(seed: int, name: str):
    """Train one network on a sector.

    Returns:
        Its parameters, its points and labels, the key of its start, and what is measured before any repair.
    """
    data_key, init_key = jax.random.split(jax.random.key(seed))
    x, y = st.annulus.data(data_key, n=SETTINGS["points"], sector=SECTORS[name])
    params = st.annulus.train(init_key, net, x, y, steps=SETTINGS["steps"]).params
    plane_x, plane_y = whole_plane(seed)
    average = st.equivariant_projection(f, params, plane_x, so2)
    row = {
        f"{name}: accuracy before": st.annulus.accuracy(f, params, plane_x, plane_y),
        f"{name}: accuracy of the average": jnp.mean((average > 0) == (plane_y == 1)),
    }
    if name == "quadrant unseen":
        defect, values = st.equivariance_defect(f, params, heldout.x, so2), jax.vmap(f, (None, 0))(params, heldout.x)
        row["defect before, relative"] = jnp.sqrt(jnp.mean(defect**2) / jnp.mean(values**2))
    return params, (x, y), init_key, row


def whole_plane(seed: int):
    """Draw points of all angles, to test on."""
    return st.annulus.data(jax.random.key(1000 + seed), n=SETTINGS["test points"])


def distil(params):
    """Fit a copy of the network to its own average over the group, on the probes, without labels."""
    target = st.equivariant_projection(f, params, probes.x, so2)
    adam = optax.adam(SETTINGS["learning rate of distilling"])
    return st.fitting.minimise(_distance, params, (probes.x, target), adam, SETTINGS["steps of the competitors"]).params


def retrain(init_key, x, y):
    """Train anew on the same points and labels, each turned by random angles."""
    turns = SETTINGS["turns a point"]
    angles = 2 * jnp.pi * jax.random.uniform(jax.random.fold_in(init_key, 1), (turns, len(x)))
    c, s = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack([c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]], axis=-1)  # (turns, points, 2)
    steps = SETTINGS["steps of the competitors"]
    return st.annulus.train(init_key, net, turned.reshape(-1, 2), jnp.tile(y, turns), steps=steps).params


def _distance(params, data):
    x, target = data
    return jnp.mean((jax.vmap(f, (None, 0))(params, x) - target) ** 2)


def _repairs(seed: int, name: str) -> dict:
    params, (x, y), init_key, row = before(seed, name)
    plane_x, plane_y = whole_plane(seed)
    ridge, tolerance = SETTINGS["ridge"], SETTINGS["tolerance"]
    plain = st.resolved_flow(f, params, probes, towards_E, ts, ridge, tolerance)
    anchored = st.resolved_flow(f, params, probes, st.anchored_tangent(f, params, so2), ts, ridge, tolerance)

    def ends_in(reached):
        """Return a trajectory of start and end, to be measured like a flow."""
        return plain._replace(params=jax.tree.map(lambda *ends: jnp.stack(ends), params, reached))

    repaired = {"plain": plain, "anchored": anchored, "distilled": ends_in(distil(params))}
    repaired["retrained"] = ends_in(retrain(init_key, x, y))
    for how, flow in repaired.items():
        row[f"{name}: accuracy, {how}"] = st.annulus.accuracy(f, flow.at(-1), plane_x, plane_y)
        if name == "quadrant unseen":
            row[f"{how}, defect left"] = st.defect_left(f, flow, heldout.x, so2)[-1]
            row[f"{how}, drift"] = st.invariant_drift(f, flow, heldout.x, so2)[-1]
    if name == "quadrant unseen":
        row |= {"plain, lifts": plain.solves, "anchored, lifts": anchored.solves}
    return row


if __name__ == "__main__":
    write_table("repair", __file__, measure, SEEDS, SETTINGS)
