"""Each proposition of theory.md with its known answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import (
    ETA,
    MODES,
    SO2,
    TO_E,
    F,
    angle,
    band,
    band_params,
    defect,
    flat,
    heldout,
    jacobian,
    lifted,
    orbit,
    orthogonality,
    probes,
    projection,
    tangent_values,
    trained,
    turn,
    untrained,
    values,
)

import symtutor as st

pytestmark = pytest.mark.filterwarnings("ignore:eta and delta of so2:UserWarning")  # small grids alias, and say so

GRID = st.polar_probes(radii=4, angles=16)
BAND_SO2 = st.so2(nodes=16)


def inner(u, v, probes=GRID):
    return float(st.inner_product(u, v, probes.w))


def phase(x):
    return jnp.arctan2(x[1], x[0])


def cubic(theta, x):
    return jnp.cos(phase(x) - theta**3)


def bent(theta, x):
    return jnp.cos(phase(x)) + theta * jnp.sin(phase(x))


# ---- P1: a first-order lift exists exactly if eta is in the image of J


@pytest.mark.parametrize(
    ("f", "theta", "lifts"), [(cubic, 0.0, False), (cubic, 0.5, True), (bent, 0.0, True), (bent, 0.5, False)]
)
def test_p1_lifts_exactly_if_the_ranks_agree(f, theta, lifts):
    theta = jnp.array(theta)
    J, eta = jacobian(f, theta, GRID.x), tangent_values(st.orbit_tangent(BAND_SO2), f, theta, GRID.x)
    rank, augmented = (np.linalg.matrix_rank(m, tol=1e-9) for m in (J, np.column_stack([J, eta])))
    c = st.lift(f, theta, GRID, st.orbit_tangent(BAND_SO2), ridge=1e-7)
    assert (rank == augmented) == lifts == (float(c.residual) < 1e-9)
    # what each example is known to reach: nothing, all, all, and all but theta cos(phi)
    expected = {(cubic, 0.0): (1, 0), (cubic, 0.5): (0, 4 / 3), (bent, 0.0): (0, 1), (bent, 0.5): (0.2**0.5, 1)}
    residual, speed = expected[f, float(theta)]
    assert float(c.residual) == pytest.approx(residual, abs=1e-12)
    assert float(c.direction) == pytest.approx(speed, abs=1e-12)


def test_p1_is_not_needed_for_a_lift_that_is_not_differentiable():
    t = 0.3
    moved = values(cubic, jnp.array(t ** (1 / 3)), GRID.x)
    np.testing.assert_allclose(moved, orbit(cubic, jnp.array(0.0), GRID.x, BAND_SO2, t), atol=1e-14)


def test_p1_is_not_enough_beyond_first_order():
    # the orbit is cos t cos phi + sin t sin phi, and no theta changes the factor of cos phi
    t = 0.3
    target = orbit(bent, jnp.array(0.0), GRID.x, BAND_SO2, t)
    rest = values(bent, jnp.sin(jnp.array(t)), GRID.x) - target
    assert inner(rest, rest) ** 0.5 == pytest.approx((1 - np.cos(t)) / np.sqrt(2), rel=1e-12)
    assert abs(inner(rest, values(bent, jnp.array(1.0), GRID.x) - values(bent, jnp.array(0.0), GRID.x))) < 1e-15


# ---- P2: where eta stays in the image, the resolved flow is the orbit


def linear(w, x):
    return jnp.dot(w, x)


def test_p2_resolved_flow_of_a_linear_function_is_a_circle():
    ts = jnp.array([0.0, 1.0, 2 * jnp.pi])
    w = jnp.array([2.0, 0.0])
    flow = st.resolved_flow(linear, w, GRID, st.orbit_tangent(BAND_SO2), ts, ridge=1e-7, tolerance=1e-8)
    np.testing.assert_allclose(flow.params, [turn(t) @ w for t in ts], atol=2e-6)


@pytest.fixture(scope="module")
def along_orbit():
    """Resolved flows of c*, by state of the network and ridge; the ridge is traced, so they share one program."""

    def flow(params, ridge):
        return st.resolved_flow(F, params, probes(), ETA, jnp.linspace(0, jnp.pi / 2, 9), ridge=ridge, tolerance=1e-5)

    return flow


@pytest.mark.parametrize(("state", "most"), [("untrained", 1e-3), ("trained", 1e-4)])
def test_p2_resolved_flow_of_a_network_is_its_orbit(along_orbit, state, most):
    flow = along_orbit(untrained() if state == "untrained" else trained().params, 1e-6)
    assert st.orbit_error(F, flow, heldout().x, SO2).max() < most
    np.testing.assert_allclose(st.defect_left(F, flow, heldout().x, SO2), 1, atol=1e-3)


# ---- P3: the lift is the part of any exact lift that is orthogonal to the kernel


def test_p3_lift_is_the_projection_of_an_exact_lift():
    few = st.polar_probes(radii=4, angles=9)  # 36 equations for 205 parameters: a kernel of known size
    params = untrained()
    c = st.lift(F, params, few, ETA, ridge=0.0)
    c_ex = flat(st.exact_lift(params, SO2))
    right = np.linalg.svd(jacobian(F, params, few.x), full_matrices=False)[2]
    assert right.shape == (36, 205)
    np.testing.assert_allclose(flat(c.direction), right.T @ (right @ c_ex), atol=1e-8)
    ratio = float(c.norm) / np.linalg.norm(c_ex)
    assert ratio < 0.999
    assert ratio == pytest.approx(angle(c.direction, c_ex), abs=1e-8)


# ---- P4: the kernel of J is gauge


def test_p4_rescaling_a_relu_neuron_is_in_the_kernel():
    net = st.mlp((2, 5, 1), activation=jax.nn.relu)
    params = net.init(jax.random.key(3))
    params[0]["b"] = params[0]["b"] + 0.3
    J = np.asarray(jacobian(net.apply, params, GRID.x))
    for i in range(5):
        k = jax.tree.map(jnp.zeros_like, params)
        k[0]["W"] = k[0]["W"].at[i].set(params[0]["W"][i])
        k[0]["b"] = k[0]["b"].at[i].set(params[0]["b"][i])
        k[1]["W"] = k[1]["W"].at[0, i].set(-params[1]["W"][0, i])
        assert np.abs(J @ flat(k)).max() < 1e-15
        k[1]["W"] = -k[1]["W"]  # the other sign is no gauge
        assert np.abs(J @ flat(k)).max() > 1e-2


def test_p4_constant_shared_by_two_networks_is_in_the_kernel():
    net = st.mlp((1, 3, 1))
    params = {"K": net.init(jax.random.key(0)), "V": net.init(jax.random.key(1))}

    def energy(params, x):
        return net.apply(params["K"], x[1:]) + net.apply(params["V"], x[:1])

    k = jax.tree.map(jnp.zeros_like, params)
    k["K"][-1]["b"] += 1.0
    k["V"][-1]["b"] -= 1.0
    assert not (np.asarray(jacobian(energy, params, GRID.x)) @ flat(k)).any()  # exactly 0


def test_p4_lift_has_no_part_in_the_probe_kernel():
    few = st.polar_probes(radii=4, angles=9)
    c = st.lift(F, untrained(), few, ETA, ridge=0.0)
    kernel = np.linalg.svd(jacobian(F, untrained(), few.x))[2][36:]
    assert np.abs(kernel @ flat(c.direction)).max() < 1e-8


def test_p4_constant_shared_by_kinetic_and_potential_is_in_the_kernel():
    ham, params = st.asrnn(width=6), random_params(st.asrnn(width=6))
    J = jacobian(energy_of(ham), params, PHASE_SPACE.x)
    k = jax.tree.map(jnp.zeros_like, params)
    k["K"][-1]["b"], k["V"][-1]["b"] = jnp.ones(1), -jnp.ones(1)
    assert not (J @ flat(k)).any()  # exactly 0
    k["V"][-1]["b"] = jnp.ones(1)  # the other sign raises H
    np.testing.assert_array_equal(J @ flat(k), 2)


# ---- P5: P_E is an orthogonal projector that commutes with the action


def other_params():
    return jax.tree.map(lambda leaf: leaf[::-1] - 0.5, band_params())


def averaged(params, x):
    return st.equivariant_projection(band, params, x[None], BAND_SO2)[0]


def turned(params, x):
    return st.orbit(band, params, x[None], BAND_SO2, 0.7)[0]


def test_p5_projection_of_a_band_limited_function_is_its_mean_over_angles():
    mean = np.full(64, float(band_params()["a"][0]))  # r^0 a_0, the one mode without an angle
    np.testing.assert_allclose(projection(band, band_params(), GRID.x, BAND_SO2), mean, atol=1e-14)


def test_p5_projector_is_idempotent_self_adjoint_and_commutes_with_the_action():
    p, q = band_params(), other_params()
    once = projection(band, p, GRID.x, BAND_SO2)
    np.testing.assert_allclose(projection(averaged, p, GRID.x, BAND_SO2), once, atol=1e-14)
    # 0.7 is no multiple of the grid's step: exact because the function is band-limited
    np.testing.assert_allclose(projection(turned, p, GRID.x, BAND_SO2), once, atol=1e-14)
    np.testing.assert_allclose(orbit(averaged, p, GRID.x, BAND_SO2, 0.7), once, atol=1e-14)
    left = inner(once, values(band, q, GRID.x))
    assert left == pytest.approx(inner(values(band, p, GRID.x), projection(band, q, GRID.x, BAND_SO2)), abs=1e-14)


def test_p5_pythagoras():
    f, pe = values(band, band_params(), GRID.x), projection(band, band_params(), GRID.x, BAND_SO2)
    delta = defect(band, band_params(), GRID.x, BAND_SO2)
    assert inner(f, f) == pytest.approx(inner(pe, pe) + inner(delta, delta), rel=1e-14)


def test_p5_projection_of_a_linear_field_is_its_part_that_commutes_with_turns():
    A = jnp.array([[1.0, 2.0], [3.0, 7.0]])
    seen = projection(lambda A, x: A @ x, A, GRID.x, st.so2(nodes=16, output="vector"))
    kept = np.array([[4.0, -0.5], [0.5, 4.0]])  # (a + d) / 2 of the identity and (c - b) / 2 of xi
    np.testing.assert_allclose(seen, GRID.x @ kept.T, atol=1e-13)


# ---- P6: moving along the orbit and moving towards E are orthogonal in function space


def test_p6_orbit_tangent_is_orthogonal_to_f_and_to_both_its_parts():
    eta = tangent_values(st.orbit_tangent(BAND_SO2), band, band_params(), GRID.x)
    parts = [g(band, band_params(), GRID.x, BAND_SO2) for g in (projection, defect)]
    for other in (*parts, sum(parts)):
        assert abs(inner(eta, other)) < 1e-14


def gaussian_probes(shift):
    return st.probes_from_data(jax.random.normal(jax.random.key(7), (2000, 2)) + shift)


def test_p6_cosine_tells_closed_probes_from_others():
    params = untrained()
    closed, gaussian, shifted = (
        abs(float(orthogonality(F, params, p, st.so2(nodes=64))))
        for p in (st.polar_probes(radii=10, angles=128), gaussian_probes(0.0), gaussian_probes(1.0))
    )
    assert closed < 1e-12
    assert 1e-3 < gaussian < 5e-2 < shifted


# ---- P7: eta weighs angular modes by m^2, delta by 1


def test_p7_norms_are_sums_over_fourier_modes():
    p = band_params()
    r = (np.arange(4) + 0.5) / 4  # (r / 2.5)^2 of the rings
    squares = np.array([(r**m).mean() for m in MODES]) * np.asarray(p["a"] ** 2 + p["b"] ** 2) / 2
    eta, delta = tangent_values(st.orbit_tangent(BAND_SO2), band, p, GRID.x), defect(band, p, GRID.x, BAND_SO2)
    assert inner(eta, eta) == pytest.approx(float((MODES**2 * squares).sum()), rel=1e-13)
    assert inner(delta, delta) == pytest.approx(float(squares[1:].sum()), rel=1e-13)
    assert inner(delta, delta) < inner(eta, eta)


def test_p7_finite_group_has_a_defect_and_no_orbit():
    with pytest.raises(ValueError, match="no orbit tangent"):
        st.orbit_tangent(st.cyclic(4))
    # C_4 keeps the modes m = 0 and 4
    p = band_params()
    only = {k: v * np.isin(MODES, [0.0, 4.0]).astype(float) for k, v in p.items()}
    expected = values(band, p, GRID.x) - values(band, only, GRID.x)
    np.testing.assert_allclose(defect(band, p, GRID.x, st.cyclic(4)), expected, atol=1e-14)


# ---- P8: along b* the defect decays as exp(-t) and the invariant part stays


def test_p8_defect_decays_exponentially():
    ts = jnp.arange(5.0)
    flow = st.resolved_flow(F, untrained(), probes(), TO_E, ts, ridge=1e-4, tolerance=1e-4)
    left = st.defect_left(F, flow, heldout().x, SO2)
    np.testing.assert_allclose(left, [1, 0.3679, 0.1353, 0.0498, 0.0183], atol=1e-4)
    assert st.invariant_drift(F, flow, heldout().x, SO2).max() < 1e-12  # f is odd and stays so


# ---- P9: the errors of flows


def test_p9_resolved_error_is_at_most_the_integral_of_the_residual(along_orbit):
    flow = along_orbit(trained().params, 3e-2)  # a large ridge, so that the residual and not the integrator decides
    lifts = [st.lift(F, flow.at(i), probes(), ETA, ridge=3e-2, heldout=heldout()) for i in range(9)]
    rate = np.array([float(c.residual * c.tangent_norm) for c in lifts])
    bound = np.concatenate([[0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(flow.ts))])
    error = np.asarray(st.orbit_error(F, flow, probes().x, SO2, relative=False))
    assert (error <= 1.01 * bound).all()
    assert error[-1] > 0.2 * bound[-1]  # the bound is no idle one


@pytest.fixture(scope="module")
def fixed():
    # trained: with the zero biases of an untrained network c* and c_ex differ by 2 per cent
    ts = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-4, 1.0, 13)])
    return st.fixed_flow(F, trained().params, probes(), ETA, ts, ridge=0.0)


@pytest.mark.parametrize(("relative", "slope"), [(False, 2), (True, 1)])
def test_p9_fixed_error_grows_with_the_known_slope(fixed, relative, slope):
    error = np.asarray(st.orbit_error(F, fixed, heldout().x, SO2, relative=relative))
    assert error[0] == 0
    early = slice(1, 6)  # t from 1e-4 to 2e-3
    fit = np.polyfit(np.log(fixed.ts[early]), np.log(error[early]), 1)
    assert fit[0] == pytest.approx(slope, abs=0.01)


def test_p9_fixed_flow_under_rotates_and_dilates(fixed):
    x = heldout().x
    for i, t in enumerate(np.asarray(fixed.ts)):
        closed = values(F, trained().params, x @ (np.hypot(1, t) * turn(-np.arctan(t))).T)
        np.testing.assert_allclose(values(F, fixed.at(i), x), closed, atol=1e-6)  # c* is c_ex up to 4e-8, by the cut
        exact = jax.tree.map(lambda p, c, t=t: p + t * c, trained().params, st.exact_lift(trained().params, SO2))
        np.testing.assert_allclose(values(F, exact, x), closed, atol=1e-13)


# ---- P10: a dense first layer lifts every linear action exactly


def random_params(net, seed=0):
    params = net.init(jax.random.key(seed))
    return jax.tree.map(
        lambda leaf: leaf + 0.3 * jnp.cos(jnp.arange(leaf.size, dtype=float)).reshape(leaf.shape), params
    )


@pytest.mark.parametrize("group", [st.so2(nodes=4), st.shear(), st.dilation()], ids=lambda g: g.name)
def test_p10_exact_lift_reaches_any_linear_action(group):
    params = random_params(st.mlp((2, 12, 12, 1)))
    c = st.exact_lift(params, group)
    eta = tangent_values(st.orbit_tangent(group), F, params, GRID.x)
    np.testing.assert_allclose(jacobian(F, params, GRID.x) @ flat(c), eta, atol=1e-13)
    assert all(not leaf.any() for leaf in jax.tree.leaves(c[1:]))
    moved = jax.tree.map(jnp.copy, params)
    moved[0]["W"] = params[0]["W"] @ group.subgroup(-0.8)
    np.testing.assert_allclose(values(F, moved, GRID.x), orbit(F, params, GRID.x, group, 0.8), atol=1e-13)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 5, 2)])
def test_p10_vector_output_turns_the_last_layer_too(sizes):
    net, group = st.mlp(sizes), st.so2(nodes=4, output="vector")
    params = random_params(net)
    eta = tangent_values(st.orbit_tangent(group), net.apply, params, GRID.x)
    c = st.exact_lift(params, group)
    np.testing.assert_allclose(jacobian(net.apply, params, GRID.x) @ flat(c), eta.reshape(-1), atol=1e-13)
    moved = jax.tree.map(jnp.copy, params)
    moved[0]["W"] = moved[0]["W"] @ group.subgroup(-0.8)
    moved[-1] = {"W": group.subgroup(0.8) @ moved[-1]["W"], "b": group.subgroup(0.8) @ moved[-1]["b"]}
    seen = orbit(net.apply, params, GRID.x, group, 0.8)
    np.testing.assert_allclose(values(net.apply, moved, GRID.x), seen, atol=1e-13)


# ---- P11: the orbit tangent of a Hamiltonian is the rate at which it breaks conservation of angular momentum


def energy_of(ham, a=0.8):
    """Return ``H`` of the columns q and p, which one rotation turns together."""
    return lambda params, z: ham.energy(params, z[:, 0], z[:, 1], jnp.array(a))


PHASE_SPACE = st.probes_from_data(jax.random.normal(jax.random.key(5), (40, 2, 2)))


@pytest.mark.parametrize("ham", [st.asrnn(width=8), st.hnn(width=8)], ids=["asrnn", "hnn"])
def test_p11_eta_of_a_hamiltonian_is_the_rate_of_angular_momentum(ham):
    params, z = random_params(ham), PHASE_SPACE.x
    eta = tangent_values(ETA, energy_of(ham), params, z)

    def after(q, p, dt):  # L after one step of the learned flow
        qs, ps = ham.rollout(params, q, p, jnp.array(0.8), dt, 1)
        return st.mexican_hat.angular_momentum(qs[0], ps[0])

    rate = jax.jit(jax.vmap(lambda z: jax.jvp(lambda dt: after(z[:, 0], z[:, 1], dt), (0.0,), (1.0,))[1]))(z)
    assert float(jnp.sqrt(jnp.mean(eta**2))) > 0.1
    np.testing.assert_allclose(eta, rate, atol=1e-10)


def test_p11_exact_lift_of_the_potential_leaves_the_parameter_channel_alone():
    ham = st.asrnn(width=8)
    params = random_params(ham)["V"]
    group = st.Group("so2 of q", (((0.0, -1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),))

    def potential(params, x):
        return ham.potential({"V": params}, x[:2], x[2])

    x = jax.random.normal(jax.random.key(6), (30, 3))
    c = st.exact_lift(params, group)
    assert not c[0]["W"][:, 2].any() and c[0]["W"][:, :2].all()
    eta = tangent_values(st.orbit_tangent(group), potential, params, x)
    assert float(jnp.abs(eta).max()) > 0.1
    np.testing.assert_allclose(jacobian(potential, params, x) @ flat(c), eta, atol=1e-12)
    # and over a finite turn of q, at the same a
    moved = jax.tree.map(jnp.copy, params)
    moved[0]["W"] = params[0]["W"] @ group.subgroup(-0.8)
    np.testing.assert_array_equal(moved[0]["W"][:, 2], params[0]["W"][:, 2])
    turned = x.at[:, :2].set(x[:, :2] @ turn(-0.8).T)
    np.testing.assert_allclose(values(potential, moved, x), values(potential, params, turned), atol=1e-12)


# ---- P12: shares add up to what the lift explains


def check_shares(f, params, probes, tangent, c):
    shares = st.attribute(f, params, probes, tangent, c)
    explained = 1 - c.residual**2 - c.damping * c.norm**2 / c.tangent_norm**2
    assert float(shares.explained) == pytest.approx(float(explained), abs=1e-9)
    assert float(shares.explained) == pytest.approx(float(c.explained), abs=1e-11)
    assert flat(shares.shares).sum() == pytest.approx(float(c.explained), abs=1e-11)
    assert sum(map(float, shares.by_layer().values())) == pytest.approx(float(c.explained), abs=1e-11)
    return shares


@pytest.mark.parametrize("state", ["untrained", "trained"])
@pytest.mark.parametrize(("kind", "tangent"), [("eta", ETA), ("to_e", TO_E)])
def test_p12_shares_of_a_network_are_complete(state, kind, tangent):
    for ridge in (1e-2, 1e-4, 1e-6):
        params, c = lifted(state, kind, ridge)
        check_shares(F, params, probes(), tangent, c)


@pytest.mark.parametrize(
    ("solver", "make"),
    [("cholesky", st.orbit_tangent), ("eigh", st.symmetrizing_tangent), ("svd", st.orbit_tangent)],
)
def test_p12_shares_of_a_vector_output_are_complete(solver, make):
    w = 1 + 0.5 * jnp.cos(jnp.arange(64.0))
    tilted = st.Probes(GRID.x, w / w.sum())  # unequal weights, so that one forgotten shows
    net, tangent = st.mlp((2, 5, 2)), make(st.so2(nodes=16, output="vector"))
    params = random_params(net)
    c = st.lift(net.apply, params, tilted, tangent, ridge=1e-2, solver=solver)
    check_shares(net.apply, params, tilted, tangent, c)


SCALARS = {
    "tanh": st.mlp((2, 6, 5, 1)).apply,
    "relu": st.mlp((2, 6, 5, 1), activation=jax.nn.relu).apply,
    "potential": lambda params, q: st.asrnn(width=6).potential(params, q, 1.0),
    "single array": lambda w, x: jnp.dot(w, jnp.array([x[0], x[1], x[0] * x[1], x[0] ** 3])),
}
TANGENTS = {
    "rotation": st.orbit_tangent(st.so2()),
    "shear": st.orbit_tangent(st.shear()),
    "dilation": st.orbit_tangent(st.dilation()),
    "average over turns": st.symmetrizing_tangent(st.so2(nodes=16)),
    "average over quarter turns": st.symmetrizing_tangent(st.cyclic(4)),
    "average over a flip": st.symmetrizing_tangent(st.reflection()),
}


@pytest.mark.parametrize("network", SCALARS)
def test_p12_shares_are_complete_for_every_network_and_group(network):
    params = {
        "tanh": lambda: random_params(st.mlp((2, 6, 5, 1))),
        "relu": lambda: random_params(st.mlp((2, 6, 5, 1))),
        "potential": lambda: random_params(st.asrnn(width=6)),
        "single array": lambda: jnp.array([1.0, 0.5, -0.3, 0.2]),
    }[network]()
    for tangent in TANGENTS.values():
        for ridge in (1e-2, 1e-5):
            c = st.lift(SCALARS[network], params, GRID, tangent, ridge=ridge)
            check_shares(SCALARS[network], params, GRID, tangent, c)


def test_p12_the_ridge_term_is_what_plain_least_squares_lacks():
    # 1 - r^2 alone misses by damping norm(c)^2 / norm(eta)^2, which falls with the ridge
    gaps = []
    for ridge in (1e-2, 1e-4, 1e-6):
        _, c = lifted("trained", "to_e", ridge)
        gaps.append(float(1 - c.residual**2 - c.explained))
    assert 1e-3 < gaps[0] and gaps[1] < gaps[0] / 3 and 0 < gaps[2] < gaps[1] / 3


# ---- P13: the anchored flow keeps the invariant part


def test_p13_anchored_tangent_starts_as_the_symmetrizing_one():
    params = trained().params
    a = tangent_values(st.anchored_tangent(F, params, SO2), F, params, heldout().x)
    np.testing.assert_allclose(a, tangent_values(TO_E, F, params, heldout().x), atol=1e-13)


def test_p13_anchored_flow_drifts_less():
    params, ts = trained().params, jnp.arange(5.0)
    drifts = []
    for tangent in (TO_E, st.anchored_tangent(F, params, SO2)):
        flow = st.resolved_flow(F, params, probes(), tangent, ts, ridge=1e-3, tolerance=1e-2)
        drifts.append(float(st.invariant_drift(F, flow, heldout().x, SO2)[-1]))
    assert drifts[1] < drifts[0] / 2


# ---- P14: the angle of the two directions in parameter space


def test_p14_inner_product_of_the_directions_is_that_of_the_kernel():
    params, c = lifted("trained", "eta", 1e-2)
    _, b = lifted("trained", "to_e", 1e-2)
    A = np.sqrt(np.asarray(probes().w))[:, None] * np.asarray(jacobian(F, params, probes().x))
    eta, delta = (
        np.sqrt(np.asarray(probes().w)) * np.asarray(v)
        for v in (tangent_values(ETA, F, params, probes().x), defect(F, params, probes().x, SO2))
    )
    s, U = np.linalg.eigh(A @ A.T)
    filtered = np.clip(s, 0, None) / (s + float(c.damping)) ** 2  # K^+ with the ridge
    expected = -(U.T @ eta) @ (filtered * (U.T @ delta))
    seen = flat(c.direction) @ flat(b.direction)
    assert seen == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("ridge", [1e-4, 1e-6])
def test_p14_directions_of_a_trained_network_are_not_orthogonal(ridge):
    c, b = (lifted("trained", kind, ridge)[1].direction for kind in ("eta", "to_e"))
    assert abs(angle(c, b)) > 1e-3


@pytest.mark.parametrize("f", [linear, band])
def test_p14_directions_are_orthogonal_if_the_kernel_commutes_with_the_action(f):
    params = jnp.array([2.0, 1.0]) if f is linear else band_params()
    c, b = (st.lift(f, params, GRID, make(BAND_SO2), ridge=0.0) for make in (st.orbit_tangent, st.symmetrizing_tangent))
    assert c.residual < 1e-12 and b.residual < 1e-12 and c.norm > 0.1 and b.norm > 0.1
    assert abs(angle(c.direction, b.direction)) < 1e-13
