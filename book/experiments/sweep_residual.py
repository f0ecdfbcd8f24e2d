"""Ten seeds of what the residual does not tell: ``make sweep``. The chapter reads and claims the table."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import symtutor as st
from symtutor.tables import write_table

st.enable_x64()  # before any array is made

SETTINGS = {
    "net": [2, 32, 32, 1],
    "steps": 2000,
    "points": 512,
    "random features": 1185,
    "probes": [12, 48],
    "heldout": [11, 50],
    "ridges": [10.0**-k for k in range(1, 10)],
    "numbers of probes": [[4, 12], [6, 24], [8, 36], [12, 48], [16, 72], [20, 80]],
    "ridge of c*": 1e-6,
    "ridge of the flow": 1e-4,
    "tolerance": 1e-3,
    "times": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
SEEDS = range(10)

net = st.mlp(tuple(SETTINGS["net"]))
f, so2 = net.apply, st.so2()
along_orbit, towards_E = st.orbit_tangent(so2), st.symmetrizing_tangent(so2)
probes = st.polar_probes(*SETTINGS["probes"])
heldout = st.polar_probes(*SETTINGS["heldout"], offset=0.5)
ridges, times = jnp.array(SETTINGS["ridges"]), jnp.array(SETTINGS["times"])


# Networks: each is a function of its fixed part, its parameters and an input ------------------------------------------


def dense(fixed, q, x):
    """Every parameter is free."""
    return f(q, x)


def frozen(fixed, q, x):
    """The weights of the first layer are kept; all else is free."""
    return f([{"W": fixed, "b": q[0]}, *q[1:]], x)


def masked(fixed, q, x):
    """Each unit of the first layer sees one of the two coordinates."""
    return f(q[1:], jnp.tanh(q[0]["w"] * x[jnp.arange(len(q[0]["w"])) % 2] + q[0]["b"]))


def fourier(fixed, q, x):
    """Waves of fixed random frequencies and phases; free is how much of each."""
    return q @ jnp.cos(fixed[0] @ x + fixed[1]) * jnp.sqrt(2 / len(q))


def networks(seed: int):
    """Train the networks of a seed.

    Returns:
        A dict from the name of each to function, fixed part and parameters; the trained dense one with its start.
    """
    data_key, init_key = jax.random.split(jax.random.key(seed))
    x, y = st.annulus.data(data_key, n=SETTINGS["points"])
    waves = random_waves(jax.random.fold_in(init_key, 1))

    def fit(network):
        return st.annulus.train(init_key, network, x, y, steps=SETTINGS["steps"])

    plain = fit(net)
    of_masked = fit(st.Network(masked_start, lambda q, point: masked(None, q, point))).params
    n = SETTINGS["random features"]
    of_waves = fit(
        st.Network(lambda key: jax.random.normal(key, (n,)), lambda q, point: fourier(waves, q, point))
    ).params
    first, *deeper = plain.params
    return {
        "dense": (dense, None, plain.params),
        "frozen": (frozen, first["W"], [first["b"], *deeper]),  # the same function as the dense one
        "masked": (masked, None, of_masked),
        "features": (fourier, waves, of_waves),
    }, plain


def random_waves(key):
    """Draw frequencies and phases."""
    w_key, phase_key = jax.random.split(key)
    n = SETTINGS["random features"]
    return jax.random.normal(w_key, (n, 2)), jax.random.uniform(phase_key, (n,), maxval=2 * jnp.pi)


def masked_start(key):
    """Start a masked network: a weight a unit, normal as of one input."""
    first, *deeper = net.init(key)
    return [{"w": jnp.sqrt(2.0) * first["W"][:, 0], "b": first["b"]}, *deeper]


# What is measured ------------------------------------------------------------------------------------------------------


def measure(seed: int) -> dict:
    """Train the networks of a seed, and measure residual, norm and shares on the way of the ridge, and more."""
    cases, plain = networks(seed)
    row = ridge_paths(seed, cases)
    row |= first_layer(plain)
    row |= numbers_of_probes(cases)
    return row | towards_symmetry(plain.params)


def ridge_paths(seed: int, cases: dict) -> dict:
    """Residual, held-out residual and norm of c* of each network against the ridge."""
    x, y = st.annulus.data(jax.random.key(1000 + seed), n=4096)
    row = {}
    for name, (g, fixed, q) in cases.items():
        right, size, length, lifts = _path(g, fixed, q, x, y)
        row |= {f"{name}: accuracy": right, f"{name}: size": size, f"{name}: norm of the parameters": length}
        for i, ridge in enumerate(SETTINGS["ridges"]):
            row[f"{name}: residual at {ridge:.0e}"] = lifts.residual[i]
            row[f"{name}: held-out residual at {ridge:.0e}"] = lifts.heldout_residual[i]
            row[f"{name}: norm at {ridge:.0e}"] = lifts.norm[i]
    return row


@partial(jax.jit, static_argnums=0)
def _path(g, fixed, q, x, y):
    def network(params, point):
        return g(fixed, params, point)

    spread = jnp.std(jax.vmap(network, (None, 0))(q, probes.x))
    lifts = _lifts(network, q, along_orbit)
    length = jnp.linalg.norm(ravel_pytree(q)[0])
    return st.annulus.accuracy(network, q, x, y), lifts.tangent_norm[0] / spread, length, lifts


def _lifts(network, q, tangent):
    """Lift at all ridges; the decomposition does not depend on the ridge, so vmap makes one of it."""
    return jax.vmap(lambda ridge: st.lift(network, q, probes, tangent, ridge, heldout, solver="svd"))(ridges)


def first_layer(plain) -> dict:
    """How much of c* lies in the first layer against the ridge, and how far c* is from the exact lift."""
    row = {}
    for name, group, q in (
        ("rotation", so2, plain.params),
        ("shear", st.shear(), plain.params),
        ("untrained rotation", so2, plain.initial),
    ):
        squares, shares, off, norm = _first_layer(group, q)
        row[f"{name}: norm of c_ex"] = norm
        for i, ridge in enumerate(SETTINGS["ridges"]):
            row[f"{name}: norm share of layer 1 at {ridge:.0e}"] = squares[i]
            row[f"{name}: share of layer 1 at {ridge:.0e}"] = shares[i]
            row[f"{name}: distance from c_ex at {ridge:.0e}"] = off[i]
    return row


@partial(jax.jit, static_argnums=0)
def _first_layer(group, q):
    tangent, exact = st.orbit_tangent(group), ravel_pytree(st.exact_lift(q, group))[0]
    norm = jnp.linalg.norm(exact)

    def one(lift):
        of_first = jnp.linalg.norm(ravel_pytree(lift.direction[0])[0]) ** 2 / lift.norm**2
        attribution = st.attribute(f, q, probes, tangent, lift)
        off = jnp.linalg.norm(ravel_pytree(lift.direction)[0] - exact) / norm
        return of_first, attribution.by_layer()["0"] / attribution.explained, off

    return *jax.vmap(one)(_lifts(f, q, tangent)), norm


def numbers_of_probes(cases: dict) -> dict:
    """Residual and held-out residual of c* against the number of probes it was solved on."""
    row = {}
    for name in ("dense", "frozen"):
        for radii, angles in SETTINGS["numbers of probes"]:
            lift = _on_grid(cases[name][0], *cases[name][1:], st.polar_probes(radii, angles))
            row[f"{name}: residual on {radii * angles} probes"] = lift.residual
            row[f"{name}: held-out residual on {radii * angles} probes"] = lift.heldout_residual
    return row


@partial(jax.jit, static_argnums=0)
def _on_grid(g, fixed, q, grid):
    return st.lift(lambda params, x: g(fixed, params, x), q, grid, along_orbit, SETTINGS["ridge of c*"], heldout)


def towards_symmetry(params) -> dict:
    """What becomes of c* while b* makes the network rounder and rounder."""
    ridge, row = SETTINGS["ridge of the flow"], {}
    flow = st.resolved_flow(f, params, probes, towards_E, times, ridge, SETTINGS["tolerance"])
    for i, t in enumerate(SETTINGS["times"]):
        size, residual, heldout_residual, share, length = _on_the_way(flow.at(i), ridge)
        row |= {
            f"size at t = {t:g}": size,
            f"residual at t = {t:g}": residual,
            f"held-out residual at t = {t:g}": heldout_residual,
            f"share of layer 1 at t = {t:g}": share,
            f"norm of c* over c_ex at t = {t:g}": length,
        }
    return row


@jax.jit
def _on_the_way(q, ridge):
    lift = st.lift(f, q, probes, along_orbit, ridge, heldout)
    attribution = st.attribute(f, q, probes, along_orbit, lift)
    size = lift.tangent_norm / jnp.std(jax.vmap(f, (None, 0))(q, probes.x))
    share = attribution.by_layer()["0"] / attribution.explained
    exact = jnp.linalg.norm(ravel_pytree(st.exact_lift(q, so2))[0])
    return size, lift.residual, lift.heldout_residual, share, lift.norm / exact


if __name__ == "__main__":
    write_table("residual", __file__, measure, SEEDS, SETTINGS)
