"""One lift of the annulus network beside least-squares routines: ``make bench``. One run, same dtype, warm, blocked.

The peers get the Jacobian ready made; `lift` starts from (f, params, probes). Truncation at rcond and a ridge are different
regularisations, so the ridge is set to reach the same residual, and the norms are printed.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import symtutor as st
from symtutor.lifting import linear_system

REPEATS = 15


def seconds(run) -> float:
    """Return the median of several timed calls, after one that compiles."""
    jax.block_until_ready(run())
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def main() -> None:
    """Print times, ratios, residuals and norms."""
    st.enable_x64()
    data_key, init_key = jax.random.split(jax.random.key(0))
    net = st.mlp((2, 32, 32, 1))
    params = st.annulus.train(init_key, net, *st.annulus.data(data_key)).params
    probes, eta, f = st.polar_probes(), st.orbit_tangent(st.so2()), net.apply
    A, y = jax.jit(lambda p: linear_system(f, p, probes, eta))(params)
    print(f"{A.shape[1]} parameters, {A.shape[0]} probes, float64; median of {REPEATS}")

    def residual(c):
        return float(jnp.linalg.norm(A @ c - y) / jnp.linalg.norm(y))

    rcond = 1e-6
    peers = {
        "jax lstsq": lambda: jnp.linalg.lstsq(A, y, rcond=rcond)[0],
        "numpy lstsq": lambda: np.linalg.lstsq(np.asarray(A), np.asarray(y), rcond=rcond)[0],
        "scipy gelsy": lambda: scipy.linalg.lstsq(A, y, cond=rcond, lapack_driver="gelsy")[0],
    }
    wanted = residual(peers["jax lstsq"]())
    ridges = 10.0 ** jnp.linspace(-7, -5, 41)
    # the largest ridge that leaves no more than the peer
    ridge = max(float(r) for r in ridges if st.lift(f, params, probes, eta, ridge=float(r)).residual <= wanted)
    lift = jax.jit(lambda p: st.lift(f, p, probes, eta, ridge=ridge))
    found = lift(params)
    ours = seconds(lambda: lift(params))
    print(f"{'symtutor lift':14} {1e3 * ours:8.1f} ms   ratio {1:5.1f}   residual {found.residual:.2e}   norm {found.norm:.4f}"
          f"   ({found.solver}, ridge {ridge:.1e})")
    for name, run in peers.items():
        c, taken = run(), seconds(run)
        norm = float(jnp.linalg.norm(c))
        print(f"{name:14} {1e3 * taken:8.1f} ms   ratio {taken / ours:5.1f}   residual {residual(c):.2e}   norm {norm:.4f}")


if __name__ == "__main__":
    main()
