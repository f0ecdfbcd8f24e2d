"""Eight seeds of the Mexican hat, for both of its chapters: ``make sweep``. They read and claim the table."""

import jax
import jax.numpy as jnp
import optax

import symtutor as st
from symtutor.fitting import minimise
from symtutor.networks import LEAPFROG, symplectic_step
from symtutor.tables import write_table

SETTINGS = {
    "width": 32,
    "steps": 2000,
    "steps of L-BFGS": 400,
    "a": 1.0,
    "unseen a": 0.75,
    "probes of V": [12, 48, 1.5],
    "probes of K": [12, 48, 1.2],
    "ridge of c*": 1e-6,
    "ridge of b*": 1e-5,
    "tolerance": 1e-4,
    "trajectories": 64,
    "dt": 0.05,
    "rollout steps": 400,
}
SEEDS = range(8)

hat = st.mexican_hat
ham, so2 = st.asrnn(SETTINGS["width"]), st.so2()
eta, towards_E = st.orbit_tangent(so2), st.symmetrizing_tangent(so2)


def V(params, q, a=SETTINGS["a"]):
    """Learned potential, as a function of the parameters of V alone."""
    return ham.potential({"V": params}, q, a)


def K(params, p):
    """Learned kinetic energy, as a function of the parameters of K alone."""
    return ham.kinetic({"K": params}, p)


def grids(name: str) -> tuple[st.Probes, st.Probes]:
    """Return probes and held-out probes of V or K."""
    radii, angles, rmax = SETTINGS[f"probes of {name}"]
    return st.polar_probes(radii, angles, rmax), st.polar_probes(radii - 1, angles + 2, rmax, offset=0.5)


def measure(seed: int) -> dict:
    """Train one network, measure its potential and its flows, repair it, and roll it out beside its competitors."""
    data_key, init_key, start_key = jax.random.split(jax.random.key(seed), 3)
    data = hat.trajectories(data_key)
    params = hat.train(init_key, ham, SETTINGS["steps"], data).params
    return potential_row(params["V"]) | repair_row(params, data, init_key, start_key)


def potential_row(v) -> dict:
    """Measure the learned potential at one value of its parameter."""
    probes, heldout = grids("V")
    row = {}
    for name in ("a", "unseen a"):
        over_points = jax.vmap(lambda q, a: (V(v, q, a), hat.potential(q, a)), (0, None))
        learned, true = over_points(heldout.x, SETTINGS[name])
        learned, true = learned - learned.mean(), true - true.mean()  # both are defined up to a constant
        row[f"V, relative error at {name}"] = jnp.linalg.norm(learned - true) / jnp.linalg.norm(true)
    spread = jnp.std(jax.vmap(V, (None, 0))(v, probes.x))
    tangents = {"eta": eta, "delta": towards_E, "shear": st.orbit_tangent(st.shear())}
    tangents["dilation"] = st.orbit_tangent(st.dilation())
    for name, tangent in tangents.items():
        row[f"V, {name}, size"] = st.function_norm(tangent(V, v, probes.x), probes.w) / spread

    ts = jnp.array([0.0, 0.002, jnp.pi / 4, jnp.pi / 2])
    resolved = st.resolved_flow(V, v, probes, eta, ts, SETTINGS["ridge of c*"], SETTINGS["tolerance"])
    fixed = st.orbit_error(V, st.fixed_flow(V, v, probes, eta, ts, SETTINGS["ridge of c*"]), heldout.x, so2)
    row["c* resolved, error at pi/2"] = st.orbit_error(V, resolved, heldout.x, so2)[-1]
    row |= {"c* fixed, error at 0.002": fixed[1], "c* fixed, error at pi/2": fixed[-1]}

    ts = jnp.array([0.0, 2.0, 4.0])
    resolved = st.resolved_flow(V, v, probes, towards_E, ts, SETTINGS["ridge of b*"], SETTINGS["tolerance"])
    fixed = st.fixed_flow(V, v, probes, towards_E, ts, SETTINGS["ridge of b*"], clock="decay")
    row["b* resolved, defect left at 4"] = st.defect_left(V, resolved, heldout.x, so2)[-1]
    row["b* resolved, drift at 4"] = st.invariant_drift(V, resolved, heldout.x, so2)[-1]
    row["b* fixed, defect left at 4"] = st.defect_left(V, fixed, heldout.x, so2)[-1]
    return row


def repair_row(params, data, init_key, start_key) -> dict:
    """Measure angular momentum and trajectories before and after following b*, and after what else one might do."""
    q, p = hat.starts(start_key, SETTINGS["trajectories"], SETTINGS["a"])
    a, dt, steps = jnp.full(len(q), SETTINGS["a"]), SETTINGS["dt"], SETTINGS["rollout steps"]
    true, _ = hat.simulate(q, p, a, dt, steps)
    row = {}

    def record(name, qs, ps):
        row[f"{name}, drift of L"] = hat.drift_of_angular_momentum(q, p, qs, ps)
        row[f"{name}, trajectory error"] = hat.trajectory_error(qs, true)

    def rollout(params):
        return jax.jit(jax.vmap(lambda q, p: ham.rollout(params, q, p, SETTINGS["a"], dt, steps)))(q, p)

    record("before", *rollout(params))
    parts = {"V": V, "K": K}
    ts = jnp.array([0.0, 4.0, 8.0])
    flows, chosen, anchored = {}, {}, {}
    for name, f in parts.items():
        probes, heldout = grids(name)
        ridge = st.choose_ridge(f, params[name], probes, towards_E, heldout).ridge
        row[f"ridge chosen for {name}"] = ridge
        run = {"ridge": SETTINGS["ridge of b*"], "tolerance": SETTINGS["tolerance"]}
        flows[name] = st.resolved_flow(f, params[name], probes, towards_E, ts, **run)
        chosen[name] = st.resolved_flow(f, params[name], probes, towards_E, ts, **run | {"ridge": ridge})
        anchor = st.anchored_tangent(f, params[name], so2)
        anchored[name] = st.resolved_flow(f, params[name], probes, anchor, ts, **run | {"ridge": ridge})
    record("b*, t = 4", *rollout({name: flow.at(1) for name, flow in flows.items()}))
    record("b*, t = 8", *rollout({name: flow.at(2) for name, flow in flows.items()}))
    record("b*, ridge chosen, t = 4", *rollout({name: flow.at(1) for name, flow in chosen.items()}))
    record("b*, ridge chosen, t = 8", *rollout({name: flow.at(2) for name, flow in chosen.items()}))
    record("anchored, t = 8", *rollout({name: flow.at(2) for name, flow in anchored.items()}))
    record("projection", *projected_rollout(params, q, p, dt, steps))
    record("distilled", *rollout({name: distil(f, params[name], grids(name)[0]) for name, f in parts.items()}))
    record("trained twice as long", *rollout(hat.train(init_key, ham, 2 * SETTINGS["steps"], data).params))

    # a network that was trained better leaves less to repair
    better = hat.train(init_key, ham, SETTINGS["steps of L-BFGS"], data, optimizer=optax.lbfgs()).params
    run = {"ridge": SETTINGS["ridge of b*"], "tolerance": SETTINGS["tolerance"]}
    better_flows = {n: st.resolved_flow(f, better[n], grids(n)[0], towards_E, ts, **run) for n, f in parts.items()}
    record("L-BFGS, before", *rollout(better))
    record("L-BFGS, b*, t = 4", *rollout({name: flow.at(1) for name, flow in better_flows.items()}))
    return row


def projected_rollout(params, q, p, dt, steps):
    """Roll out ``P_E K + P_E V`` itself: every force is an average over 64 turned ones."""

    def averaged(f, params):
        return lambda x: st.equivariant_projection(f, params, x[None], so2)[0]

    def one(q, p):
        def step(state, _):
            state = symplectic_step(averaged(K, params["K"]), averaged(V, params["V"]), *state, dt, LEAPFROG)
            return state, state

        return jax.lax.scan(step, (q, p), length=steps)[1]

    return jax.jit(jax.vmap(one))(q, p)


def distil(f, params, probes):
    """Teach the same network its own group average on the probes, without labels: Adam on the squared distance."""
    target = st.equivariant_projection(f, params, probes.x, so2)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-3, SETTINGS["steps"]))

    def loss(theta, target):
        return jnp.mean((jax.vmap(f, (None, 0))(theta, probes.x) - target) ** 2)

    return minimise(loss, params, target, optimizer, SETTINGS["steps"]).params


if __name__ == "__main__":
    st.enable_x64()
    write_table("mexican_hat", __file__, measure, SEEDS, SETTINGS)
