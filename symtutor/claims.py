"""Checked numbers: the book prints what was claimed and held, never the digits that one machine happened to measure."""

import math

import numpy as np


class ClaimError(AssertionError):
    """A number in the book is not what the book says."""


def claim(
    name: str,
    value: float,
    *,
    equals: float | None = None,
    within: float | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
) -> None:
    """Check a number and print the claim, not the number, so that the text is the same on every machine.

    ``abs(value - equals) <= within``, or ``value <= at_most``, or ``value >= at_least``, or both of the last two. An
    array is claimed entry by entry: all have to hold. NaN holds nothing.

    Args:
        name: what the number is, as a reader would say it.
        value: the measured number or array.
        equals: the claimed number, with no more digits than within supports.
        within: the margin around it, at most a tenth of it.
        at_most: claimed upper bound.
        at_least: claimed lower bound.

    Raises:
        ClaimError: if the claim is false. The message holds the measured value.
        ValueError: if the claim itself is malformed: no bound or one that is not finite, equals
            without within, a margin over a tenth, too many digits.

    Example:
        >>> claim("defect left at t = 3", 0.04981, equals=0.0498, within=2e-4)
        defect left at t = 3: 0.0498 within 0.0002
        >>> claim("relative residual", 3.1e-5, at_most=1e-4)
        relative residual: at most 0.0001
        >>> claim("accuracy", 0.5, at_least=0.9)
        Traceback (most recent call last):
        symtutor.claims.ClaimError: accuracy: at least 0.9, but measured 0.5
    """
    if (equals is None) != (within is None):
        raise ValueError(f"claim {name!r} has equals={equals}, within={within}; expected both or neither.")
    if equals is None and at_most is None and at_least is None:
        raise ValueError(f"claim {name!r} has no bound; expected equals and within, at_most or at_least.")
    if equals is not None and (at_most is not None or at_least is not None):
        raise ValueError(f"claim {name!r} has equals beside a bound; expected one or the other.")
    for bound, number in (("at_most", at_most), ("at_least", at_least)):
        if number is not None and not math.isfinite(number):
            raise ValueError(f"claim {name!r} has {bound}={number}; expected a finite number.")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise ValueError(f"claim {name!r} has at_least={at_least} above at_most={at_most}; expected them in order.")
    measured = np.asarray(value, dtype=float)
    if measured.size == 0:
        raise ValueError(f"claim {name!r} has no values; expected at least one.")

    said, held = [], np.ones(measured.shape, dtype=bool)
    if equals is not None:
        _check_margin(name, equals, within)
        said.append(f"{equals:g} within {within:g}")
        held &= np.abs(measured - equals) <= within
    if at_least is not None:
        said.append(f"at least {at_least:g}")
        held &= measured >= at_least
    if at_most is not None:
        said.append(f"at most {at_most:g}")
        held &= measured <= at_most
    text = f"{name}: " + " and ".join(said)
    if not held.all():
        worst = np.atleast_1d(measured)[~np.atleast_1d(held)].flat[0]
        where = "" if measured.ndim == 0 else f" ({(~held).sum()} of {held.size} entries fail, the first)"
        raise ClaimError(f"{text}, but measured {worst:.6g}{where}")
    print(text)


def _check_margin(name: str, equals: float, within: float) -> None:
    if not (within > 0 and within <= abs(equals) / 10):
        raise ValueError(
            f"claim {name!r} has within={within:g} around {equals:g}; expected a margin above 0 and at most a "
            "tenth of the number (for a number near 0, claim at_most)."
        )
    decimals = -math.floor(math.log10(within) + 1e-9)
    if round(equals, decimals) != equals:
        raise ValueError(
            f"claim {name!r} gives {equals:g} more digits than within={within:g} supports; "
            f"expected {round(equals, decimals):g}."
        )
