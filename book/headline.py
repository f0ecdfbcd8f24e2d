"""Draw the picture of the README and the landing page: ``make run`` calls it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import symtutor as st

st.enable_x64()
st.figures.use_style()
data_key, init_key = jax.random.split(jax.random.key(1))
net = st.mlp((2, 32, 32, 1))
fit = st.annulus.train(init_key, net, *st.annulus.data(data_key))
f, so2, probes = net.apply, st.so2(), st.polar_probes(angles=64)
eta, towards_E = st.orbit_tangent(so2), st.symmetrizing_tangent(so2)

quarter, decay = jnp.linspace(0, jnp.pi / 2, 2), jnp.linspace(0, 4, 2)
turned = st.resolved_flow(f, fit.params, probes, eta, quarter, ridge=1e-6, tolerance=1e-4).at(-1)
left = st.fixed_flow(f, fit.params, probes, eta, quarter, ridge=1e-6).at(-1)
rounder = st.resolved_flow(f, fit.params, probes, towards_E, decay, ridge=1e-4, tolerance=1e-4).at(-1)

panels = {
    "a trained classifier": fit.params,
    "its parameters moved\nalong the symmetry": turned,
    "the same, direction\nnot recomputed": left,
    "its parameters moved\ntowards symmetry": rounder,
}
fig, axes = plt.subplots(1, 4, figsize=(8.4, 2.5))
for ax, (title, params) in zip(axes, panels.items(), strict=True):
    image = st.figures.plane(ax, lambda points, params=params: jax.vmap(f, (None, 0))(params, points), scale=20, points=201)
    ax.set_title(title)
fig.colorbar(image, ax=axes, label="logit", shrink=0.8)
fig.savefig(Path(__file__).parent / "headline.png", dpi=110, metadata={"Software": None})
