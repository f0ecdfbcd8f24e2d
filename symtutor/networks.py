"""Small networks as pairs of functions ``(init, apply)`` on plain pytrees."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from symtutor.checks import check_count


class Network(NamedTuple):
    """A network as two pure functions.

    Attributes:
        init: ``init(key) -> params``.
        apply: ``apply(params, x)``, one input to one output.
    """

    init: Callable[[Array], PyTree]
    apply: Callable[[PyTree, Float[Array, "..."]], Float[Array, "..."]]


def mlp(sizes: tuple[int, ...], activation: Callable = jnp.tanh) -> Network:
    """Return a multilayer perceptron, ``W_L act(... act(W_1 x + b_1)) + b_L``.

    Weights start normal with standard deviation ``1 / sqrt(fan in)``, biases at 0. So an untrained tanh network of one
    output is odd, and its average over all rotations is 0.

    Args:
        sizes: width of the input, of the hidden layers and of the output. A last size of 1 gives a scalar output.
        activation: function applied to hidden layers, entry by entry.

    Returns:
        The network. Its parameters are a list of ``{"W": (out, in), "b": (out,)}``.

    Raises:
        TypeError: if sizes is no tuple or list.
        ValueError: if sizes are fewer than two or not positive whole numbers.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> net = mlp((2, 8, 1))
        >>> params = net.init(jax.random.key(0))
        >>> [layer["W"].shape for layer in params], net.apply(params, jnp.ones(2)).shape
        ([(8, 2), (1, 8)], ())
    """
    if not isinstance(sizes, tuple | list):
        raise TypeError(f"sizes is {sizes!r}; expected at least two positive whole numbers: (in, hidden ..., out).")
    sizes = tuple(sizes)
    if len(sizes) < 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"sizes is {sizes}; expected at least two positive whole numbers: (in, hidden ..., out).")

    def init(key):
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {"W": jax.random.normal(k, (out, fan_in)) / jnp.sqrt(fan_in), "b": jnp.zeros(out)}
            for k, fan_in, out in zip(keys, sizes[:-1], sizes[1:], strict=True)
        ]

    def apply(params, x):
        for layer in params[:-1]:
            x = activation(layer["W"] @ x + layer["b"])  # (out, in) x (in,) -> (out,)
        x = params[-1]["W"] @ x + params[-1]["b"]
        return x[0] if sizes[-1] == 1 else x

    return Network(init, apply)


class Hamiltonian(NamedTuple):
    """A learned Hamiltonian ``H(q, p; a)`` as pure functions; q and p have shape ``(2,)``, the parameter a has shape ``()``.

    Attributes:
        init: ``init(key) -> params``.
        energy: ``energy(params, q, p, a)``, shape ``()``.
        rollout: ``rollout(params, q, p, a, dt, steps) -> (qs, ps)``, each ``(steps, 2)``, the start left out.
        kinetic: ``kinetic(params, p)``, shape ``()``; None if H is not separable.
        potential: ``potential(params, q, a)``, shape ``()``; None if H is not separable.
    """

    init: Callable[[Array], PyTree]
    energy: Callable[..., Float[Array, ""]]
    rollout: Callable[..., tuple[Float[Array, "steps 2"], Float[Array, "steps 2"]]]
    kinetic: Callable[..., Float[Array, ""]] | None = None
    potential: Callable[..., Float[Array, ""]] | None = None


LEAPFROG = ((0.0, 0.5), (1.0, 0.5))
"""Kick, drift, kick: second order. Each pair is a drift and the kick after it, in units of the step."""

_outer, _inner = 1 / (2 - 2 ** (1 / 3)), -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3))
YOSHIDA = (
    (0.0, _outer / 2),
    (_outer, (_outer + _inner) / 2),
    (_inner, (_outer + _inner) / 2),
    (_outer, _outer / 2),
)
"""Three leapfrog steps of lengths chosen to cancel the error of third order: fourth order (Yoshida 1990)."""


def symplectic_step(
    kinetic: Callable,
    potential: Callable,
    q: Float[Array, " d"],
    p: Float[Array, " d"],
    dt: Float[Array, ""] | float,
    table: tuple[tuple[float, float], ...] = LEAPFROG,
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Take one step of a separable Hamiltonian ``H = K(p) + V(q)`` by drifts and kicks.

    For each pair ``(c, d)`` of the table: ``q <- q + c dt grad K(p)``, then ``p <- p - d dt grad V(q)``. Every such map is
    symplectic, so the energy error stays bounded over long times.

    Args:
        kinetic: function ``K(p)``.
        potential: function ``V(q)``.
        q: position, shape ``(d,)``.
        p: momentum, shape ``(d,)``.
        dt: step, in units of time.
        table: drifts and kicks in units of the step; each column sums to 1.

    Returns:
        Position and momentum after the step.

    Example:
        >>> import jax.numpy as jnp
        >>> square = lambda z: jnp.dot(z, z) / 2      # a harmonic oscillator
        >>> q, p = symplectic_step(square, square, jnp.ones(1), jnp.zeros(1), 0.1)
        >>> print(f"{q[0]:.3f} {p[0]:.3f}")           # cos 0.1 is 0.995, -sin 0.1 is -0.100
        0.995 -0.100

    Reference: Yoshida, Construction of higher order symplectic integrators, Physics Letters A 150 (1990).
    """
    for drift, kick in table:
        if drift:
            q = q + drift * dt * jax.grad(kinetic)(p)
        if kick:
            p = p - kick * dt * jax.grad(potential)(q)
    return q, p


def rk4_step(field: Callable, state: PyTree, dt: Float[Array, ""] | float) -> PyTree:
    """Take one step of ``state' = field(state)`` by the classical Runge-Kutta method of fourth order.

    It works for any Hamiltonian, separable or not, and is more accurate than leapfrog over short times. It is not symplectic:
    its energy error grows in proportion to time.

    Args:
        field: function from a state to its rate of change.
        state: a pytree of arrays.
        dt: step, in units of time.

    Returns:
        The state after the step.

    Example:
        >>> import jax.numpy as jnp
        >>> print(f"{rk4_step(lambda z: -z, jnp.ones(()), 0.1):.5f}")         # exp(-0.1) is 0.90484
        0.90484

    Reference: Hairer, Lubich and Wanner, Geometric Numerical Integration (2006), II.1.
    """

    def moved(slope, by):
        return jax.tree.map(lambda z, k: z + by * dt * k, state, slope)

    k1 = field(state)
    k2 = field(moved(k1, 0.5))
    k3 = field(moved(k2, 0.5))
    k4 = field(moved(k3, 1.0))
    return jax.tree.map(lambda z, a, b, c, d: z + dt / 6 * (a + 2 * b + 2 * c + d), state, k1, k2, k3, k4)


def hamiltonian_field(energy: Callable) -> Callable:
    """Return Hamilton's equations ``q' = dH/dp, p' = -dH/dq`` as a function of the state ``(q, p)``.

    Args:
        energy: function ``H(q, p)``.

    Returns:
        A function from ``(q, p)`` to its rate of change.

    Example:
        >>> import jax.numpy as jnp
        >>> field = hamiltonian_field(lambda q, p: (jnp.dot(q, q) + jnp.dot(p, p)) / 2)
        >>> [z.tolist() for z in field((jnp.array([1.0]), jnp.array([2.0])))]
        [[2.0], [-1.0]]
    """

    def field(state):
        force, velocity = jax.grad(energy, argnums=(0, 1))(*state)
        return velocity, jax.tree.map(jnp.negative, force)

    return field


def asrnn(width: int = 32) -> Hamiltonian:
    """Return an adaptable symplectic recurrent network: ``H(q, p; a) = K(p) + V(q, a)``, rolled out by leapfrog.

    K and V are perceptrons of two hidden layers. The parameter channel a enters V only. Only derivatives of H move anything, so
    K and V are determined up to constants, and a constant can pass from one to the other.

    Args:
        width: of the hidden layers.

    Returns:
        The Hamiltonian. Its parameters are ``{"K": [...], "V": [...]}``, each as those of `mlp`.

    Raises:
        ValueError: if width is not a positive whole number.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> ham = asrnn(width=8)
        >>> params = ham.init(jax.random.key(0))
        >>> qs, ps = ham.rollout(params, jnp.ones(2), jnp.zeros(2), jnp.array(1.0), 0.1, 15)
        >>> qs.shape, ps.shape
        ((15, 2), (15, 2))

    Reference: experiments.md, 2; Chen et al., Symplectic recurrent neural networks (2020).
    """
    check_count(width, "width")
    momentum_net, position_net = mlp((2, width, width, 1)), mlp((3, width, width, 1))

    def init(key):
        keys = jax.random.split(key)
        return {"K": momentum_net.init(keys[0]), "V": position_net.init(keys[1])}

    def kinetic(params, p):
        return momentum_net.apply(params["K"], p)

    def potential(params, q, a):
        return position_net.apply(params["V"], jnp.append(q, a))

    def energy(params, q, p, a):
        return kinetic(params, p) + potential(params, q, a)

    def rollout(params, q, p, a, dt, steps):
        velocity = jax.grad(lambda p: kinetic(params, p))
        force = jax.grad(lambda q: -potential(params, q, a))

        def step(state, _):
            # symplectic_step with the table LEAPFROG, but the kick that ends a step and the one that begins the next are
            # at the same q: p is kept half a step ahead, and one force less is computed
            q, p = state
            q = q + dt * velocity(p)
            kick = dt * force(q)
            return (q, p + kick), (q, p + kick / 2)

        return jax.lax.scan(step, (q, p + dt / 2 * force(q)), length=steps)[1]

    return Hamiltonian(init, energy, rollout, kinetic, potential)


def hnn(width: int = 64) -> Hamiltonian:
    """Return a Hamiltonian neural network: one perceptron ``H(q, p, a)``, not separable, rolled out by Runge-Kutta steps.

    Args:
        width: of the two hidden layers.

    Returns:
        The Hamiltonian. Its parameters are those of `mlp`, with inputs ``(q, p, a)``.

    Raises:
        ValueError: if width is not a positive whole number.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> ham = hnn(width=8)
        >>> ham.energy(ham.init(jax.random.key(0)), jnp.ones(2), jnp.zeros(2), jnp.array(1.0)).shape
        ()

    Reference: Greydanus et al., Hamiltonian neural networks (2019).
    """
    check_count(width, "width")
    net = mlp((5, width, width, 1))

    def energy(params, q, p, a):
        return net.apply(params, jnp.concatenate([q, p, jnp.reshape(a, (1,))]))

    def rollout(params, q, p, a, dt, steps):
        def step(state, _):
            state = rk4_step(hamiltonian_field(lambda q, p: energy(params, q, p, a)), state, dt)
            return state, state

        return jax.lax.scan(step, (q, p), length=steps)[1]

    return Hamiltonian(net.init, energy, rollout)
