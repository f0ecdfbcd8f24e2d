"""A small whole pipeline with every shape annotation of the library checked at run time; test_types.py runs it."""

import warnings

import jax
import jax.numpy as jnp
from jaxtyping import install_import_hook

with install_import_hook("symtutor", "beartype.beartype"):
    import symtutor as st
    from symtutor import solvers

st.enable_x64()
jax.config.update("jax_disable_most_optimizations", True)
warnings.simplefilter("ignore", UserWarning)  # so small a grid aliases, and says so


def main():
    probes, heldout = st.polar_probes(radii=3, angles=8), st.polar_probes(radii=2, angles=9, offset=0.5)
    ts = jnp.array([0.0, 0.1])
    scalar, vector = st.mlp((2, 3, 1)), st.mlp((2, 3, 2))
    x, y = st.annulus.data(jax.random.key(0), n=16)
    fit = st.annulus.train(jax.random.key(1), scalar, x, y, steps=2)
    st.annulus.accuracy(scalar.apply, fit.params, x, y)
    f, params, so2 = scalar.apply, fit.params, st.so2(nodes=8)
    eta, to_e = st.orbit_tangent(so2), st.symmetrizing_tangent(so2)
    st.sensitivity(f, params, probes, chunk_size=5)
    st.orbit(f, params, heldout.x, so2, 0.3)
    for tangent, solver in ((eta, "cholesky"), (to_e, "eigh"), (st.anchored_tangent(f, params, so2), "svd")):
        c = st.lift(f, params, probes, tangent, ridge=1e-3, heldout=heldout, solver=solver)
    st.attribute(f, params, probes, to_e, c).top(3)
    path = st.choose_ridge(f, params, probes, eta, heldout, ridges=jnp.array([1e-3, 1e-2]))
    st.resolved_flow(f, params, probes, eta, ts, ridge=path.ridge, tolerance=1e-2)
    flow = st.fixed_flow(f, params, probes, to_e, ts, ridge=1e-3, clock="decay")
    st.orbit_error(f, flow, heldout.x, so2)
    st.defect_left(f, flow, heldout.x, so2)
    st.invariant_drift(f, flow, heldout.x, so2)
    params, so2 = vector.init(jax.random.key(2)), st.so2(nodes=8, output="vector")
    st.exact_lift(params, so2)
    c = st.lift(vector.apply, params, probes, st.orbit_tangent(so2), ridge=1e-3, heldout=heldout)
    st.attribute(vector.apply, params, probes, st.orbit_tangent(so2), c)
    try:
        solvers.svd(jnp.ones(3))
    except Exception as error:
        assert type(error).__name__ == "TypeCheckError", error
        print("annotations are checked and hold")


if __name__ == "__main__":
    main()
