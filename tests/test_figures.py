"""Figures: colours that are neutral at 0, and what cannot be drawn."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import symtutor as st
from symtutor.figures import network_graph, plane


@pytest.fixture
def ax():
    yield plt.figure().add_subplot()
    plt.close()


NEUTRAL = plt.get_cmap("PuOr_r")(0.5)
LAYERS = st.mlp((2, 3, 1)).init(jax.random.key(0))


@pytest.mark.parametrize(
    ("values", "scale"),
    [(lambda x: 0 * x[:, 0], 1), (lambda x: x[:, 0], 2.5), (lambda x: jnp.where(x[:, 0] > 0, jnp.nan, x[:, 0]), 2.5)],
    ids=["zero", "odd", "partly not finite"],
)
def test_zero_is_neutral_in_a_plane(ax, values, scale):
    image = plane(ax, values, points=11)
    assert image.get_clim() == (-scale, scale)
    np.testing.assert_allclose(image.cmap(image.norm(0.0)), NEUTRAL)


def test_zero_is_neutral_in_a_network(ax):
    assert network_graph(ax, jax.tree.map(jnp.zeros_like, LAYERS)).get_clim() == (-1, 1)
    assert network_graph(ax, LAYERS, scale=3.0).get_clim() == (-3, 3)


@pytest.mark.parametrize(
    ("draw", "error", "said"),
    [
        (lambda ax: plane(ax, lambda x: x[:, 0], scale=0.0), ValueError, "scale is 0.0; expected a positive"),
        (lambda ax: plane(ax, lambda x: x[:, 0], limit=-1.0), ValueError, "limit is -1.0; expected a positive"),
        (
            lambda ax: plane(ax, lambda x: x[:, 0], points=0),
            ValueError,
            "points is 0; expected a positive whole number",
        ),
        (lambda ax: network_graph(ax, LAYERS, scale=-1.0), ValueError, "scale is -1.0; expected a positive"),
        (lambda ax: network_graph(ax, LAYERS, inputs=("x",)), ValueError, "inputs has 1 names; expected 2"),
        (lambda ax: network_graph(ax, LAYERS[0]), TypeError, "shares is dict; expected a list of {'W': "),
        (lambda ax: network_graph(ax, [{"W": LAYERS[0]["W"]}]), TypeError, "shares is list; expected a list of {'W': "),
        (lambda ax: network_graph(ax, []), ValueError, "shares is an empty list; expected at least one layer"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(ax, draw, error, said):
    with pytest.raises(error, match=said):
        draw(ax)
