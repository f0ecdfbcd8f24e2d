"""One lift from a thousand parameters to a million, beside other libraries: ``make bench``.

The clock starts from (f, params, probes) for all, in float64, warm, blocked until ready. Each figure comes from a process of
its own, so that its peak memory is its own. A ridge and a cut are different regularisations: the ridge is 1e-4 of the largest
singular value, the cut such that no less of the tangent is left; residuals and norms are printed. Peers that are not installed
are left out: ``pip install -e '.[bench]'``.

``bench_scaling.py`` measures and writes the table that the chapter on scaling reads, with the parts of a lift, a flow beside
its lifts and both precisions; ``--one`` is what it runs.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import symtutor as st
from symtutor.lifting import linear_system, tangent_residual
from symtutor.tables import PACKAGE

TABLE = PACKAGE / "experiments" / "scaling_bench.json"
RIDGE, CUT = 1e-4, 1.4e-4
GRIDS = {256: (8, 32), 512: (16, 32), 1024: (16, 64), 2048: (32, 64), 4096: (64, 64)}
NETS = {
    1185: (2, 32, 32, 1),
    4417: (2, 64, 64, 1),
    10221: (2, 70, 70, 70, 1),
    98121: (2, 220, 220, 220, 1),
    132609: (2, 256, 256, 256, 1),
    984201: (2, 700, 700, 700, 1),
}
SIZES = [
    (1185, 256), (1185, 512), (4417, 512), (4417, 1024), (10221, 2048), (98121, 2048), (132609, 1024), (984201, 512),
    (984201, 2048), (984201, 4096),
]  # fmt: skip
OTHERS = [
    ("flow", 984201, 512), ("repair", 984201, 512),
    ("profile", 4417, 512), ("profile", 132609, 1024), ("profile", 984201, 2048),
    ("precisions", 132609, 1024), ("precisions", 984201, 2048),
]  # fmt: skip
MEMORY, SLOW = 6e9, 5e8
"""What needs more bytes for the Jacobian alone is not run, nor singular values of more: they take minutes."""


def problem(n: int, probes: int):
    """Return f, params, probes, held-out probes and the tangent of one size."""
    net = st.mlp(NETS[n])
    radii, angles = GRIDS[probes]
    grids = st.polar_probes(radii, angles), st.polar_probes(radii - 1, angles + 2, offset=0.5)
    return net.apply, net.init(jax.random.key(0)), *grids, st.orbit_tangent(st.so2())


def symtutor(f, params, probes, eta, damping):
    """Lift with the library."""
    return lambda: ravel_pytree(st.lift(f, params, probes, eta, ridge=RIDGE).direction)[0]


def by_hand(f, params, probes, eta, damping):
    """Multiply the layers' products by hand and factorise: no direction, the least that a lift can cost."""

    @jax.jit
    def run(params, x, w):
        activations = [x]
        for layer in params[:-1]:
            activations.append(jnp.tanh(activations[-1] @ layer["W"].T + layer["b"]))
        back, K = jnp.ones((x.shape[0], 1)), 0
        for i in reversed(range(len(params))):
            K = K + (back @ back.T) * (activations[i] @ activations[i].T + 1)
            if i:
                back = (back @ params[i]["W"]) * (1 - activations[i] ** 2)
        K = jnp.sqrt(w)[:, None] * K * jnp.sqrt(w)
        return jax.scipy.linalg.cholesky(K + damping * jnp.eye(K.shape[0]), lower=True)

    return lambda: run(params, probes.x, probes.w)


def jax_lstsq(f, params, probes, eta, damping):
    """Build the Jacobian, then jax's least squares."""

    @jax.jit
    def run(params):
        A, y = linear_system(f, params, probes, eta)
        return jnp.linalg.lstsq(A, y, rcond=CUT)[0]

    return lambda: run(params)


def lineax_svd(f, params, probes, eta, damping):
    """Build the Jacobian, then lineax's SVD solver."""
    import lineax

    @jax.jit
    def run(params):
        A, y = linear_system(f, params, probes, eta)
        return lineax.linear_solve(lineax.MatrixLinearOperator(A), y, lineax.SVD(rcond=CUT)).value

    return lambda: run(params)


def matfree_lsmr(f, params, probes, eta, damping):
    """Damped LSMR with products by J^T alone, stopped at 1e-6."""
    from matfree.lstsq import lsmr

    solve = lsmr(atol=1e-6, btol=1e-6, ctol=0.0, maxiter=2000)

    @jax.jit
    def run(params):
        roots = jnp.sqrt(probes.w)

        def transposed(u):  # J^T u
            return ravel_pytree(jax.vjp(lambda p: jax.vmap(f, (None, 0))(p, probes.x) * roots, params)[1](u)[0])[0]

        return solve(transposed, roots * eta(f, params, probes.x), damp=jnp.sqrt(damping))[0]

    return lambda: run(params)


def _netket(f, params, probes, eta, damping, solver):
    import netket
    from netket._src.ngd.srt import _compute_srt_update

    def batched(variables, x):
        return jax.vmap(f, (None, 0))(variables["params"], x)

    solve = getattr(netket.optimizer.solver, solver)
    if solver == "pinv_smooth":
        solve = netket.optimizer.solver.pinv_smooth(rtol=CUT**2, rtol_smooth=CUT**2)

    @jax.jit
    def run(params):
        roots = jnp.sqrt(probes.w)
        O = netket.jax.jacobian(batched, params, probes.x, mode="real", dense=True)  # noqa: E741
        rows, y = O * roots[:, None], eta(f, params, probes.x) * roots
        shift = damping if solver == "cholesky" else 0.0
        return _compute_srt_update(rows, y, diag_shift=shift, solver_fn=solve, mode="real", params_structure=params)[0]

    return lambda: run(params)


def netket_cholesky(*given):
    """NetKet's minSR with its Cholesky solver."""
    return _netket(*given, "cholesky")


def netket_pinv_smooth(*given):
    """NetKet's minSR with its smooth pseudo-inverse."""
    return _netket(*given, "pinv_smooth")


def torch_gelsd(f, params, probes, eta, damping):
    """Build the Jacobian with jax, then torch's gelsd."""
    import torch

    system = jax.jit(lambda p: linear_system(f, p, probes, eta))

    def run():
        A, y = (torch.from_numpy(np.array(v)) for v in system(params))
        return torch.linalg.lstsq(A, y[:, None], rcond=CUT, driver="gelsd").solution[:, 0].numpy()

    return run


PEERS = {
    "symtutor": (symtutor, "jax"),
    "layers by hand, Cholesky": (by_hand, "jax"),
    "jax lstsq": (jax_lstsq, "jax"),
    "lineax SVD": (lineax_svd, "lineax"),
    "matfree LSMR": (matfree_lsmr, "matfree"),
    "NetKet minSR, Cholesky": (netket_cholesky, "netket"),
    "NetKet minSR, smooth pinv": (netket_pinv_smooth, "netket"),
    "torch gelsd": (torch_gelsd, "torch"),
}
NO_JACOBIAN = ("symtutor", "layers by hand, Cholesky", "matfree LSMR")
NO_LARGE_SVD = ("jax lstsq", "lineax SVD", "torch gelsd")


def peak() -> float:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(peer: str, n: int, size: int, damping: float) -> dict:
    """Time one peer at one size, telling it the damping that ours found."""
    st.enable_x64()
    f, params, probes, heldout, eta = problem(n, size)
    before, run = peak(), PEERS[peer][0](f, params, probes, eta, damping)
    begin = time.perf_counter()
    c = jax.block_until_ready(run())
    first, times = time.perf_counter() - begin, []
    while len(times) < 3 or (sum(times) < 3 and len(times) < 15):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
        if times[-1] > 5:
            break
    row = {"seconds": float(np.median(times)), "first call": first, "memory": max(peak() - before, 0)}
    if peer == "layers by hand, Cholesky":
        return row
    if peer == "symtutor":
        row["damping"] = float(st.lift(f, params, probes, eta, ridge=RIDGE).damping)
    direction = ravel_pytree(params)[1](jnp.asarray(c))
    residual = jax.jit(lambda points, c: tangent_residual(f, params, points, eta, c))
    return row | {
        "residual": float(residual(probes, direction)),
        "held-out residual": float(residual(heldout, direction)),
        "norm": float(np.linalg.norm(np.asarray(c))),
    }


def repair(n: int, size: int) -> dict:
    """Train without a quadrant, follow b*, and score that quadrant: see the chapter for the average over rings."""
    st.enable_x64()
    key, start = jax.random.split(jax.random.key(0))
    data = st.annulus.data(key, n=256, sector=(np.pi / 2, 2 * np.pi))
    unseen = st.annulus.data(jax.random.key(1), n=1000, sector=(0.0, np.pi / 2))
    net, probes = st.mlp(NETS[n]), st.polar_probes(size // 64, 64, rmax=2.5)
    params = st.annulus.train(start, net, *data, steps=150, learning_rate=1e-3).params

    def by_rings(f, params, x):
        rings = jax.vmap(f, (None, 0))(params, x).reshape(-1, 64)
        return (rings.mean(axis=1, keepdims=True) - rings).ravel()

    begin = time.perf_counter()
    traj = jax.block_until_ready(
        st.resolved_flow(net.apply, params, probes, by_rings, jnp.array([0.0, 4.0]), ridge=1e-3, tolerance=1e-3)
    )
    seconds = time.perf_counter() - begin
    end = jax.tree.map(lambda leaf: leaf[-1], traj.params)
    before, after = (float(st.annulus.accuracy(net.apply, p, *unseen)) for p in (params, end))
    return {"before": before, "after": after, "solves": int(traj.solves), "seconds": seconds}


def medians(times: dict) -> dict:
    """Return the median of each list."""
    return {name: float(np.median(values)) for name, values in times.items()}


def profile(n: int, size: int) -> dict:
    """Time the parts of a lift one by one, in the order in which they run."""
    from symtutor import lifting

    st.enable_x64()
    f, params, probes, _, eta = problem(n, size)
    ridge = jnp.asarray(RIDGE)
    y, _ = lifting.target(f, params, probes, eta)
    K = lifting._kernel(f, params, probes, None)
    factor, a, shift, _ = lifting._factored(K, y, ridge)
    parts = {
        "tangent": lambda: lifting.target(f, params, probes, eta),
        "Gram matrix": lambda: lifting._kernel(f, params, probes, None),
        "s1 and Cholesky": lambda: lifting._factored(K, y, ridge),
        "J^T a and J c, twice": lambda: [lifting._moved(f, params, probes, a, None) for _ in range(2)],
        "refinement": lambda: lifting._refined(factor, a, shift, y, y),
        "cosine of eta and delta": lambda: lifting._cosine(f, params, probes, eta),
        "whole lift": lambda: st.lift(f, params, probes, eta, RIDGE).norm,
    }
    times = {name: [] for name in parts}
    for part in parts.values():
        jax.block_until_ready(part())
    for _ in range(7):
        for name, part in parts.items():
            begin = time.perf_counter()
            jax.block_until_ready(part())
            times[name].append(time.perf_counter() - begin)
    return medians(times)


def precisions(n: int, size: int) -> dict:
    """Time a lift in both precisions, at the least ridge that single precision allows."""
    st.enable_x64()
    f, params, probes, _, eta = problem(n, size)
    times = {}
    for dtype in (jnp.float64, jnp.float32):
        cast = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), (params, probes))
        jax.block_until_ready(st.lift(f, *cast, eta, 2e-3))
        times[dtype.__name__] = []
        for _ in range(7):
            begin = time.perf_counter()
            jax.block_until_ready(st.lift(f, *cast, eta, 2e-3))
            times[dtype.__name__].append(time.perf_counter() - begin)
    return medians(times)


def flow(n: int, size: int) -> dict:
    """Time a resolved flow of a million parameters beside its lifts."""
    from symtutor.lifting import unchecked_lift

    st.enable_x64()
    f, params, probes, heldout, eta = problem(n, size)
    ts = jnp.array([0.0, 0.1])

    def run():
        return st.resolved_flow(f, params, probes, eta, ts, ridge=RIDGE, tolerance=1e-3)

    def lift():
        return unchecked_lift(f, params, probes, eta, RIDGE, solver="gram").norm

    traj = jax.block_until_ready(run())
    times = {"flow": [], "lift": []}
    for _ in range(5):
        for name, call in (("flow", run), ("lift", lift)):
            jax.block_until_ready(call())
            begin = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - begin)
    seconds = medians(times)
    solves = int(traj.solves)
    error = float(st.orbit_error(f, traj, heldout.x, st.so2())[-1])
    return seconds | {"solves": solves, "flow over lifts": seconds["flow"] / (solves * seconds["lift"]), "error": error}


def in_process(*arguments) -> dict:
    """Run this script for one figure, and read what it prints last."""
    done = subprocess.run([sys.executable, __file__, "--one", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["killed"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Measure all sizes and peers, print ratios, write the table."""
    peers = [name for name, (_, package) in PEERS.items() if importlib.util.find_spec(package)]
    rows = []
    for n, size in SIZES:
        print(f"{n} parameters, {size} probes, float64", flush=True)
        ours, damping = None, 1.0
        for peer in peers:
            if peer not in NO_JACOBIAN and n * size * 8 > (SLOW if peer in NO_LARGE_SVD else MEMORY):
                row = {"left out": f"its rows alone take {n * size * 8 / 1e9:.2g} GB"}
            elif peer == "matfree LSMR" and n * size > 3e9:
                row = {"left out": "it takes minutes"}
            else:
                row = in_process(peer, n, size, damping)
            rows.append({"peer": peer, "parameters": n, "probes": size} | row)
            if "seconds" not in row:
                print(f"  {peer:28} {row.get('left out') or row['failed']}", flush=True)
                continue
            ours, damping = ours or row["seconds"], row.get("damping", damping)
            extra = "".join(f"   {k} {row[k]:.3g}" for k in ("residual", "held-out residual", "norm") if k in row)
            print(
                f"  {peer:28} {1e3 * row['seconds']:9.1f} ms  ratio {row['seconds'] / ours:7.2f}"
                f"  {row['memory'] / 1e6:7.0f} MB{extra}",
                flush=True,
            )
    others = {}
    for name, n, size in OTHERS:
        others.setdefault(name, []).append({"parameters": n, "probes": size} | in_process(name, n, size))
        print(f"{name}:", others[name][-1], flush=True)
    versions = {name: metadata.version(package) for name, (_, package) in PEERS.items() if name in peers}
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    table = {"ridge": RIDGE, "cut": CUT, "versions": versions, "machine": machine, "rows": rows} | others
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs="+")
    one = parser.parse_args().one
    if one:
        name, sizes = one[0], (int(one[1]), int(one[2]))
        other = {"flow": flow, "repair": repair, "profile": profile, "precisions": precisions}.get(name)
        print(json.dumps(other(*sizes) if other else measure(name, *sizes, float(one[3]))))
    else:
        main()
