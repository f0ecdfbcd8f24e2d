"""Attribution: which parameters carry a lift, how stable the answer is, and whether it points at anything.

``a_i = c_i <J_i, eta> / norm(eta)^2`` is the share of parameter i in what the lift explains of the tangent.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from symtutor import checks, solvers
from symtutor.lifting import (
    Lift,
    choose_solver,
    jacobian_dtype,
    linear_system,
    solve,
    spectrum_for,
    tangent_residual,
    weighted_rows,
)
from symtutor.probes import Probes, auto_sharded, inner_product
from symtutor.sensitivity import sensitivity


class Attribution(NamedTuple):
    """Shares of a lift; see `attribute`. Printed, it is a table of the largest.

    Attributes:
        shares: signed shares, a pytree like params; they add up to ``explained``.
        explained: ``<J c, eta> / norm(eta)^2``, shape ``()``.
        scaled: ``c_i S_i / norm(eta)``, the size of what parameter i alone does to the function, a pytree like params.
    """

    shares: PyTree
    explained: Float[Array, ""]
    scaled: PyTree

    @property
    def positive(self) -> Float[Array, ""]:
        """The sum of the positive shares."""
        return sum(jnp.clip(leaf, 0).sum() for leaf in jax.tree.leaves(self.shares))

    @property
    def negative(self) -> Float[Array, ""]:
        """The sum of the negative shares."""
        return sum(jnp.clip(leaf, None, 0).sum() for leaf in jax.tree.leaves(self.shares))

    def by_leaf(self) -> dict[str, Float[Array, "..."]]:
        """Return the shares of each leaf as an array, under the leaf's path: for plotting."""
        return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(self.shares)}

    def by_layer(self) -> dict[str, Float[Array, ""]]:
        """Return the sum of shares under each top-level key of params (``"0"``, ``"1"``, ... for a list of layers)."""
        return _by_layer(self.shares, lambda leaf: leaf.sum())

    def by_neuron(self, axis: int = 0) -> dict[str, Float[Array, " neurons"]]:
        """Return, for each group of leaves with one parent, the sum of shares of every neuron.

        A neuron's total runs over its incoming weights and its bias.

        Args:
            axis: the axis of a weight that counts neurons: 0 for weights ``(out, in)``, -1 for ``(in, out)``.

        Returns:
            A dict from the parent's path to totals, shape ``(neurons,)``.

        Raises:
            ValueError: if leaves with one parent count different numbers of neurons.
        """
        totals = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.shares):
            if leaf.ndim == 0:
                leaf = leaf[None]
            kept = axis % leaf.ndim if leaf.ndim > 1 else 0
            total = leaf.sum(axis=tuple(i for i in range(leaf.ndim) if i != kept))
            key = _name(path[:-1])
            if key in totals and totals[key].shape != total.shape:
                raise ValueError(
                    f"leaves under {key!r} count {totals[key].shape[0]} and {total.shape[0]} neurons along axis {axis}; "
                    "expected one number (axis=-1 for weights of shape (in, out))."
                )
            totals[key] = totals.get(key, 0) + total
        return totals

    def top(self, k: int = 10) -> list[tuple[str, tuple[int, ...], float]]:
        """Return the k parameters of largest absolute share, each as (path, index, signed share).

        Args:
            k: how many.

        Returns:
            A list, largest absolute share first; shorter if there are fewer parameters.

        Raises:
            ValueError: if k is not a positive whole number.
        """
        checks.check_count(k, "k")
        entries = [
            (_name(path), tuple(int(i) for i in np.unravel_index(j, leaf.shape)), float(leaf.reshape(-1)[j]))
            for path, leaf in jax.tree_util.tree_leaves_with_path(jax.tree.map(np.asarray, self.shares))
            for j in np.argsort(-np.abs(leaf).reshape(-1), kind="stable")[:k]
        ]
        return sorted(entries, key=lambda entry: -abs(entry[2]))[:k]

    def table(self, k: int = 10) -> str:
        """Return the k parameters of largest absolute share as text, with sign, scaled coefficient and layer totals.

        Args:
            k: how many.

        Returns:
            Lines of text.

        Raises:
            ValueError: if k is not a positive whole number.
        """
        scaled = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(self.scaled)}
        rows = [
            (f"{path}[{', '.join(map(str, index))}]" if index else path or "params", share, float(scaled[path][index]))
            for path, index, share in self.top(k)
        ]
        totals = [(name or "params", float(total)) for name, total in self.by_layer().items()]
        width = max(len(name) for name, *_ in rows + totals)
        return "\n".join(
            [
                f"explained {self.explained:.4f} = positive {self.positive:.4f} + negative {self.negative:.4f}",
                f"{'parameter':{width}}  {'share':>8}  {'c S / norm(eta)':>15}",
                *(f"{name:{width}}  {share:+8.4f}  {size:+15.4f}" for name, share, size in rows),
                f"{'layer':{width}}  {'share':>8}",
                *(f"{name:{width}}  {total:+8.4f}" for name, total in totals),
            ]
        )

    def __str__(self) -> str:
        """Show the ten largest shares."""
        return self.table() if checks.is_concrete(self) else repr(self)


class AttributionBand(NamedTuple):
    """Shares over probe sets and ridges; see `attribution_band`.

    Attributes:
        shares: signed shares, a pytree like params, each leaf with leading axes ``(sets, ridges)``.
        explained: what each lift explains, shape ``(sets, ridges)``.
        residuals: residual of each lift, shape ``(sets, ridges)``.
        ridges: the ridges, shape ``(ridges,)``.
    """

    shares: PyTree
    explained: Float[Array, "sets ridges"]
    residuals: Float[Array, "sets ridges"]
    ridges: Float[Array, " ridges"]

    def by_layer(self) -> dict[str, Float[Array, "sets ridges"]]:
        """Return the sum of shares under each top-level key of params, for each lift."""
        return _by_layer(self.shares, lambda leaf: leaf.reshape(*self.explained.shape, -1).sum(axis=-1))

    def overlap(self, k: int = 10) -> Float[Array, "sets ridges sets ridges"]:
        """Return the part that two lifts have in common of their k parameters of largest absolute share.

        Args:
            k: how many.

        Returns:
            Parts from 0 to 1, shape ``(sets, ridges, sets, ridges)``: ``[i, :, i, :]`` compares ridges on one probe set,
            ``[:, j, :, j]`` probe sets at one ridge. Of two rankings drawn at random about ``k / n`` would agree.

        Raises:
            ValueError: if k is not a positive whole number.
        """
        checks.check_count(k, "k")
        shape = self.explained.shape
        shares = np.concatenate([np.asarray(s).reshape(*shape, -1) for s in jax.tree.leaves(self.shares)], axis=-1)
        k = min(k, shares.shape[-1])
        top = np.zeros((*shape, shares.shape[-1]))
        np.put_along_axis(top, np.argsort(-np.abs(shares), axis=-1, kind="stable")[..., :k], 1, axis=-1)
        return jnp.asarray(np.einsum("abn,cdn->abcd", top, top) / k)


class SubsetCurve(NamedTuple):
    """Residuals with only some parameters free; see `subset_check`.

    Attributes:
        sizes: how many parameters were free, shape ``(K,)``.
        residuals: residual of the lift on the probes, shape ``(K,)``.
        heldout_residuals: residual on the held-out probes, shape ``(K,)``.
        norms: Euclidean norm of the direction, shape ``(K,)``.
    """

    sizes: Int[np.ndarray, " K"]
    residuals: Float[Array, " K"]
    heldout_residuals: Float[Array, " K"]
    norms: Float[Array, " K"]

    def area(self, heldout: bool = True) -> Float[Array, ""]:
        """Return the mean residual over the logarithm of the size: less is better, 1 is no use at all.

        Args:
            heldout: whether to take the held-out residuals.

        Returns:
            The area under the curve by trapezes, over the length of the axis, shape ``()``.

        Raises:
            ValueError: if there are fewer than two sizes.
        """
        if len(self.sizes) < 2:
            raise ValueError(f"sizes are {self.sizes.tolist()}; expected at least two for an area.")
        log = np.log(self.sizes)
        return jnp.trapezoid(self.heldout_residuals if heldout else self.residuals, log) / (log[-1] - log[0])


def attribute(
    f: Callable, params: PyTree, probes: Probes, tangent: Callable, c: Lift, *, chunk_size: int | None = None
) -> Attribution:
    """Share out what a lift explains of its tangent among the parameters.

    ``a_i = c_i <J_i, eta> / norm(eta)^2``. The shares add up to ``<J c, eta> / norm(eta)^2``, which is
    ``1 - residual^2 - damping norm(c)^2 / norm(eta)^2``. Shares have signs and cancel. They depend on the ridge, on the
    probes, and on how the parameters are scaled: show them with those.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: the probes of the lift.
        tangent: the tangent that was lifted.
        c: its `lift`.
        chunk_size: how many probes at a time when sensitivities are computed.

    Returns:
        Shares, their sum, and coefficients scaled by sensitivity.

    Raises:
        TypeError: if c is no Lift, or as `lift`.
        ValueError: if c's direction does not fit params, or as `lift`.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, w, probes, eta = lambda w, x: jnp.dot(w, x), jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2())
        >>> att = st.attribute(f, w, probes, eta, st.lift(f, w, probes, eta, ridge=1e-3))
        >>> (att.shares.round(4) + 0.0).tolist()      # turning w = (1, 0) moves its second component alone
        [0.0, 1.0]

    Reference: theory.md, P12.
    """
    if not isinstance(c, Lift):
        raise TypeError(f"c is {type(c).__name__}; expected the Lift that st.lift returned.")
    checks.check_params(params)
    checks.check_probes(probes)
    probes = auto_sharded(probes)
    checks.check_tangent(tangent, f, params, probes.x)
    _check_like(c.direction, params, "c.direction")
    S = sensitivity(f, params, probes, chunk_size=chunk_size)
    return _attribute(f, params, probes, tangent, c.direction, S)


def attribution_band(
    f: Callable,
    params: PyTree,
    probe_sets: Sequence[Probes],
    tangent: Callable,
    ridges: Sequence[float] | Float[Array, " ridges"],
    *,
    chunk_size: int | None = None,
) -> AttributionBand:
    """Attribute over probe sets and ridges: what of an attribution holds, and what is a choice.

    ``a_i = c_i <J_i, eta> / norm(eta)^2`` for each probe set and each ridge.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probe_sets: several probe sets; of one size, they share one compiled program.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        ridges: relative ridges, as in `lift`.
        chunk_size: how many probes at a time when a Jacobian is built.

    Returns:
        The shares, and residuals, which tell which of the lifts are any good.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if probe_sets or ridges is empty.

    Example:
        >>> import jax, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> sets = [st.polar_probes(offset=offset) for offset in (0.0, 0.5)]
        >>> band = st.attribution_band(net.apply, net.init(jax.random.key(0)), sets, st.orbit_tangent(st.so2()), [1e-2, 1e-4])
        >>> band.by_layer()["0"].shape
        (2, 2)

    Reference: theory.md, P12 and "What the residual does and does not tell", 2.
    """
    probe_sets = list(probe_sets)
    if not probe_sets:
        raise ValueError("probe_sets is empty; expected at least one Probes.")
    probe_sets = [
        _check(f, params, probes, tangent, chunk_size, f"probe_sets[{i}]") for i, probes in enumerate(probe_sets)
    ]
    dtype = jacobian_dtype(params)
    ridges = jnp.asarray(ridges, dtype)
    if ridges.ndim != 1 or ridges.size == 0:
        raise ValueError(f"ridges has shape {ridges.shape}; expected (ridges,), at least one.")
    for ridge in ridges if checks.is_concrete(ridges) else ():
        checks.check_ridge(ridge, "an entry of ridges")
        solvers.choose_solver("svd", ridge, dtype, 1, 1)
    least = float(min(ridges)) if checks.is_concrete(ridges) else 0.0
    rows = [
        _shares_over_ridges(f, params, probes, tangent, ridges, spectrum_for(f, params, probes, least), chunk_size)
        for probes in probe_sets
    ]
    shares, explained, residuals = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    return AttributionBand(shares, explained, residuals, ridges)


def restrict(f: Callable, params: PyTree, scores: PyTree, k: int) -> tuple[Callable, Float[Array, " k"]]:
    """Return the same function with only the k parameters of largest score free, and their values.

    ``f_k(q, x) = f(params with the k free ones set to q, x)``. To lift, attribute or follow a flow with k parameters, do it
    with ``f_k`` and ``q``.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        scores: a number for each parameter, a pytree like params; ties go to the parameter that comes first.
        k: how many are free.

    Returns:
        The function ``f_k(q, x)``, and ``q``, shape ``(k,)``.

    Raises:
        TypeError: if params or scores is no pytree of float arrays.
        ValueError: if scores does not fit params, or k is not from 1 to the number of parameters.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f_1, q = restrict(lambda w, x: jnp.dot(w, x), jnp.array([1.0, 2.0]), jnp.array([0.0, 5.0]), 1)
        >>> q.tolist(), float(f_1(jnp.array([7.0]), jnp.array([10.0, 1.0])))          # w = (1, 7)
        ([2.0], 17.0)
    """
    checks.check_params(params)
    order = _ranking(scores, params)
    if type(k) is not int or not 1 <= k <= len(order):
        raise ValueError(f"k is {k!r}; expected a whole number from 1 to {len(order)}, the number of parameters.")
    start, unravel = ravel_pytree(params)
    free = order[:k]

    def f_k(q, x):
        return f(unravel(start.at[free].set(q)), x)

    return f_k, start[free]


def subset_check(
    f: Callable,
    params: PyTree,
    probes: Probes,
    tangent: Callable,
    scores: PyTree,
    heldout: Probes,
    sizes: Sequence[int] | None = None,
    ridge: checks.Number = 1e-4,
    *,
    chunk_size: int | None = None,
) -> SubsetCurve:
    """Lift with only the k parameters of largest score free, for growing k: does a ranking find what is needed?

    ``min over c with c_i = 0 outside of the top k of norm(J c - eta)^2 + (ridge s1)^2 norm(c)^2``, with s1 that of the
    free columns, so each is the `lift` of `restrict`. A ranking means something only beside others: random scores,
    sensitivity, and the ranking of a tangent that is no symmetry.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: points and weights of the lifts.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        scores: a number for each parameter, a pytree like params, such as absolute shares; ties go to the first.
        heldout: probes that no solve uses.
        sizes: how many parameters to free, increasing; by default 12 from 5 to 400, evenly in the logarithm, or to all.
        ridge: relative ridge of the lifts, as in `lift`.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        The curve; ``.area()`` sums it up.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if scores does not fit params, or sizes do not increase from at least 1.
        FloatingPointError: outside ``jax.jit``, if a lift failed.

    Example:
        >>> import jax, jax.numpy as jnp, symtutor as st
        >>> net, probes, eta = st.mlp((2, 8, 1)), st.polar_probes(), st.orbit_tangent(st.so2())
        >>> params = net.init(jax.random.key(0))
        >>> first_layer = jax.tree.map(jnp.zeros_like, params)
        >>> first_layer[0]["W"] += 1.0                    # its 16 weights lift every rotation
        >>> curve = st.subset_check(net.apply, params, probes, eta, first_layer, st.polar_probes(11, 50, offset=0.5),
        ...                         sizes=[4, 16], ridge=1e-3)
        >>> bool(curve.heldout_residuals[1] < 0.05 < curve.heldout_residuals[0])
        True

    Reference: experiments.md, 6.
    """
    probes = _check(f, params, probes, tangent, chunk_size)
    checks.check_heldout(probes, heldout)
    checks.check_ridge(ridge)
    order = _ranking(scores, params)
    n = len(order)
    sizes = (
        np.unique(np.geomspace(min(5, n), min(400, n), 12).round().astype(int)) if sizes is None else np.asarray(sizes)
    )
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind != "i" or sizes[0] < 1 or (np.diff(sizes) <= 0).any():
        raise ValueError(f"sizes are {sizes.tolist()}; expected whole numbers that increase from at least 1.")
    if sizes[-1] > n:
        raise ValueError(f"sizes go up to {sizes[-1]}; expected at most {n}, the number of parameters.")
    dtype = jacobian_dtype(params)
    sound = checks.is_concrete(ridge) and ridge >= solvers.gram_limit(jacobian_dtype(params))
    solver, _ = choose_solver(
        "cholesky" if sound else "svd", ridge, f, params, probes
    )  # columns are picked, so J is built
    places = np.empty(n, int)
    places[order] = np.arange(n)
    residuals, heldout_residuals, norms = _subset_curve(
        f, params, probes, tangent, heldout, jnp.asarray(places), jnp.asarray(sizes), jnp.asarray(ridge, dtype),
        solver, chunk_size,
    )  # fmt: skip
    if checks.is_concrete(norms) and not np.isfinite(norms).all():
        raise FloatingPointError(f"a lift failed at ridge {float(ridge):.3g}; expected a larger ridge.")
    return SubsetCurve(sizes, residuals, heldout_residuals, norms)


def greedy_scores(
    f: Callable, params: PyTree, probes: Probes, tangent: Callable, k: int, ridge: checks.Number = 1e-4, *,
    chunk_size: int | None = None,
) -> PyTree:  # fmt: skip
    """Choose k parameters one by one, each time the one that lowers the residual most.

    It sees the very residual that rankings are judged by, so it is no rival of theirs. It shows that better sets exist.

    Forward selection: of what is left of the columns of J after projecting out the chosen ones, take the one with
    ``argmax <J_i, r>^2 / (norm(J_i)^2 + (ridge s1)^2)``, r being the residual.

    Args:
        f: function ``f(params, x)`` of one input.
        params: pytree of float arrays.
        probes: points and weights.
        tangent: function ``(f, params, x: (N, ...)) -> (N,)`` or ``(N, k)``.
        k: how many to choose.
        ridge: keeps out columns of which nothing is left; relative to the largest singular value.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        A pytree like params with k for the first choice, 1 for the last, 0 for all others.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if k is not a positive whole number.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> greedy_scores(lambda w, x: jnp.dot(w, x), jnp.array([1.0, 0.0]), st.polar_probes(), st.orbit_tangent(st.so2()), 1)
        Array([0., 1.], dtype=float64)

    Reference: experiments.md, 6.
    """
    probes = _check(f, params, probes, tangent, chunk_size)
    checks.check_ridge(ridge)
    checks.check_count(k, "k")
    return _greedy(f, params, probes, tangent, k, ridge, chunk_size)


@eqx.filter_jit
def _attribute(f, params, probes, tangent, direction, S):
    eta = tangent(f, params, probes.x)
    square = inner_product(eta, eta, probes.w)
    correlation = _correlation(f, params, probes, weighted_rows(eta.reshape(-1), probes.w))
    scale = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)
    shares = jax.tree.map(lambda ci, ji: ci * ji * scale, direction, correlation)
    scaled = jax.tree.map(lambda ci, si: ci * si * jnp.sqrt(scale), direction, S)
    return Attribution(shares, sum(leaf.sum() for leaf in jax.tree.leaves(shares)), scaled)


@eqx.filter_jit
def _shares_over_ridges(f, params, probes, tangent, ridges, spectrum, chunk_size):
    solve_at, y = spectrum(f, params, probes, tangent, chunk_size)
    correlation = _correlation(f, params, probes, y)
    square = y @ y
    scale = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)

    def one(ridge):
        c, image = solve_at(ridge)
        shares = jax.tree.map(lambda ci, ji: ci * ji * scale, c, correlation)
        explained = sum(leaf.sum() for leaf in jax.tree.leaves(shares))
        return shares, explained, jnp.linalg.norm(image - y) * jnp.sqrt(scale)

    return jax.lax.map(one, ridges)


def _correlation(f, params, probes, y):
    """Return ``<J_i, eta>`` for every i by one reverse pass, from the weighted tangent y."""
    values, pull_back = jax.vjp(lambda p: jax.vmap(f, (None, 0))(p, probes.x), params)
    return pull_back(weighted_rows(y, probes.w).reshape(values.shape))[0]


@eqx.filter_jit
def _subset_curve(f, params, probes, tangent, heldout, places, sizes, ridge, solver, chunk_size):
    A, y = linear_system(f, params, probes, tangent, chunk_size)
    unravel = ravel_pytree(params)[1]

    def one(size):
        free = jnp.where(places < size, A, 0)  # one shape, so one program, whatever the size
        c = jnp.where(places < size, solve(free, y, ridge, solver)[0], 0)
        residual = jnp.linalg.norm(free @ c - y) / jnp.linalg.norm(y)
        return residual, tangent_residual(f, params, heldout, tangent, unravel(c)), jnp.linalg.norm(c)

    return jax.lax.map(one, sizes)


@eqx.filter_jit
def _greedy(f, params, probes, tangent, k, ridge, chunk_size):
    A, y = linear_system(f, params, probes, tangent, chunk_size)
    damping = ridge**2 * solvers.largest_eigenvalue(A @ A.T if A.shape[0] <= A.shape[1] else A.T @ A)

    def choose(i, state):
        left, r, scores = state  # columns and right-hand side, less what the chosen ones span
        gain = jnp.where(scores > 0, -1, (r @ left) ** 2 / ((left**2).sum(axis=0) + damping + jnp.finfo(r.dtype).tiny))
        best = jnp.argmax(gain)
        size = jnp.linalg.norm(left[:, best])
        unit = left[:, best] / jnp.where(size > 0, size, 1)
        left, r = left - jnp.outer(unit, unit @ left), r - unit * (unit @ r)
        return left, r, scores.at[best].set(k - i)

    scores = jax.lax.fori_loop(0, min(k, A.shape[1]), choose, (A, y, jnp.zeros(A.shape[1], A.dtype)))[2]
    return ravel_pytree(params)[1](scores)


def _check(f, params, probes, tangent, chunk_size, argument="probes"):
    checks.check_params(params)
    checks.check_probes(probes, argument)
    checks.check_tangent(tangent, f, params, probes.x)
    checks.check_chunk_size(chunk_size)
    return auto_sharded(probes)


def _ranking(scores: PyTree, params: PyTree) -> np.ndarray:
    """Return the places of the parameters, largest score first."""
    checks.check_params(scores, "scores")
    _check_like(scores, params, "scores")
    return np.argsort(-np.asarray(ravel_pytree(scores)[0]), kind="stable")


def _check_like(tree: PyTree, params: PyTree, argument: str) -> None:
    for (path, leaf), (other_path, part) in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree_util.tree_leaves_with_path(tree), strict=False
    ):
        if path != other_path or leaf.shape != part.shape:
            raise ValueError(
                f"{argument} has a leaf of shape {part.shape} at {jax.tree_util.keystr(other_path)}; "
                f"expected {leaf.shape} at {jax.tree_util.keystr(path)}, as in params."
            )
    if jax.tree.structure(params) != jax.tree.structure(tree):
        raise ValueError(f"{argument} has another tree structure than params; expected one number a parameter.")


def _by_layer(shares: PyTree, total: Callable) -> dict:
    totals = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(shares):
        key = _name(path[:1])
        totals[key] = totals.get(key, 0) + total(leaf)
    return totals


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
