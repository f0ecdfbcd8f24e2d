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
    below_floor,
    choose_solver,
    default_floor,
    explain_failure,
    jacobian_dtype,
    linear_system,
    look_at_tangent,
    relative,
    solve,
    spectrum_for,
    tangent_residual,
    target,
    weighted_rows,
)
from symtutor.probes import Probes, auto_sharded, inner_product
from symtutor.sensitivity import sensitivity


class Attribution(NamedTuple):
    """Shares of a lift; see `attribute`. Printed, it is a table of the largest.

    Totals and tables are of one attribution: of a batch, as `jax.vmap` returns it, index one first.

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
        return sum(jnp.clip(leaf, 0).sum() for leaf in jax.tree.leaves(self._one()))

    @property
    def negative(self) -> Float[Array, ""]:
        """The sum of the negative shares."""
        return sum(jnp.clip(leaf, None, 0).sum() for leaf in jax.tree.leaves(self._one()))

    def _one(self) -> PyTree:
        """Return the shares, refusing a batch of them."""
        if jnp.ndim(self.explained) != 0:
            raise ValueError(f"explained has shape {jnp.shape(self.explained)}; expected (): index the batch first.")
        return self.shares

    def by_leaf(self) -> dict[str, Float[Array, "..."]]:
        """Return the shares of each leaf as an array, under the leaf's path: for plotting."""
        return _by_leaf(self.shares)

    def by_layer(self) -> dict[str, Float[Array, ""]]:
        """Return the sum of shares under each top-level key of params (``"0"``, ``"1"``, ... for a list of layers)."""
        return _by_layer(self._one(), lambda leaf: leaf.sum())

    def by_neuron(self, axis: int = 0) -> dict[str, Float[Array, " neurons"]]:
        """Return, for each group of leaves with one parent, the sum of shares of every neuron.

        A neuron's total runs over its incoming weights and its bias. Leaves with one parent are taken to be one layer, so
        ``{"W1", "b1", "W2", "b2"}`` side by side would be added up.

        Args:
            axis: the axis of a weight that counts neurons: 0 for weights ``(out, in)``, -1 for ``(in, out)``. Leaves of one
                axis, such as biases, count neurons along it.

        Returns:
            A dict from the parent's path to totals, shape ``(neurons,)``.

        Raises:
            ValueError: if a weight has no such axis, or leaves with one parent count different numbers of neurons.
        """
        place = checks.whole(axis)
        totals = {}
        for key, leaves in _gathered(self._one(), slice(-1)).items():
            for leaf in map(jnp.atleast_1d, leaves):
                if place is None or (leaf.ndim > 1 and not -leaf.ndim <= place < leaf.ndim):
                    raise ValueError(
                        f"axis is {axis!r}; expected an axis of the weight of shape {leaf.shape} under {key!r}."
                    )
                kept = place % leaf.ndim if leaf.ndim > 1 else 0
                total = leaf.sum(axis=tuple(i for i in range(leaf.ndim) if i != kept))
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
            TypeError: inside ``jax.jit``, where shares have no values yet.
            ValueError: if k is not a positive whole number.
        """
        checks.check_count(k, "k")
        if not checks.is_concrete(self.shares):
            raise TypeError("shares are traced, by jax.jit or jax.vmap; expected values: call this outside of it.")
        entries = [
            (name, tuple(int(i) for i in np.unravel_index(j, leaf.shape)), float(leaf.reshape(-1)[j]))
            for name, leaf in _by_leaf(jax.tree.map(np.asarray, self._one())).items()
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
            TypeError: as `top`.
            ValueError: if k is not a positive whole number.
        """
        scaled = _by_leaf(self.scaled)  # a tree like shares, so the names are the same
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
        return self.table() if checks.is_concrete(self) and jnp.ndim(self.explained) == 0 else repr(self)


class AttributionBand(NamedTuple):
    """Shares over probe sets and ridges; see `attribution_band`. Printed, it is the bounds of each layer's total.

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
            k: how many; all, if there are fewer. A parameter of share 0 is never among them.

        Returns:
            Parts from 0 to 1, shape ``(sets, ridges, sets, ridges)``: ``[i, :, i, :]`` compares ridges on one probe set,
            ``[:, j, :, j]`` probe sets at one ridge. Of two rankings drawn at random about ``k / n`` would agree. Where
            one lift has fewer than k nonzero shares the part is of the other's; where neither has any it is 0.

        Raises:
            ValueError: if k is not a positive whole number.
        """
        checks.check_count(k, "k")
        shape = self.explained.shape
        sizes = jnp.concatenate([jnp.abs(s).reshape(*shape, -1) for s in jax.tree.leaves(self.shares)], axis=-1)
        places = jnp.argsort(jnp.argsort(-sizes, axis=-1, stable=True), axis=-1)
        top = ((places < k) & (sizes > 0)).astype(sizes.dtype)
        count = top.sum(axis=-1)
        return relative(jnp.einsum("abn,cdn->abcd", top, top), jnp.maximum(count[..., None, None], count))

    def __str__(self) -> str:
        """Show between what bounds each layer's total lies."""
        if not checks.is_concrete(self) or jnp.ndim(self.explained) != 2:
            return repr(self)
        totals = {"explained": self.explained} | {name or "params": total for name, total in self.by_layer().items()}
        sets, ridges = self.explained.shape
        lines = [f"{sets} probe sets, {ridges} ridges from {self.ridges.min():.2g} to {self.ridges.max():.2g}"]
        return "\n".join(
            lines + [f"{name}: {total.min():+.4f} to {total.max():+.4f}" for name, total in totals.items()]
        )


class SubsetCurve(NamedTuple):
    """Residuals with only some parameters free; see `subset_check`. Printed, it is a table.

    Attributes:
        sizes: how many parameters were free, shape ``(K,)``.
        residuals: residual of the lift on the probes, shape ``(K,)``.
        heldout_residuals: residual on the held-out probes, shape ``(K,)``.
        norms: Euclidean norm of the direction, shape ``(K,)``.
    """

    sizes: Int[np.ndarray | Array, " K"]
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
            raise ValueError(f"sizes are {self.sizes}; expected at least two for an area.")
        log = jnp.log(jnp.asarray(self.sizes, self.residuals.dtype))
        return jnp.trapezoid(self.heldout_residuals if heldout else self.residuals, log) / (log[-1] - log[0])

    def __str__(self) -> str:
        """Show a line for each size."""
        if not checks.is_concrete(self) or jnp.ndim(self.residuals) != 1:
            return repr(self)
        rows = zip(*self, strict=True)
        lines = [f"{'free':>6}  {'residual':>8}  {'held out':>8}  {'norm':>8}"]
        return "\n".join(lines + [f"{k:6.0f}  {here:8.4f}  {there:8.4f}  {norm:8.3g}" for k, here, there, norm in rows])


def attribute(
    f: Callable, params: PyTree, probes: Probes, tangent: Callable, c: Lift, *, chunk_size: int | None = None
) -> Attribution:
    """Share out what a lift explains of its tangent among the parameters.

    ``a_i = c_i <J_i, eta> / norm(eta)^2``. The shares add up to ``<J c, eta> / norm(eta)^2``, which is
    ``1 - residual^2 - damping norm(c)^2 / norm(eta)^2`` (0 for a zero tangent). Shares have signs and cancel. They depend
    on the ridge, on the probes, and on how the parameters are scaled: show them with those.

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
        TypeError: as `lift`, or if probe_sets is no sequence.
        ValueError: as `lift`, or if probe_sets or ridges is empty.
        MemoryError: as `lift`; there is no iteration to fall back to.

    Warns:
        UserWarning: as `lift`, for each probe set. Where the tangent is below the floor, the shares are zero.

    Example:
        >>> import jax, symtutor as st
        >>> net = st.mlp((2, 8, 1))
        >>> sets = [st.polar_probes(offset=offset) for offset in (0.0, 0.5)]
        >>> band = st.attribution_band(net.apply, net.init(jax.random.key(0)), sets, st.orbit_tangent(st.so2()), [1e-2, 1e-4])
        >>> band.by_layer()["0"].shape
        (2, 2)

    Reference: theory.md, P12 and "What the residual does and does not tell", 2.
    """
    try:
        probe_sets = list(probe_sets)
    except TypeError as error:
        raise TypeError(f"probe_sets is {type(probe_sets).__name__}; expected a sequence of Probes.") from error
    if not probe_sets:
        raise ValueError("probe_sets is empty; expected at least one Probes.")
    probe_sets = [
        _check(f, params, probes, tangent, chunk_size, f"probe_sets[{i}]") for i, probes in enumerate(probe_sets)
    ]
    ridges = checks.as_ridges(ridges, jacobian_dtype(params))
    least = float(min(ridges)) if checks.is_concrete(ridges) else 0.0
    rows = []
    for probes in probe_sets:
        look_at_tangent(f, params, probes, tangent, least, chunk_size)
        spectrum = spectrum_for(f, params, probes, least)
        row = _shares_over_ridges(f, params, probes, tangent, ridges, spectrum, chunk_size)
        if checks.is_concrete(row) and not jnp.isfinite(row[1]).all():
            explain_failure(f, params, probes, tangent, least, chunk_size)
        rows.append(row)
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
        The function ``f_k(q, x)``, a pytree that holds params and the places of the free ones, so that lifts of one k
        compile once; and ``q``, shape ``(k,)``.

    Raises:
        TypeError: if f is no function, or params or scores is no pytree of float arrays.
        ValueError: if scores does not fit params, or k is not from 1 to the number of parameters.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f_1, q = restrict(lambda w, x: jnp.dot(w, x), jnp.array([1.0, 2.0]), jnp.array([0.0, 5.0]), 1)
        >>> q.tolist(), float(f_1(jnp.array([7.0]), jnp.array([10.0, 1.0])))          # w = (1, 7)
        ([2.0], 17.0)
    """
    if not callable(f):
        raise TypeError(f"f is {type(f).__name__}; expected a function f(params, x) of one input, like net.apply.")
    checks.check_params(params)
    free = _ranking(scores, params)[: _whole_up_to_all(k, params)]
    return jax.tree_util.Partial(_with_free, f, params, free), ravel_pytree(params)[0][free]


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
        sizes: how many parameters to free, increasing; by default 12 from 5 to 400, evenly in the logarithm, or to all
            (from 1 where there are no more than 5).
        ridge: relative ridge of the lifts, as in `lift`.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        The curve; ``.area()`` sums it up.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if scores does not fit params, or sizes do not increase from at least 1.
        MemoryError: as `lift`; columns are picked, so the Jacobian is built.
        FloatingPointError: outside ``jax.jit``, if a lift failed.

    Warns:
        UserWarning: as `lift`. Where the tangent is below the floor, every direction is zero.

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
    sizes = _sizes(sizes, len(order))
    dtype = jacobian_dtype(params)
    sound = checks.is_concrete(ridge) and ridge >= solvers.gram_limit(dtype)
    # columns are picked, so J is built
    solver, _ = choose_solver("cholesky" if sound else "svd", ridge, f, params, probes)
    look_at_tangent(f, params, probes, tangent, ridge, chunk_size)
    residuals, heldout_residuals, norms = _subset_curve(
        f, params, probes, tangent, heldout, jnp.argsort(order), jnp.asarray(sizes), jnp.asarray(ridge, dtype), solver,
        chunk_size,
    )  # fmt: skip
    if checks.is_concrete(norms) and not jnp.isfinite(norms).all():
        explain_failure(f, params, probes, tangent, ridge, chunk_size, solver)
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
        k: how many to choose, up to all.
        ridge: keeps out columns of which nothing is left; relative to the largest singular value, and never below rounding.
        chunk_size: how many probes at a time when the Jacobian is built.

    Returns:
        A pytree like params with k for the first choice, 1 for the last, 0 for all others.

    Raises:
        TypeError: as `lift`.
        ValueError: as `lift`, or if k is not from 1 to the number of parameters.
        MemoryError: as `lift`; columns are picked, so the Jacobian is built.

    Warns:
        UserWarning: as `lift`. Where the tangent is below the floor there is nothing to choose by, and all are 0.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> f, w, probes = lambda w, x: jnp.dot(w, x), jnp.array([1.0, 0.0]), st.polar_probes()
        >>> greedy_scores(f, w, probes, st.orbit_tangent(st.so2()), 1).tolist()
        [0.0, 1.0]

    Reference: experiments.md, 6.
    """
    probes = _check(f, params, probes, tangent, chunk_size)
    checks.check_ridge(ridge)
    k = _whole_up_to_all(k, params)
    choose_solver("svd", ridge, f, params, probes)  # it takes as much memory: J, what is left of it, and what goes off
    look_at_tangent(f, params, probes, tangent, ridge, chunk_size)
    # arrays, so that one program serves
    ridge, k = jnp.asarray(ridge, jacobian_dtype(params)), jnp.asarray(k)
    scores, finite = _greedy(f, params, probes, tangent, k, ridge, chunk_size)
    if checks.is_concrete(finite) and not finite:
        explain_failure(f, params, probes, tangent, ridge, chunk_size)
    return scores


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
    nothing = _below_floor(f, params, probes, tangent, y)
    square = y @ y
    scale = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)

    def one(ridge):
        c, image = jax.tree.map(lambda leaf: jnp.where(nothing, 0, leaf), solve_at(ridge))
        shares = jax.tree.map(lambda ci, ji: ci * ji * scale, c, correlation)
        explained = sum(leaf.sum() for leaf in jax.tree.leaves(shares))
        return shares, explained, jnp.linalg.norm(image - y) * jnp.sqrt(scale)

    return jax.lax.map(one, ridges)


def _correlation(f, params, probes, y):
    """Return ``<J_i, eta>`` for every i by one reverse pass, from the weighted tangent y."""
    values, pull_back = jax.vjp(lambda p: jax.vmap(f, (None, 0))(p, probes.x), params)
    return pull_back(weighted_rows(y, probes.w).reshape(values.shape).astype(values.dtype))[0]


def _below_floor(f, params, probes, tangent, y):
    """Tell whether there is nothing to attribute: the weighted tangent y is what `lift` would call below the floor."""
    _, spread = target(f, params, probes, tangent)
    return below_floor(y, spread, default_floor(y.dtype))


@eqx.filter_jit
def _subset_curve(f, params, probes, tangent, heldout, places, sizes, ridge, solver, chunk_size):
    A, y = linear_system(f, params, probes, tangent, chunk_size)
    flat, unravel = ravel_pytree(params)
    nothing = _below_floor(f, params, probes, tangent, y)

    def one(size):
        free = jnp.where(places < size, A, 0)  # one shape, so one program, whatever the size
        c = jnp.where(nothing, 0, solve(free, y, ridge, solver)[0])
        residual = relative(jnp.linalg.norm(free @ c - y), jnp.linalg.norm(y))
        direction = unravel(c.astype(flat.dtype))
        return residual, tangent_residual(f, params, heldout, tangent, direction), jnp.linalg.norm(c)

    return jax.lax.map(one, sizes)


@eqx.filter_jit
def _greedy(f, params, probes, tangent, k, ridge, chunk_size):
    A, y = linear_system(f, params, probes, tangent, chunk_size)
    flat, unravel = ravel_pytree(params)
    eps, tiny = jnp.finfo(A.dtype).eps, jnp.finfo(A.dtype).tiny
    rounding = (100 * eps) ** 2 * (A**2).sum(axis=0)  # what is left of a copy of a chosen column, parallel to anything
    damping = ridge**2 * solvers.largest_eigenvalue(A @ A.T if A.shape[0] <= A.shape[1] else A.T @ A)

    def choose(i, state):
        # Columns and right-hand side, less what the chosen ones span. The whole of y has the same products with such
        # columns, but for rounding, which decides in float32.
        left, r, scores = state
        square = (left**2).sum(axis=0)
        gain = jnp.where(square > rounding, (r @ left) ** 2 / (square + damping + tiny), 0)
        gain = jnp.where(scores > 0, -1, gain)
        best = jnp.argmax(gain)
        size = jnp.linalg.norm(left[:, best])
        unit = left[:, best] / jnp.where(size > 0, size, 1)
        left, r = left - jnp.outer(unit, unit @ left), r - unit * (unit @ r)
        return left, r, scores.at[best].set((k - i).astype(scores.dtype))

    scores = jax.lax.fori_loop(0, k, choose, (A, y, jnp.zeros_like(flat)))[2]
    scores = jnp.where(_below_floor(f, params, probes, tangent, y), 0, scores)
    return unravel(scores), jnp.isfinite(A).all() & jnp.isfinite(y).all()


def _with_free(f, params, free, q, x):
    start, unravel = ravel_pytree(params)
    return f(unravel(start.at[free].set(q)), x)


def _check(f, params, probes, tangent, chunk_size, argument="probes"):
    checks.check_params(params)
    checks.check_probes(probes, argument)
    checks.check_tangent(tangent, f, params, probes.x)
    checks.check_chunk_size(chunk_size)
    return auto_sharded(probes)


def _ranking(scores: PyTree, params: PyTree) -> Int[Array, " n"]:
    """Return the places of the parameters, largest score first."""
    checks.check_params(scores, "scores")
    _check_like(scores, params, "scores")
    return jnp.argsort(-ravel_pytree(scores)[0], stable=True)


def _whole_up_to_all(k: int, params: PyTree) -> int:
    """Return how many parameters to choose, refusing more than there are."""
    n = sum(leaf.size for leaf in jax.tree.leaves(params))
    whole = checks.whole(k)
    if whole is None or not 1 <= whole <= n:
        raise ValueError(f"k is {k!r}; expected a whole number from 1 to {n}, the number of parameters.")
    return whole


def _sizes(sizes: Sequence[int] | None, n: int) -> Int[np.ndarray, " K"]:
    """Return the sizes of a subset curve of n parameters."""
    if sizes is None:
        return np.unique(np.geomspace(5 if n > 5 else 1, min(400, n), 12).round().astype(int))
    try:
        whole = np.asarray(sizes)
    except (TypeError, ValueError):  # rows of different lengths, or traced
        whole = np.empty(0)
    if whole.ndim != 1 or not len(whole) or whole.dtype.kind != "i" or whole[0] < 1 or (np.diff(whole) <= 0).any():
        raise ValueError(f"sizes are {sizes}; expected whole numbers that increase from at least 1.")
    if whole[-1] > n:
        raise ValueError(f"sizes go up to {whole[-1]}; expected at most {n}, the number of parameters.")
    return whole


def _check_like(tree: PyTree, params: PyTree, argument: str) -> None:
    if jax.tree.structure(params) != jax.tree.structure(tree):
        raise ValueError(f"{argument} has another tree structure than params; expected one number a parameter.")
    for (path, leaf), part in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(tree), strict=True):
        if leaf.shape != part.shape:
            raise ValueError(
                f"{argument} has a leaf of shape {part.shape} at {jax.tree_util.keystr(path)}; "
                f"expected {leaf.shape}, as in params."
            )


def _by_leaf(tree: PyTree) -> dict:
    return {name: leaf for name, (leaf,) in _gathered(tree, slice(None)).items()}


def _by_layer(shares: PyTree, total: Callable) -> dict:
    return {name: sum(map(total, leaves)) for name, leaves in _gathered(shares, slice(1)).items()}


def _gathered(tree: PyTree, part: slice) -> dict[str, list]:
    """Return the leaves of a tree in lists, one for each name: that part of their paths, with dots between the keys."""
    lists = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        lists.setdefault(path[part], []).append(leaf)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in lists]
    if len(set(names)) < len(names):  # {"a.b": ...} beside {"a": {"b": ...}}: as JAX writes them, no two are the same
        names = [jax.tree_util.keystr(path) for path in lists]
    return dict(zip(names, lists.values(), strict=True))
