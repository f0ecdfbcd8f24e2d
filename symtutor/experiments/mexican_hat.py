"""The Mexican hat: a particle in the plane under ``V = -a |q|^2 / 2 + |q|^4 / 4``, learned from short trajectories.

The truth is invariant under rotations, so angular momentum is conserved. A learned Hamiltonian need not be.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from symtutor import checks
from symtutor.fitting import Fit, minimise
from symtutor.networks import YOSHIDA, Hamiltonian, hamiltonian_field, symplectic_step


class Trajectories(NamedTuple):
    """Trajectories of the truth; lengths and times have no units.

    Attributes:
        q: initial positions, shape ``(n, 2)``.
        p: initial momenta, shape ``(n, 2)``.
        a: value of the parameter for each, shape ``(n,)``.
        qs: positions after each step, shape ``(n, steps, 2)``.
        ps: momenta after each step, shape ``(n, steps, 2)``.
    """

    q: Float[Array, "n 2"]
    p: Float[Array, "n 2"]
    a: Float[Array, " n"]
    qs: Float[Array, "n steps 2"]
    ps: Float[Array, "n steps 2"]


DT, STEPS = 0.1, 15
"""Time between samples of the training trajectories, and their number."""


def potential(q: Float[Array, " 2"], a: checks.Number) -> Float[Array, ""]:
    """Return ``V(q; a) = -a |q|^2 / 2 + |q|^4 / 4``, least on the circle ``|q| = sqrt(a)``.

    Args:
        q: position, shape ``(2,)``.
        a: parameter.

    Returns:
        The potential, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(potential(jnp.array([1.0, 0.0]), 1.0))
        -0.25
    """
    square = jnp.dot(q, q)
    return -a * square / 2 + square**2 / 4


def energy(q: Float[Array, " 2"], p: Float[Array, " 2"], a: checks.Number) -> Float[Array, ""]:
    """Return ``H = |p|^2 / 2 + V(q; a)``.

    Args:
        q: position, shape ``(2,)``.
        p: momentum, shape ``(2,)``.
        a: parameter.

    Returns:
        The energy, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(energy(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]), 1.0))
        0.25
    """
    return jnp.dot(p, p) / 2 + potential(q, a)


def angular_momentum(q: Float[Array, "*n 2"], p: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """Return ``L = q_1 p_2 - q_2 p_1``, which rotations conserve.

    Args:
        q: positions, shape ``(..., 2)``.
        p: momenta, the same shape.

    Returns:
        Angular momenta, shape ``(...)``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(angular_momentum(jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0])))
        2.0

    Reference: theory.md, P11.
    """
    return q[..., 0] * p[..., 1] - q[..., 1] * p[..., 0]


def simulate(
    q: Float[Array, "n 2"], p: Float[Array, "n 2"], a: Float[Array, " n"], dt: float, steps: int, finer: int = 20
) -> tuple[Float[Array, "n steps 2"], Float[Array, "n steps 2"]]:
    """Follow the truth from given starts, in steps ``finer`` times shorter than those reported, by a method of fourth order.

    Args:
        q: initial positions, shape ``(n, 2)``.
        p: initial momenta, shape ``(n, 2)``.
        a: parameters, shape ``(n,)``.
        dt: time between samples.
        steps: number of samples.
        finer: integration steps a sample.

    Returns:
        Positions and momenta, each ``(n, steps, 2)``, the start left out.

    Raises:
        ValueError: if a count or dt is not positive, or shapes do not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> qs, ps = simulate(jnp.array([[1.0, 0.0]]), jnp.zeros((1, 2)), jnp.ones(1), 0.1, 3)    # at rest on the circle
        >>> qs[0, -1].round(6).tolist()
        [1.0, 0.0]

    Reference: experiments.md, 2.
    """
    checks.check_count(steps, "steps")
    checks.check_count(finer, "finer")
    checks.check_positive(dt, "dt")

    checks.check_points(q, "q")
    if q.ndim != 2 or p.shape != q.shape or a.shape != q.shape[:1]:
        raise ValueError(
            f"q, p and a have shapes {q.shape}, {p.shape} and {a.shape}; expected (n, 2), (n, 2) and (n,)."
        )
    return _simulate(q, p, a, dt, steps, finer)


def trajectories(key: Array, n: int = 128) -> Trajectories:
    """Draw starts at random and follow the truth from them.

    q is uniform in ``[-1.5, 1.5]^2``, p normal with standard deviation 0.3, a uniform in ``[0.5, 1.5]``; 15 samples, 0.1 apart.

    Args:
        key: random key.
        n: number of trajectories.

    Returns:
        The trajectories.

    Raises:
        ValueError: if n is not a positive whole number.

    Example:
        >>> import jax
        >>> trajectories(jax.random.key(0), n=4).qs.shape
        (4, 15, 2)

    Reference: experiments.md, 2; the settings are ours, not the source paper's.
    """
    checks.check_count(n, "n")
    q_key, p_key, a_key = jax.random.split(key, 3)
    q = jax.random.uniform(q_key, (n, 2), minval=-1.5, maxval=1.5)
    p = 0.3 * jax.random.normal(p_key, (n, 2))
    a = jax.random.uniform(a_key, (n,), minval=0.5, maxval=1.5)
    return Trajectories(q, p, a, *simulate(q, p, a, DT, STEPS))


def train(
    key: Array,
    ham: Hamiltonian,
    steps: int = 2000,
    data: Trajectories | None = None,
    optimizer: optax.GradientTransformation | None = None,
    progress: bool = False,
    checkpoints: Sequence[int] = (),
) -> Fit:
    """Train a Hamiltonian on full batches.

    A separable one (`asrnn`) learns from trajectories alone: the mean squared error of q and p along its rollout. Another one
    (`hnn`) is regressed on the rates of change ``(q', p')`` at the samples, which the truth supplies.

    Args:
        key: random key, of the trajectories and of the initial parameters.
        ham: the Hamiltonian.
        steps: number of steps.
        data: trajectories to learn from; drawn from key if None.
        optimizer: of optax, such as ``optax.lbfgs()``. Adam, with a learning rate that decays from 1e-2 as a cosine, if None.
        progress: whether to print the loss on the way.
        checkpoints: numbers of steps after which to keep the parameters, increasing, from 0 to steps.

    Returns:
        Parameters after and before training, the losses, and the checkpoints.

    Raises:
        TypeError: if ham is no Hamiltonian.
        ValueError: if steps is not a positive whole number, or data has another number of samples.

    Example:
        >>> import jax, symtutor as st
        >>> fit = train(jax.random.key(0), st.asrnn(width=8), steps=20, data=trajectories(jax.random.key(1), n=8))
        >>> bool(fit.losses[-1] < fit.losses[0])
        True

    Reference: experiments.md, 2; Chen et al. (2020); Greydanus et al. (2019).
    """
    checks.check_count(steps, "steps")
    data_key, init_key = jax.random.split(key)
    data = trajectories(data_key) if data is None else data
    if data.qs.shape[1] != STEPS:
        seen = data.qs.shape[1]
        raise ValueError(f"data has {seen} samples a trajectory; expected {STEPS}, {DT} apart, as from trajectories.")
    if not isinstance(ham, Hamiltonian):
        raise TypeError(f"ham is {type(ham).__name__}; expected a Hamiltonian, as from st.asrnn or st.hnn.")
    optimizer = _decaying_adam(steps) if optimizer is None else optimizer
    loss = _vector_field_loss(ham) if ham.kinetic is None else _rollout_loss(ham)
    return minimise(loss, ham.init(init_key), data, optimizer, steps, "mexican hat" if progress else None, checkpoints)


@partial(jax.jit, static_argnums=(4, 5))
def _simulate(q, p, a, dt, steps, finer):
    def one(q, p, a):
        def sample(state, _):
            def step(_, state):
                return symplectic_step(
                    lambda p: jnp.dot(p, p) / 2, lambda q: potential(q, a), *state, dt / finer, YOSHIDA
                )

            state = jax.lax.fori_loop(0, finer, step, state)
            return state, state

        return jax.lax.scan(sample, (q, p), length=steps)[1]

    return jax.vmap(one)(q, p, a)


# made once for each Hamiltonian and number of steps, since the steps are compiled for them


@cache
def _decaying_adam(steps):
    return optax.adam(optax.cosine_decay_schedule(1e-2, steps))


@cache
def _rollout_loss(ham):
    def loss(params, data):
        qs, ps = jax.vmap(lambda q, p, a: ham.rollout(params, q, p, a, DT, STEPS))(data.q, data.p, data.a)
        return jnp.mean((qs - data.qs) ** 2) + jnp.mean((ps - data.ps) ** 2)

    return loss


@cache
def _vector_field_loss(ham):
    def loss(params, data):
        def one(q, p, a):
            learned = hamiltonian_field(lambda q, p: ham.energy(params, q, p, a))((q, p))
            true = hamiltonian_field(lambda q, p: energy(q, p, a))((q, p))
            return sum(jnp.sum((u - v) ** 2) for u, v in zip(learned, true, strict=True))

        along = jax.vmap(jax.vmap(one, (0, 0, None)))
        return jnp.mean(along(data.qs, data.ps, data.a))

    return loss


def starts(key: Array, n: int = 64, a: float = 1.0) -> tuple[Float[Array, "n 2"], Float[Array, "n 2"]]:
    """Draw starts near the vacuum: q on the circle ``|q| = sqrt(a)``, p normal with standard deviation 0.3.

    Args:
        key: random key.
        n: number of starts.
        a: parameter.

    Returns:
        Positions and momenta, each ``(n, 2)``.

    Raises:
        ValueError: if n or a is not positive.

    Example:
        >>> import jax
        >>> q, p = starts(jax.random.key(0), n=4)
        >>> jax.numpy.linalg.norm(q, axis=1).round(6).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    checks.check_count(n, "n")
    checks.check_positive(a, "a")
    angle_key, p_key = jax.random.split(key)
    phi = 2 * jnp.pi * jax.random.uniform(angle_key, (n,))
    return jnp.sqrt(a) * jnp.stack([jnp.cos(phi), jnp.sin(phi)], axis=-1), 0.3 * jax.random.normal(p_key, (n, 2))


def drift_of_angular_momentum(
    q: Float[Array, "n 2"], p: Float[Array, "n 2"], qs: Float[Array, "n steps 2"], ps: Float[Array, "n steps 2"]
) -> Float[Array, ""]:
    """Return the root mean square of ``L(t) - L(0)`` over all trajectories and times.

    Args:
        q: initial positions, shape ``(n, 2)``.
        p: initial momenta, shape ``(n, 2)``.
        qs: positions, shape ``(n, steps, 2)``.
        ps: momenta, shape ``(n, steps, 2)``.

    Returns:
        The drift, shape ``()``.

    Example:
        >>> import jax
        >>> q, p = starts(jax.random.key(0), n=4)
        >>> bool(drift_of_angular_momentum(q, p, *simulate(q, p, jax.numpy.ones(4), 0.05, 100)) < 1e-4)    # conserved
        True
    """
    return jnp.sqrt(jnp.mean((angular_momentum(qs, ps) - angular_momentum(q, p)[:, None]) ** 2))


def trajectory_error(qs: Float[Array, "n steps 2"], true: Float[Array, "n steps 2"]) -> Float[Array, ""]:
    """Return the root mean square distance of positions from the true ones, over all trajectories and times.

    Args:
        qs: positions, shape ``(n, steps, 2)``.
        true: the true positions, the same shape.

    Returns:
        The error, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(trajectory_error(jnp.ones((1, 5, 2)), jnp.array([[[1.0, 2.0]] * 5])))
        1.0
    """
    return jnp.sqrt(jnp.mean(jnp.sum((qs - true) ** 2, axis=-1)))
