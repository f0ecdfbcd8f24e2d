"""Which solver for ``min_c norm(A c - y)^2 + damping norm(c)^2`` with ``damping = (ridge s1)^2``; and those that use A.

A is the weighted Jacobian, shape (P, n); s1 is its largest singular value. Each solver factorises first and then
solves, so that one factorisation serves many right-hand sides (`cholesky`) or many ridges (`eigh`, `svd`).

Those that form a Gram matrix square the condition number. They are sound for a ridge of at least
``gram_limit(dtype)``; below it, and in float32, `svd` is the one to use.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jaxtyping import Array, Float

from symtutor.checks import Number, is_concrete

SOLVERS = ("auto", "gram", "cholesky", "eigh", "svd", "lsmr")
Solve = Callable[[Float[Array, " P"]], Float[Array, " n"]]


def gram_limit(dtype) -> float:
    """Return the least ridge for which a Gram solve is sound, ``sqrt(10 eps)``: 5e-8 in float64, 1e-3 in float32."""
    return math.sqrt(10 * float(jnp.finfo(dtype).eps))


def choose_solver(solver: str, ridge: Number, dtype, rows: int, columns: int) -> tuple[str, str]:
    """Return the solver to use and why, refusing one that would be unsound.

    Args:
        solver: ``"auto"``, ``"gram"``, ``"cholesky"``, ``"eigh"``, ``"svd"`` or ``"lsmr"``.
        ridge: relative ridge; a traced one is taken to be in the range of the Gram solvers.
        dtype: of the Jacobian.
        rows: of the Jacobian, N k.
        columns: of the Jacobian, n.

    Returns:
        The solver and the reason.

    Raises:
        ValueError: if the name is unknown, or the ridge is below what the dtype supports.

    Example:
        >>> import jax.numpy as jnp
        >>> choose_solver("auto", 1e-6, jnp.float64, 576, 1185)
        ('gram', '576 rows and 1185 parameters, ridge at least 4.7e-08')
        >>> choose_solver("auto", 1e-6, jnp.float32, 576, 1185)[0]
        'svd'

    Reference: theory.md, Numerics.
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver is {solver!r}; expected one of {', '.join(map(repr, SOLVERS))}.")
    name, eps, limit = jnp.dtype(dtype).name, float(jnp.finfo(dtype).eps), gram_limit(dtype)
    if is_concrete(ridge):
        if 0 < ridge < eps:
            raise ValueError(
                f"ridge is {ridge:.3g}, below what {name} supports; expected 0 (a pseudo-inverse), or at least {eps:.1e}."
            )
        if solver not in ("auto", "svd") and ridge < limit:
            raise ValueError(
                f"ridge is {ridge:.3g}, unsound for solver={solver!r} in {name}; "
                f"expected at least {limit:.1e}, or solver='svd'."
            )
    if solver != "auto":
        return solver, "asked for"
    sound = bool(ridge >= limit) if is_concrete(ridge) else jnp.dtype(dtype) == jnp.float64
    size = f"{rows} rows and {columns} parameters"
    if not sound:
        return "svd", f"{size}, ridge below {limit:.1e}" if is_concrete(ridge) else f"{size}, ridge not known in {name}"
    said = f"{size}, ridge at least {limit:.1e}" if is_concrete(ridge) else f"{size}, ridge not known yet"
    return ("gram" if rows <= columns else "cholesky"), said


def check_memory(solver: str, dtype, rows: int, columns: int, kept: int, device=None) -> None:
    """Refuse a solve that would not fit into the memory that is free, before anything large is allocated.

    Args:
        solver: as `choose_solver` returns it.
        dtype: of the Jacobian.
        rows: of the Jacobian, N k.
        columns: of the Jacobian, n.
        kept: numbers a row that ``"gram"`` keeps.
        device: where it is to run; JAX's first if None.

    Raises:
        MemoryError: with the estimate, what is free, and what would need less.
    """
    numbers = memory(solver, rows, columns, kept) * jnp.dtype(dtype).itemsize
    free = free_memory(device)
    if free is not None and numbers > free:
        less = {"gram": "fewer probes, or solver='lsmr'", "lsmr": "fewer probes"}
        less = less.get(solver, "fewer probes, or solver='gram' with a ridge that it supports")
        raise MemoryError(
            f"a lift of {rows} rows and {columns} parameters by solver {solver!r} takes about {numbers / 1e9:.3g} GB, "
            f"and {free / 1e9:.3g} GB are free; expected {less}."
        )


def memory(solver: str, rows: int, columns: int, kept: int) -> int:
    """Return about how many numbers a solver holds at once; kept is how many a row the ``"gram"`` solver keeps."""
    short = min(rows, columns)
    return {
        "gram": 3 * rows**2 + rows * kept,
        "cholesky": 2 * rows * columns + 3 * short**2,  # A is built of its leaves, which live beside it for a while
        "eigh": 2 * rows * columns + 4 * short**2,
        "svd": 3 * rows * columns + 4 * short**2,
        "lsmr": 40 * rows + 10 * columns,
    }[solver]


def free_memory(device=None) -> int | None:
    """Return the bytes that are free for a device, or None for an accelerator that does not say.

    On a host that is what the system could hand out, and no more than its control group is allowed (a container's limit).
    """
    device = device or jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else None
    free, group = psutil.virtual_memory().available, Path("/sys/fs/cgroup")
    try:
        used = int((group / "memory.current").read_text())
        files = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        return min(
            free, int((group / "memory.max").read_text()) - used + int(files)
        )  # what files take can be given back
    except (OSError, ValueError, KeyError):  # no such group, or one without a limit, "max"
        return free


class Spectrum(NamedTuple):
    """Singular values of A and what turns a right-hand side into a solution for any ridge.

    Attributes:
        values: singular values, largest first, shape ``(r,)``.
        left: left singular vectors, shape ``(P, r)``.
        right: right singular vectors, transposed, shape ``(r, n)``.
    """

    values: Float[Array, " r"]
    left: Float[Array, "P r"]
    right: Float[Array, "r n"]

    def solve(self, y: Float[Array, " P"], ridge: Number) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """Return the minimiser for y and the damping; ridge 0 gives the minimum-norm solution above the cut."""
        damping = (ridge * self.values[0]) ** 2
        cut = jnp.finfo(y.dtype).eps * max(self.left.shape[0], self.right.shape[1]) * self.values[0]
        keep = (self.values > cut) | (damping > 0)
        kept = jnp.where(keep & (self.values > 0), self.values, 1)
        filtered = jnp.where(keep & (self.values > 0), kept / (kept**2 + damping), 0)
        return self.right.T @ (filtered * (self.left.T @ y)), damping  # (n, r) x (r,) -> (n,)


def svd(A: Float[Array, "P n"]) -> Spectrum:
    """Return the spectrum by QR of the long side, then an SVD of R: the accurate way, sound at any ridge.

    The SVD of the small factor keeps minimum norm and rank exact; a triangular solve with R would not.

    Args:
        A: weighted Jacobian, shape ``(P, n)``.

    Returns:
        The spectrum.

    Example:
        >>> import jax.numpy as jnp
        >>> svd(jnp.array([[3.0, 0.0], [0.0, 4.0]])).values.tolist()
        [4.0, 3.0]
    """
    if A.shape[0] > A.shape[1]:
        Q, R = jnp.linalg.qr(A)  # (P, n), (n, n)
        U, s, Vt = jnp.linalg.svd(R, full_matrices=False)
        return Spectrum(s, Q @ U, Vt)
    Q, R = jnp.linalg.qr(A.T)  # (n, P), (P, P);  A = R^T Q^T
    U, s, Vt = jnp.linalg.svd(R, full_matrices=False)
    return Spectrum(s, Vt.T, (Q @ U).T)


def eigh(A: Float[Array, "P n"]) -> Spectrum:
    """Return the spectrum from the eigenvectors of the smaller Gram matrix: quicker than `svd`, blind below sqrt(eps) s1.

    Args:
        A: weighted Jacobian, shape ``(P, n)``.

    Returns:
        The spectrum.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(s, 5) for s in eigh(jnp.array([[3.0, 0.0], [0.0, 4.0]])).values.tolist()]
        [4.0, 3.0]
    """
    wide = A.shape[0] <= A.shape[1]
    squares, vectors = jnp.linalg.eigh(A @ A.T if wide else A.T @ A)
    values, vectors = jnp.sqrt(jnp.clip(squares[::-1], 0)), vectors[:, ::-1]
    scale = jnp.where(values > 0, 1 / jnp.where(values > 0, values, 1), 0)
    if wide:
        return Spectrum(values, vectors, scale[:, None] * (vectors.T @ A))
    return Spectrum(values, (A @ vectors) * scale[None, :], vectors.T)


def cholesky(A: Float[Array, "P n"], ridge: Number) -> tuple[Solve, Float[Array, ""]]:
    """Factorise ``gram + damping`` once and return a function that solves for a right-hand side.

    Wide A: ``c = A^T a`` with ``(A A^T + damping) a = y``. Tall A: ``(A^T A + damping) c = A^T y``. One step of
    refinement, with residuals through A itself, takes away most of what forming the Gram matrix lost.

    Args:
        A: weighted Jacobian, shape ``(P, n)``.
        ridge: relative ridge, at least `gram_limit`.

    Returns:
        The function ``y -> c``, which returns NaN where the factorisation failed, and the damping.

    Example:
        >>> import jax.numpy as jnp
        >>> solve, damping = cholesky(jnp.array([[2.0, 0.0]]), ridge=1.0)
        >>> solve(jnp.array([2.0])).tolist(), float(damping)      # 2 * 2 / (2^2 + 2^2)
        ([0.5, 0.0], 4.0)
    """
    wide = A.shape[0] <= A.shape[1]
    gram = A @ A.T if wide else A.T @ A
    # A = 0 has no scale: any positive damping gives c = 0
    square = largest_eigenvalue(gram)
    damping = ridge**2 * square
    shift = jnp.where(square > 0, damping, 1)
    factor = jax.scipy.linalg.cho_factor(gram + shift * jnp.eye(gram.shape[0], dtype=gram.dtype), lower=True)

    def inner(right):
        return jax.scipy.linalg.cho_solve(factor, right)

    def solve(y):
        if wide:
            a = inner(y)
            a = a + inner(y - A @ (A.T @ a) - shift * a)
            return A.T @ a
        c = inner(A.T @ y)
        return c + inner(A.T @ (y - A @ c) - shift * c)

    return solve, damping


def largest_eigenvalue(
    gram: Float[Array, "m m"] | Callable, steps: int = 30, size: int | None = None, dtype=None
) -> Float[Array, ""]:
    """Return the largest eigenvalue of a positive semidefinite matrix by Lanczos steps, orthogonalised in full.

    Args:
        gram: the matrix, shape ``(m, m)``, or the function that multiplies a vector by it.
        steps: dimension of the Krylov space.
        size: m, if gram is a function.
        dtype: of vectors, if gram is a function.

    Returns:
        The largest Ritz value, shape ``()``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(largest_eigenvalue(jnp.diag(jnp.array([1.0, 5.0, 2.0]))).round(5))
        5.0
    """
    multiply, m, dtype = (gram, size, dtype) if callable(gram) else (lambda v: gram @ v, gram.shape[0], gram.dtype)
    steps = min(steps, m)
    start = np.random.default_rng(0).standard_normal(m)  # by numpy, at trace time: nothing to compile
    start = jnp.asarray(start / np.linalg.norm(start), dtype)
    scale = jnp.abs(multiply(start)).max()
    scale = jnp.where(scale > 0, scale, 1)  # so that squares of what is left of a vector do not vanish
    empty = jnp.zeros((steps, m), dtype)
    basis = empty.at[0].set(start)

    def step(i, state):
        basis, images = state
        before = jnp.linalg.norm(image := multiply(basis[i]) / scale)
        images = images.at[i].set(image)
        for _ in range(2):  # twice is enough
            image = image - (basis @ image) @ basis
        size = jnp.linalg.norm(image)
        # an invariant space is exhausted, and what is left is rounding: a zero row adds nothing to the Ritz values
        new = jnp.where(size > 10 * jnp.finfo(dtype).eps * before, image / jnp.where(size > 0, size, 1), 0)
        return basis.at[i + 1].set(new, mode="drop"), images  # the last one has no place

    basis, images = jax.lax.fori_loop(0, steps, step, (basis, empty))
    return scale * jnp.clip(jnp.linalg.eigvalsh(basis @ images.T)[-1], 0)
