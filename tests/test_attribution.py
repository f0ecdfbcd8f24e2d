"""Attribution: signed shares that add up, by layer, neuron and parameter; bands; rankings put to the test."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    COMPILED,
    ETA,
    SO2,
    TO_E,
    F,
    flat,
    heldout,
    jacobian,
    lifted,
    probes,
    tangent_values,
    trained,
    untrained,
    values,
)
from jax.flatten_util import ravel_pytree

import symtutor as st
import symtutor.attribution as attribution_module


def attribution(shares, explained):
    return st.Attribution(shares, explained, jax.tree.map(jnp.abs, shares))


@pytest.fixture(scope="module")
def shares():
    params, c = lifted("trained", "eta", 1e-2)
    return st.attribute(F, params, probes(), ETA, c)


def test_share_is_coefficient_times_correlation(shares):
    params, c = lifted("trained", "eta", 1e-2)
    eta, w = np.asarray(tangent_values(ETA, F, params, probes().x)), np.asarray(probes().w)
    correlation = np.asarray(jacobian(F, params, probes().x)).T @ (w * eta)
    expected = flat(c.direction) * correlation / (w @ eta**2)
    np.testing.assert_allclose(flat(shares.shares), expected, atol=1e-12)
    assert (expected < 0).any()  # shares have signs


def test_totals_are_sums_of_shares(shares):
    layers, neurons = shares.by_layer(), shares.by_neuron()
    assert list(layers) == list(neurons) == ["0", "1", "2"]
    for i, name in enumerate(layers):
        W, b = shares.shares[i]["W"], shares.shares[i]["b"]
        np.testing.assert_allclose(layers[name], W.sum() + b.sum(), atol=1e-14)
        np.testing.assert_allclose(neurons[name], W.sum(axis=1) + b, atol=1e-14)


def test_top_sorts_by_absolute_share_and_keeps_the_sign(shares):
    top = shares.top(5)
    sizes = [abs(share) for _, _, share in top]
    assert sizes == sorted(sizes, reverse=True)
    np.testing.assert_allclose(sizes, np.sort(np.abs(flat(shares.shares)))[::-1][:5], rtol=1e-14)
    for path, index, share in top:
        layer, leaf = path.split(".")
        assert float(shares.shares[int(layer)][leaf][index]) == share
    assert len(shares.top(10**6)) == 205


def test_scalar_leaves_and_a_single_array_have_names():
    shares = attribution({"a": jnp.array(0.3), "b": jnp.array([0.1, -0.6])}, jnp.array(-0.2))
    assert shares.top(2) == [("b", (1,), -0.6), ("a", (), 0.3)]
    assert {k: float(v) for k, v in shares.by_layer().items()} == pytest.approx({"a": 0.3, "b": -0.5})
    assert attribution(jnp.array([1.0]), jnp.array(1.0)).top(1) == [("", (0,), 1.0)]


def test_neurons_of_weights_stored_in_out_are_counted_along_the_last_axis():
    W, b = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), jnp.array([10.0, 20.0, 30.0])
    shares = attribution({"dense": {"kernel": W, "bias": b}}, jnp.array(0.0))
    np.testing.assert_allclose(shares.by_neuron(axis=-1)["dense"], [15, 27, 39])
    with pytest.raises(ValueError, match="'dense' count 3 and 2 neurons along axis 0"):
        shares.by_neuron()


def test_a_zero_tangent_has_zero_shares():
    f, x = (lambda w, x: w * jnp.dot(x, x)), st.polar_probes(radii=2, angles=4)

    def nothing(f, params, x):
        return jnp.zeros(x.shape[0])

    with pytest.warns(UserWarning, match="nothing to lift"):
        c = st.lift(f, jnp.array(1.0), x, nothing, ridge=1e-3)
    shares = st.attribute(f, jnp.array(1.0), x, nothing, c)
    assert float(shares.shares) == float(shares.explained) == 0.0


def test_attribution_can_be_jitted():
    params, c = lifted("trained", "eta", 1e-2)
    traced = jax.jit(lambda p, c: st.attribute(F, p, probes(), ETA, c))(params, c)
    np.testing.assert_allclose(traced.explained, c.explained, rtol=1e-10)
    plain = st.attribute(F, params, probes(), ETA, c)
    for leaf, wanted in zip(jax.tree.leaves(traced), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(leaf, wanted, atol=1e-12)


def test_scaled_coefficients_are_what_a_parameter_does_alone(shares):
    params, c = lifted("trained", "eta", 1e-2)
    S = np.sqrt(np.asarray(probes().w) @ np.asarray(jacobian(F, params, probes().x)) ** 2)
    expected = flat(c.direction) * S / float(c.tangent_norm)
    np.testing.assert_allclose(flat(shares.scaled), expected, atol=1e-12)
    # a share is that size times the cosine of S*_i and eta
    assert (np.abs(flat(shares.shares)) <= np.abs(expected) + 1e-12).all()


def test_positive_and_negative_shares_add_up(shares):
    assert float(shares.negative) < -0.01
    np.testing.assert_allclose(shares.positive + shares.negative, shares.explained, atol=1e-12)
    np.testing.assert_allclose(shares.negative, flat(shares.shares)[flat(shares.shares) < 0].sum(), atol=1e-12)


def test_printed_it_is_a_table_with_signs_and_totals(shares):
    lines = str(shares).splitlines()
    assert lines[0].startswith(f"explained {shares.explained:.4f} = positive")
    for (path, index, share), line in zip(shares.top(10), lines[2:12], strict=True):
        assert line.startswith(f"{path}[{', '.join(map(str, index))}]") and f"{share:+.4f}" in line
    assert [line.split() for line in lines[13:]] == [[k, f"{v:+.4f}"] for k, v in shares.by_layer().items()]
    assert len(shares.table(3).splitlines()) == len(lines) - 7
    assert "params" in str(attribution(jnp.array(1.0), jnp.array(1.0)))  # a single number has no path


def test_by_leaf_gives_arrays_under_readable_names(shares):
    leaves = shares.by_leaf()
    assert list(leaves) == ["0.W", "0.b", "1.W", "1.b", "2.W", "2.b"]
    np.testing.assert_array_equal(leaves["1.W"], shares.shares[1]["W"])


def test_names_of_an_equinox_network_are_those_of_its_attributes():
    model = eqx.nn.MLP(2, "scalar", 6, 1, jax.nn.tanh, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def f(params, x):
        return eqx.combine(params, static)(x)

    c = st.lift(f, params, probes(), ETA, ridge=1e-2)
    shares = st.attribute(f, params, probes(), ETA, c)
    assert set(shares.by_leaf()) == {f"layers.{i}.{name}" for i in (0, 1) for name in ("weight", "bias")}
    assert "layers.0.weight[" in str(shares)
    assert float(shares.explained) == pytest.approx(float(c.explained), abs=1e-11)


# ---- bands


RIDGES = (1e-1, 1e-2, 1e-4)


@pytest.fixture(scope="module")
def band():
    turned = st.polar_probes(radii=10, angles=32, offset=0.4)
    return st.attribution_band(F, trained().params, [probes(), turned], ETA, RIDGES)


def at(band, i, j):
    return jax.tree.map(lambda leaf: leaf[i, j], band.shares)


def test_a_band_holds_the_attribution_of_each_lift(band):
    for j, ridge in enumerate(RIDGES):
        params, c = lifted("trained", "eta", ridge)
        one = st.attribute(F, params, probes(), ETA, c)
        np.testing.assert_allclose(flat(at(band, 0, j)), flat(one.shares), atol=1e-7)
        assert float(band.explained[0, j]) == pytest.approx(float(one.explained), abs=1e-9)
        assert float(band.residuals[0, j]) == pytest.approx(float(c.residual), rel=1e-5)
        for layer, total in one.by_layer().items():
            assert float(band.by_layer()[layer][0, j]) == pytest.approx(float(total), abs=1e-7)
    assert not np.allclose(band.shares[0]["W"][0], band.shares[0]["W"][1], atol=1e-7)  # other probes, other shares


def test_overlap_counts_what_two_rankings_share(band):
    overlap = np.asarray(band.overlap(10))
    assert overlap.shape == (2, 3, 2, 3)
    np.testing.assert_allclose(overlap, overlap.transpose(2, 3, 0, 1))
    np.testing.assert_allclose([overlap[i, j, i, j] for i in (0, 1) for j in range(3)], 1)
    tops = [{entry[:2] for entry in attribution(at(band, 0, j), 0).top(10)} for j in (0, 2)]
    assert overlap[0, 0, 0, 2] == pytest.approx(len(tops[0] & tops[1]) / 10)
    np.testing.assert_allclose(band.overlap(10**6), 1)


def test_a_band_below_what_a_gram_matrix_supports_is_solved_by_svd():
    params, ridges = trained().params, [1e-12, 1e-4]
    band = st.attribution_band(F, params, [probes()], ETA, ridges)
    for j, ridge in enumerate(ridges):
        c = st.lift(F, params, probes(), ETA, ridge, solver="svd")
        assert float(band.residuals[0, j]) == pytest.approx(float(c.residual), rel=1e-6)


# ---- rankings put to the test


def scores_of(values):
    return jax.tree.unflatten(
        jax.tree.structure(trained().params),
        [
            jnp.asarray(part).reshape(leaf.shape)
            for part, leaf in zip(
                np.split(values, np.cumsum([leaf.size for leaf in jax.tree.leaves(trained().params)])[:-1]),
                jax.tree.leaves(trained().params),
                strict=True,
            )
        ],
    )


RANDOM = np.random.default_rng(0).permutation(205).astype(float)


def test_restricted_to_all_parameters_it_is_the_same_function():
    params, x = trained().params, heldout().x
    for k in (1, 7, 205):
        f_k, q = st.restrict(F, params, scores_of(RANDOM), k)
        assert q.shape == (k,)
        np.testing.assert_allclose(values(f_k, q, x), values(F, params, x), rtol=1e-12)
    # the free ones are those of largest score, in that order
    np.testing.assert_array_equal(
        st.restrict(F, params, scores_of(RANDOM), 3)[1], flat(params)[np.argsort(-RANDOM)[:3]]
    )


@pytest.mark.parametrize("tangent", [ETA, TO_E])
def test_a_subset_curve_is_the_lift_with_the_others_frozen(tangent):
    params = trained().params
    curve = st.subset_check(F, params, probes(), tangent, scores_of(RANDOM), heldout(), sizes=[8, 60, 205], ridge=1e-4)
    for i in (0, 1):
        f_k, q = st.restrict(F, params, scores_of(RANDOM), int(curve.sizes[i]))
        c = st.lift(f_k, q, probes(), tangent, ridge=1e-4, heldout=heldout())
        assert float(curve.residuals[i]) == pytest.approx(float(c.residual), rel=1e-6)
        assert float(curve.heldout_residuals[i]) == pytest.approx(float(c.heldout_residual), rel=1e-6)
        assert float(curve.norms[i]) == pytest.approx(float(c.norm), rel=1e-6)
    _, c = lifted("trained", "eta" if tangent is ETA else "to_e", 1e-4)
    assert float(curve.residuals[2]) == pytest.approx(float(c.residual), rel=1e-5)  # all free: the whole lift


def test_a_subset_curve_below_what_a_gram_matrix_supports_is_solved_by_svd():
    params = trained().params
    curve = st.subset_check(F, params, probes(), ETA, scores_of(RANDOM), heldout(), sizes=[205], ridge=1e-12)
    c = st.lift(F, params, probes(), ETA, ridge=1e-12, solver="svd")
    assert float(curve.residuals[0]) == pytest.approx(float(c.residual), rel=1e-6)


def test_the_area_of_a_curve_is_its_mean_over_the_logarithm():
    ones = jnp.ones(3)
    assert float(st.SubsetCurve(np.array([1, 10, 100]), ones, 2 * ones, ones).area()) == pytest.approx(2)
    steps = jnp.array([1.0, 0.5, 0.0])  # falls by a half a decade
    assert float(st.SubsetCurve(np.array([1, 10, 100]), steps, ones, ones).area(heldout=False)) == pytest.approx(0.5)


def test_default_sizes_reach_from_5_to_400_or_to_all():
    curve = st.subset_check(F, trained().params, probes(), ETA, scores_of(RANDOM), heldout())
    assert curve.sizes[0] == 5 and curve.sizes[-1] == 205 and len(curve.sizes) == 12
    f = lambda w, x: jnp.dot(w, x)  # noqa: E731
    small = st.subset_check(f, jnp.array([1.0, 0.0]), probes(), ETA, jnp.array([0.0, 1.0]), heldout(), ridge=1e-3)
    assert small.sizes.tolist() == [1, 2]
    assert float(small.area()) >= 0
    g = lambda w, x: jnp.dot(w, jnp.cos(jnp.arange(450) * x[0]))  # noqa: E731
    tiny, others = st.polar_probes(2, 8), st.polar_probes(2, 7, offset=0.3)
    large = st.subset_check(g, jnp.ones(450), tiny, lambda f, p, x: x[:, 0], jnp.ones(450), others)
    assert large.sizes[-1] == 400


def test_greedy_selection_of_orthogonal_columns_takes_the_largest_shares_in_order():
    # columns r cos m phi, r sin m phi are orthogonal on the grid, so the gains are the shares
    def f(w, x):
        return jnp.dot(w, jnp.array([x[0], x[1], x[0] * x[1], x[0] ** 2 - x[1] ** 2]))

    w = jnp.array([0.5, 2.0, 0.1, 1.0])
    greedy = st.greedy_scores(f, w, probes(), ETA, 4, ridge=1e-6)
    c = st.lift(f, w, probes(), ETA, ridge=1e-6)
    order = np.argsort(-np.abs(np.asarray(st.attribute(f, w, probes(), ETA, c).shares)))
    np.testing.assert_array_equal(np.argsort(-np.asarray(greedy)), order)
    np.testing.assert_array_equal(sorted(greedy), [1, 2, 3, 4])


def test_greedy_selection_bounds_a_random_one_and_repeats_no_column():
    params = trained().params
    greedy = st.greedy_scores(F, params, probes(), TO_E, 30)
    assert sorted(flat(greedy))[-30:] == list(range(1, 31)) and (flat(greedy) > 0).sum() == 30
    sizes = [5, 10, 20, 30]
    best, random = (
        st.subset_check(F, params, probes(), TO_E, scores, heldout(), sizes=sizes)
        for scores in (greedy, scores_of(RANDOM))
    )
    assert (best.residuals < random.residuals).all()


def test_greedy_selection_passes_over_copies():
    f = lambda w, x: jnp.dot(w, jnp.array([x[0], x[0], x[1]]))  # noqa: E731  # the first two columns are one
    w = jnp.array([1.0, 1.0, 0.5])
    chosen = st.greedy_scores(f, w, probes(), ETA, 2)
    assert float(chosen[2]) == 2 and sorted(chosen[:2].tolist()) == [0, 1]


def test_greedy_selection_passes_over_copies_at_ridge_0():
    """Of six columns there are two each. The tangent is noise, which rounding lies along as well as they do."""
    f = lambda w, x: jnp.dot(w, jnp.tile(jnp.sin(jnp.arange(1.0, 7) * x[0] + x[1]), 2))  # noqa: E731
    for seed in range(4):
        tangent = lambda f, p, x, seed=seed: jax.random.normal(jax.random.key(seed), x.shape[:1])  # noqa: E731
        chosen = st.greedy_scores(f, jnp.ones(12), probes(), tangent, 6, ridge=0.0)
        np.testing.assert_array_equal(np.asarray(chosen).reshape(2, 6).astype(bool).sum(axis=0), 1)  # one of each


def test_greedy_selection_is_the_same_in_float32():
    params, narrow = trained().params, lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
    wide = st.greedy_scores(F, params, probes(), TO_E, 120)
    for_narrow = st.greedy_scores(F, narrow(params), narrow(probes()), TO_E, 120)
    assert ((flat(wide) > 0) == (flat(for_narrow) > 0)).sum() >= 203


def test_greedy_selection_with_a_large_ridge_prefers_large_columns():
    """A column of slope 0.1 that is all of the tangent, beside one of slope 100 that is a quarter of it."""
    f = lambda w, x: w[0] * 0.1 * x[0] + w[1] * 100 * (x[0] + 3 * x[1])  # noqa: E731
    tangent = lambda f, p, x: x[:, 0]  # noqa: E731
    for ridge, first in ((1e-6, [1.0, 0.0]), (1.0, [0.0, 1.0])):
        assert st.greedy_scores(f, jnp.ones(2), probes(), tangent, 1, ridge=ridge).tolist() == first


# ---- what is below the floor, zero, or not finite


def invariant(params, x):
    return F(params, jnp.stack([jnp.hypot(x[0], x[1]), x[0] ** 2 + x[1] ** 2]))  # its eta is rounding


def zero(f, params, x):
    return jnp.zeros(x.shape[0])


@pytest.mark.parametrize(("f", "tangent", "residual"), [(invariant, ETA, 1), (F, zero, 0)], ids=["rounding", "zero"])
def test_below_the_floor_nothing_is_attributed(f, tangent, residual):
    params = untrained()
    with pytest.warns(UserWarning, match="below the floor"):
        band = st.attribution_band(f, params, [probes()], tangent, [1e-3])
        c = st.lift(f, params, probes(), tangent, 1e-3)
        curve = st.subset_check(f, params, probes(), tangent, scores_of(RANDOM), heldout(), [9, 80], 1e-3)
        greedy = st.greedy_scores(f, params, probes(), tangent, 3)
    assert not flat(band.shares).any() and not flat(greedy).any()
    assert float(band.explained[0, 0]) == float(c.explained) == 0
    assert float(band.residuals[0, 0]) == pytest.approx(float(c.residual)) == pytest.approx(residual)
    np.testing.assert_allclose(curve.residuals, residual)
    np.testing.assert_allclose(curve.heldout_residuals, residual)
    np.testing.assert_array_equal(curve.norms, 0)
    np.testing.assert_array_equal(band.overlap(5), 0)
    assert float(curve.area()) == pytest.approx(float(curve.area(heldout=False))) == pytest.approx(residual)


def test_a_failed_lift_of_a_subset_is_refused(monkeypatch):
    failed = lambda A, y, ridge, solver: (jnp.full(A.shape[1], jnp.nan), ridge)  # noqa: E731
    monkeypatch.setattr("symtutor.attribution.solve", failed)
    with pytest.raises(FloatingPointError, match="failed at ridge 0.001; expected a larger ridge"):
        f = lambda w, x: jnp.dot(w, x)  # noqa: E731
        st.subset_check(f, jnp.ones(2), probes(), ETA, jnp.ones(2), heldout(), ridge=1e-3)


def test_greedy_selection_and_bands_are_refused_where_memory_is_short(monkeypatch):
    params = untrained()
    monkeypatch.setattr("symtutor.lifting.LARGE", 10)
    monkeypatch.setattr("symtutor.solvers.free_memory", lambda *device: 12000)
    for call in (
        lambda: st.greedy_scores(F, params, probes(), ETA, 3),
        lambda: st.attribution_band(F, params, [probes()], ETA, [1e-3]),
    ):
        with pytest.raises(MemoryError, match="320 rows and 205 parameters"):
            call()


# ---- names, batches, precision, jit


def test_leaves_whose_names_collide_are_told_apart():
    tree = {"a.b": jnp.array([1.0, 2.0, 3.0]), "a": {"b": jnp.array([5.0, 6.0])}}
    shares = st.Attribution(tree, jnp.array(17.0), jax.tree.map(lambda leaf: 10 * leaf, tree))
    assert list(shares.by_leaf()) == ["['a']['b']", "['a.b']"]
    assert sum(leaf.sum() for leaf in shares.by_leaf().values()) == 17
    assert shares.top(2) == [("['a']['b']", (1,), 6.0), ("['a']['b']", (0,), 5.0)]
    for line, name in zip(
        shares.table(3).splitlines()[2:], ("['a']['b'][1]", "['a']['b'][0]", "['a.b'][2]"), strict=False
    ):
        _, share, size = line.split()
        assert line.startswith(name) and float(size) == 10 * float(share)
    nested = attribution({"a.b": {"W": jnp.ones((2, 2))}, "a": {"b": {"W": jnp.ones((2, 2))}}}, jnp.array(8.0))
    assert [total.tolist() for total in nested.by_neuron().values()] == [[2, 2], [2, 2]]


def test_neurons_of_a_convolution_are_its_channels():
    kernel = jnp.arange(48.0).reshape(4, 3, 2, 2)
    shares = attribution({"conv": {"weight": kernel, "bias": jnp.ones((4, 1, 1))}}, jnp.array(0.0))
    np.testing.assert_allclose(shares.by_neuron()["conv"], kernel.sum(axis=(1, 2, 3)) + 1)
    np.testing.assert_allclose(attribution(kernel, jnp.array(0.0)).by_neuron(axis=2)[""], kernel.sum(axis=(0, 1, 3)))


def test_a_batch_prints_its_arrays_and_its_parts_print_tables(shares):
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), shares)
    assert str(batch).startswith("Attribution(shares=")
    assert str(jax.tree.map(lambda leaf: leaf[1], batch)) == str(shares)


def test_bands_and_curves_print_as_tables(band):
    first, explained, *layers = str(band).splitlines()
    assert first == "2 probe sets, 3 ridges from 0.0001 to 0.1"
    assert explained == f"explained: {band.explained.min():+.4f} to {band.explained.max():+.4f}"
    assert [line.split(":")[0] for line in layers] == ["0", "1", "2"]
    curve = st.SubsetCurve(np.array([1, 10]), jnp.array([0.5, 0.25]), jnp.array([0.75, 0.5]), jnp.array([3.0, 4e6]))
    rows = [line.split() for line in str(curve).splitlines()[1:]]
    assert rows == [["1", "0.5000", "0.7500", "3"], ["10", "0.2500", "0.5000", "4e+06"]]
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (band, curve))
    assert str(batch[0]).startswith("AttributionBand(") and str(batch[1]).startswith("SubsetCurve(")


def test_overlap_counts_no_parameter_of_share_0():
    sh = jnp.zeros((2, 1, 100)).at[0, 0, jnp.array([90, 91])].set(1.0).at[1, 0, jnp.array([95, 96])].set(1.0)
    band = st.AttributionBand(sh, jnp.ones((2, 1)), jnp.ones((2, 1)), jnp.ones(1))
    np.testing.assert_array_equal(band.overlap(10)[:, 0, :, 0], np.eye(2))
    sh = sh.at[1, 0, :90].set(0.5).at[1, 0, 90].set(2.0)  # 1 of the first's 2 is among the other's 10
    np.testing.assert_allclose(band._replace(shares=sh).overlap(10)[0, 0, 1, 0], 0.1)


def test_ties_go_to_the_first():
    f = lambda w, x: jnp.dot(w, jnp.tile(x, 2))  # noqa: E731
    w = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert st.restrict(f, w, jnp.array([0.0, 1.0, 1.0, 1.0]), 2)[1].tolist() == [2, 3]
    curve = st.subset_check(f, w, probes(), lambda f, p, x: x[:, 0], jnp.zeros(4), heldout(), [1], ridge=1e-3)
    assert float(curve.residuals[0]) < 1e-3  # x_0 needs the first


def test_float32_parameters_and_wider_probes():
    f = lambda p, x: jnp.dot(p, x.astype(jnp.float32))  # noqa: E731
    wide = lambda p, x: jnp.dot(p.astype(x.dtype), x)  # noqa: E731
    w = jnp.array([1.0, 2.0], jnp.float32)
    for g in (f, wide):
        c = st.lift(g, w, probes(), ETA, 1e-2)
        shares = st.attribute(g, w, probes(), ETA, c)
        np.testing.assert_allclose(shares.explained, c.explained, rtol=1e-5)
        band = st.attribution_band(g, w, [probes()], ETA, [1e-2])
        np.testing.assert_allclose(band.shares[0, 0], shares.shares, rtol=1e-4)
        curve = st.subset_check(g, w, probes(), ETA, w, heldout(), [1, 2], 1e-2)
        np.testing.assert_allclose(curve.residuals[1], c.residual, atol=1e-5)
        assert st.greedy_scores(g, w, probes(), ETA, 2).tolist() == [2, 1]


def test_a_whole_ranking_and_its_test_can_be_jitted(band):
    params, c = lifted("trained", "eta", 1e-2)

    def whole(params, ridges):
        shares = st.attribute(F, params, probes(), ETA, c).shares
        scores = jax.tree.map(jnp.abs, shares)
        f_k, q = st.restrict(F, params, scores, 9)
        band = st.attribution_band(F, params, [probes()], ETA, ridges)
        return (
            st.subset_check(F, params, probes(), ETA, scores, heldout(), [5, 9], 1e-3),
            st.lift(f_k, q, probes(), ETA, 1e-3).residual,
            band,
            band.overlap(10),
            st.greedy_scores(F, params, probes(), ETA, 3, 1e-3),
        )

    ridges = jnp.array([1e-12, 1e-4])
    curve, residual, traced, overlap, greedy = jax.jit(whole)(params, ridges)
    assert float(curve.residuals[1]) == pytest.approx(float(residual), rel=1e-6)
    assert float(jax.jit(lambda c: c.area())(curve)) == pytest.approx(float(curve.area()), rel=1e-12)
    plain = st.attribution_band(F, params, [probes()], ETA, ridges)
    np.testing.assert_allclose(traced.residuals, plain.residuals, rtol=1e-6)
    np.testing.assert_allclose(flat(traced.shares), flat(plain.shares), atol=1e-6)
    np.testing.assert_allclose(overlap, plain.overlap(10))
    np.testing.assert_array_equal(flat(greedy), flat(st.greedy_scores(F, params, probes(), ETA, 3, 1e-3)))


def test_other_numbers_compile_nothing_anew():
    params = untrained()
    st.greedy_scores(F, params, probes(), ETA, 2, 1e-3)

    def restricted(scores):
        f_k, q = st.restrict(F, params, scores, 9)
        c = st.lift(f_k, q, probes(), ETA, 1e-3)
        return st.attribute(f_k, q, probes(), ETA, c)

    restricted(scores_of(RANDOM))
    before = len(COMPILED)
    st.greedy_scores(F, params, probes(), ETA, 3, 1e-2)
    restricted(scores_of(-RANDOM))
    assert len(COMPILED) == before


def test_a_restricted_function_is_used_as_any_other():
    params = untrained()
    f_k, q = st.restrict(F, params, scores_of(RANDOM), np.int64(9))
    np.testing.assert_allclose(jax.jit(f_k)(q, probes().x[0]), F(params, probes().x[0]), rtol=1e-12)
    anchored = st.anchored_tangent(f_k, q, SO2)
    with_function = st.lift(f_k, q, probes(), anchored, 1e-3)
    assert st.lift(f_k, q, probes(), TO_E, 1e-3).norm == pytest.approx(float(with_function.norm), rel=1e-9)
    free = ravel_pytree(params)[0]
    places = np.argsort(-RANDOM)[:9]
    by_hand = lambda q, x: F(ravel_pytree(params)[1](free.at[places].set(q)), x)  # noqa: E731
    np.testing.assert_allclose(
        st.sensitivity(f_k, q, probes()), st.sensitivity(by_hand, free[places], probes()), rtol=1e-12
    )


def test_chunks_and_sharding_are_handed_on(monkeypatch):
    """Each function asks for Jacobians or sensitivities in the chunks it was told, of probes that it took off their mesh."""
    f, w = (lambda w, x: jnp.dot(w, x)), jnp.array([1.0, 2.0])
    c = st.lift(f, w, probes(), ETA, 1e-3)
    seen = []

    def spy(name, size):
        plain = getattr(attribution_module, name)
        monkeypatch.setattr(
            attribution_module, name, lambda *a, **k: seen.append((name, size(*a, **k))) or plain(*a, **k)
        )

    spy("sensitivity", lambda *a, chunk_size: chunk_size)
    spy("linear_system", lambda *a: a[4])
    spy("_shares_over_ridges", lambda *a: a[6])
    spy("auto_sharded", lambda probes: None)
    st.attribute(f, w, probes(), ETA, c, chunk_size=7)
    st.attribution_band(f, w, [probes()], ETA, [1e-3], chunk_size=7)
    st.subset_check(f, w, probes(), ETA, w, heldout(), [1], 1e-3, chunk_size=7)
    st.greedy_scores(f, w, probes(), ETA, 1, chunk_size=7)
    sharded = ("auto_sharded", None)
    assert seen == [
        *(sharded, ("sensitivity", 7), sharded, ("_shares_over_ridges", 7)),
        *(sharded, ("linear_system", 7), sharded, ("linear_system", 7)),
    ]
