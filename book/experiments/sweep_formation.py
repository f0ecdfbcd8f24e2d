"""Over seeds: how the sizes of eta and delta, the first layer's share and the loss move while a network trains.

Beside each stands what happens for shear and dilation, which are no symmetries of the data.
"""

import jax
import jax.numpy as jnp
import numpy as np

import symtutor as st

st.enable_x64()
hat = st.mexican_hat

SEEDS = range(6)
SETTINGS = {
    "net": [2, 32, 32, 1],
    "points": 512,
    "checkpoints": [0, 25, 50, 100, 200, 500, 1000, 2000],
    "width of the potential": 32,
    "a": 1.0,
    "probes": [12, 48],
    "radius of the annulus": 2.5,
    "radius of the potential": 1.5,
    "ridges of the share": [1e-4, 1e-6],
}

CHECKPOINTS = SETTINGS["checkpoints"]
net = st.mlp(tuple(SETTINGS["net"]))
ham = st.asrnn(width=SETTINGS["width of the potential"])
so2 = st.so2()
GENERATORS = {
    "eta": st.orbit_tangent(so2),
    "shear": st.orbit_tangent(st.shear()),
    "dilation": st.orbit_tangent(st.dilation()),
}
TANGENTS = GENERATORS | {"delta": st.symmetrizing_tangent(so2)}


def potential(v, q):
    """Return the learned potential at one value of its parameter, as a function of the potential's own weights."""
    return ham.potential({"V": v}, q, SETTINGS["a"])


def sizes(f, params, probes):
    """Norms of the tangents over the spread of f, and the spread itself."""
    values = jax.vmap(f, (None, 0))(params, probes.x)
    spread = jnp.sqrt(probes.w @ (values - probes.w @ values) ** 2)
    return {"spread": spread} | {
        name: st.function_norm(tangent(f, params, probes.x), probes.w) / spread for name, tangent in TANGENTS.items()
    }


def first_layer(f, params, probes):
    """The first layer's part of the explained shares, for the rotation and for its controls."""
    out = {}
    for name, tangent in GENERATORS.items():
        band = st.attribution_band(f, params, [probes], tangent, SETTINGS["ridges of the share"])
        part = next(iter(band.by_layer().values()))[0] / band.explained[0]
        out |= {f"W1 of {name}, ridge {r:.0e}": v for r, v in zip(SETTINGS["ridges of the share"], part, strict=True)}
    return out


def timeline(f, checkpoints, probes):
    """Measure every checkpoint; a dict of arrays over them."""
    each = [
        sizes(f, params, probes) | first_layer(f, params, probes)
        for params in (jax.tree.map(lambda leaf, i=i: leaf[i], checkpoints) for i in range(len(CHECKPOINTS)))
    ]
    return {key: np.array([row[key] for row in each]) for key in each[0]}


def annulus(seed):
    """Train the classifier and measure its checkpoints."""
    data_key, init_key = jax.random.split(jax.random.key(seed))
    x, y = st.annulus.data(data_key, n=SETTINGS["points"])
    fit = st.annulus.train(init_key, net, x, y, steps=CHECKPOINTS[-1], checkpoints=CHECKPOINTS)
    probes = st.polar_probes(*SETTINGS["probes"], rmax=SETTINGS["radius of the annulus"])
    accuracy = [
        st.annulus.accuracy(net.apply, jax.tree.map(lambda leaf, i=i: leaf[i], fit.checkpoints), x, y)
        for i in range(len(CHECKPOINTS))
    ]
    losses = np.append(fit.losses, fit.losses[-1])[CHECKPOINTS]
    return timeline(net.apply, fit.checkpoints, probes) | {"loss": losses, "accuracy": np.array(accuracy)}


def mexican_hat(seed):
    """Train the Hamiltonian network and measure its potential at the checkpoints."""
    data_key, init_key, _ = jax.random.split(jax.random.key(seed), 3)
    fit = hat.train(init_key, ham, CHECKPOINTS[-1], hat.trajectories(data_key), checkpoints=CHECKPOINTS)
    probes = st.polar_probes(*SETTINGS["probes"], rmax=SETTINGS["radius of the potential"])
    V = fit.checkpoints["V"]
    true = np.asarray(jax.vmap(hat.potential, (0, None))(probes.x, SETTINGS["a"]))
    learned = np.asarray(jax.vmap(jax.vmap(potential, (None, 0)), (0, None))(V, probes.x))
    off = learned - learned.mean(axis=1, keepdims=True) - (true - true.mean())  # V is defined up to a constant
    error = np.linalg.norm(off, axis=1) / np.linalg.norm(true - true.mean())
    losses = np.append(fit.losses, fit.losses[-1])[CHECKPOINTS]
    return timeline(potential, V, probes) | {"loss": losses, "error": error}


def measure(seed):
    """Measure one seed of both experiments."""
    row = {}
    for name, run in (("annulus", annulus), ("potential", mexican_hat)):
        for key, values in run(seed).items():
            row |= {f"{name}: {key} at step {step}": v for step, v in zip(CHECKPOINTS, values, strict=True)}
    return row


if __name__ == "__main__":
    from symtutor.tables import write_table

    write_table("formation", __file__, measure, SEEDS, SETTINGS)
