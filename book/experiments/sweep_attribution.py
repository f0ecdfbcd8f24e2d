"""Over seeds: does the ranking of an attribution find the parameters that a lift needs, and how stable is it?

For each ranking, the area under the residual of a lift with only the top k parameters free (`st.subset_check`).
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import symtutor as st

st.enable_x64()

SEEDS = range(10)
SETTINGS = {
    "net": [2, 32, 32, 1],
    "steps": 2000,
    "points": 512,
    "probes": [12, 48],
    "heldout": [11, 50],
    "sizes": [5, 7, 11, 16, 25, 37, 55, 81, 121, 180, 268, 400],
    "units": [1, 2, 4, 8, 16],
    "random rankings": 8,
    "ridges of the band": [1e-2, 1e-3, 1e-4, 1e-5, 1e-6],
    "top": 10,
}

net = st.mlp(tuple(SETTINGS["net"]))
f = net.apply
probes = st.polar_probes(*SETTINGS["probes"], rmax=2.5)
heldout = st.polar_probes(*SETTINGS["heldout"], rmax=2.5, offset=0.5)
so2 = st.so2()
TANGENTS = {"eta": st.orbit_tangent(so2), "delta": st.symmetrizing_tangent(so2)}
SHEAR = st.orbit_tangent(st.shear())
CASES = [("eta", 1e-4), ("eta", 1e-2), ("delta", 1e-4), ("delta", 1e-6)]


def absolute(tree):
    """Rank by size, whatever the sign."""
    return jax.tree.map(jnp.abs, tree)


def shares_of(params, tangent, ridge):
    """Lift and attribute."""
    return st.attribute(f, params, probes, tangent, st.lift(f, params, probes, tangent, ridge=ridge))


def first_layer_first(S):
    """Rank all weights of the first layer before the others, each by its score."""
    lead = 1 + max(float(leaf.max()) for leaf in jax.tree.leaves(S))
    return [S[0] | {"W": S[0]["W"] + lead}, *S[1:]]


def gradient_of_the_loss(params, x, y):
    """Return the gradient of the training loss."""

    def loss(params):
        logits = jax.vmap(f, (None, 0))(params, x)
        return jnp.mean(jnp.logaddexp(0, logits) - y * logits)

    return jax.grad(loss)(params)


def random_scores(params, seed):
    """Rankings that know nothing, as many as asked for."""
    flat, unravel = ravel_pytree(params)
    keys = jax.random.split(jax.random.key(seed), SETTINGS["random rankings"])
    return [unravel(jax.random.uniform(key, flat.shape)) for key in keys]


def of_units(shares, scores):
    """Score all that enters a unit of the second hidden layer alike, and nothing else: units have 33 parameters each."""
    nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, -1), shares)
    layer = {"W": jnp.broadcast_to(scores[:, None], shares[1]["W"].shape), "b": scores}
    return [nothing[0], layer, nothing[2]]


def rankings(params, name, ridge, x, y):
    """The scores that are compared: our own, baselines, controls, and the greedy bound."""
    att = shares_of(params, TANGENTS[name], ridge)
    S = st.sensitivity(f, params, probes)
    return att, {
        "share": absolute(att.shares),
        "c S": absolute(att.scaled),
        "signed share": att.shares,
        "sensitivity": S,
        "magnitude": absolute(params),
        "gradient": absolute(gradient_of_the_loss(params, x, y)),
        "W1 first": first_layer_first(S),
        "share of shear": absolute(shares_of(params, SHEAR, ridge).shares),
        "greedy": st.greedy_scores(f, params, probes, TANGENTS[name], SETTINGS["sizes"][-1], ridge),
    }


def areas(params, name, ridge, x, y, seed):
    """Return the area under each ranking's curve, held out and on the probes."""

    def area(scores, sizes=SETTINGS["sizes"]):
        curve = st.subset_check(f, params, probes, TANGENTS[name], scores, heldout, sizes, ridge)
        return np.array([curve.area(), curve.area(heldout=False)])

    def row(ranking, pair):
        case = f"{name}, ridge {ridge:.0e}"
        return {f"{case}, {ranking}": pair[0], f"{case}, {ranking}, on probes": pair[1]}

    att, scores = rankings(params, name, ridge, x, y)
    out = {}
    for ranking, each in scores.items():
        out |= row(ranking, area(each))
    randoms = random_scores(params, seed)
    out |= row("random", np.mean([area(each) for each in randoms], axis=0))
    if ridge == 1e-4:
        units = [33 * m for m in SETTINGS["units"]]
        carried = sum(np.abs(np.asarray(att.shares[1][leaf])).reshape(32, -1).sum(axis=1) for leaf in ("W", "b"))
        out |= row("units", area(of_units(att.shares, jnp.asarray(carried)), units))
        draws = [area(of_units(att.shares, each[1]["b"]), units) for each in randoms]
        out |= row("random units", np.mean(draws, axis=0))
    return out


def layers_alone(params, name):
    """Residual, held out, and norm, of a lift with the weights of one layer free."""
    out = {}
    for i, layer in enumerate(params):
        scores = jax.tree.map(jnp.zeros_like, params)
        scores[i] = scores[i] | {"W": scores[i]["W"] + 1}
        curve = st.subset_check(f, params, probes, TANGENTS[name], scores, heldout, [layer["W"].size], 1e-4)
        out |= {
            f"{name}, W{i + 1} alone, held-out residual": curve.heldout_residuals[0],
            f"{name}, W{i + 1} alone, norm": curve.norms[0],
        }
    return out


def stability(params, name):
    """Overlap of the top ten over probe sets and over ridges, and the first layer's share over ridges."""
    sets = [st.polar_probes(12, 48, rmax=2.5, offset=offset) for offset in (0.0, 0.25, 0.5, 0.75)]
    band = st.attribution_band(f, params, sets, TANGENTS[name], SETTINGS["ridges of the band"])
    overlap = np.asarray(band.overlap(SETTINGS["top"]))
    at = SETTINGS["ridges of the band"].index(1e-4)
    over_probes = [overlap[i, at, j, at] for i, j in itertools.combinations(range(len(sets)), 2)]
    neighbours = [overlap[0, j, 0, j + 1] for j in range(len(band.ridges) - 1)]
    first = np.asarray(band.by_layer()["0"])[0]
    return {
        f"{name}, overlap over probes": np.mean(over_probes),
        f"{name}, overlap of neighbouring ridges": np.mean(neighbours),
        f"{name}, overlap of the end ridges": overlap[0, 0, 0, -1],
    } | {f"{name}, first layer at ridge {r:.0e}": v for r, v in zip(SETTINGS["ridges of the band"], first, strict=True)}


def trained(seed):
    """Train one network, as the annulus chapter does."""
    data_key, init_key = jax.random.split(jax.random.key(seed))
    x, y = st.annulus.data(data_key, n=SETTINGS["points"])
    return st.annulus.train(init_key, net, x, y, steps=SETTINGS["steps"]).params, x, y


def measure(seed):
    """Measure one seed."""
    params, x, y = trained(seed)
    row = {}
    for name, ridge in CASES:
        row |= areas(params, name, ridge, x, y, seed)
    for name in TANGENTS:
        row |= layers_alone(params, name) | stability(params, name)
    return row


if __name__ == "__main__":
    from symtutor.tables import write_table

    write_table("attribution", __file__, measure, SEEDS, SETTINGS)
