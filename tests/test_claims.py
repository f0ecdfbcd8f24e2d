"""Claims: what holds is printed without measured digits, what does not raises with them."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import symtutor as st


@pytest.mark.parametrize(
    ("value", "claimed", "said"),
    [
        (0.04981234, {"equals": 0.0498, "within": 2e-4}, "0.0498 within 0.0002"),
        (-1.02, {"equals": -1.0, "within": 0.1}, "-1 within 0.1"),
        (1234.0, {"equals": 1200.0, "within": 100}, "1200 within 100"),
        (3.1e-5, {"at_most": 1e-4}, "at most 0.0001"),
        (0.5, {"at_least": 0.2, "at_most": 0.5}, "at least 0.2 and at most 0.5"),
        (jnp.array([0.1, 0.3]), {"at_most": 0.3}, "at most 0.3"),
        (np.array([[1.0, 1.05]]), {"equals": 1.0, "within": 0.1}, "1 within 0.1"),
    ],
)
def test_true_claim_is_printed_without_the_measured_number(capsys, value, claimed, said):
    assert st.claim("a number", value, **claimed) is None
    assert capsys.readouterr().out == f"a number: {said}\n"


@pytest.mark.parametrize(
    ("value", "claimed", "said"),
    [
        (0.0501, {"equals": 0.0498, "within": 2e-4}, "x: 0.0498 within 0.0002, but measured 0.0501"),
        (2.0, {"at_most": 1.0}, "x: at most 1, but measured 2"),
        (0.0, {"at_least": 1.0}, "x: at least 1, but measured 0"),
        (0.6, {"at_least": 0.2, "at_most": 0.5}, "x: at least 0.2 and at most 0.5, but measured 0.6"),
        (float("nan"), {"at_most": 1.0}, "x: at most 1, but measured nan"),
        (float("nan"), {"at_least": 1.0}, "x: at least 1, but measured nan"),
        (float("nan"), {"equals": 1.0, "within": 0.1}, "x: 1 within 0.1, but measured nan"),
        (np.inf, {"at_most": 1.0}, "x: at most 1, but measured inf"),
        ([0.5, 2.0, np.nan], {"at_most": 1.0}, "but measured 2 (2 of 3 entries fail, the first)"),
    ],
)
def test_false_claim_raises_with_the_measured_number(capsys, value, claimed, said):
    with pytest.raises(st.ClaimError, match=re.escape(said)):
        st.claim("x", value, **claimed)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("claimed", "said"),
    [
        ({}, "has no bound"),
        ({"equals": 1.0}, "equals=1.0, within=None; expected both or neither"),
        ({"within": 0.1}, "equals=None, within=0.1; expected both or neither"),
        ({"equals": 1.0, "within": 0.1, "at_most": 2.0}, "equals beside a bound"),
        ({"equals": 1.0, "within": 0.2}, "within=0.2 around 1; expected a margin above 0 and at most a tenth"),
        ({"equals": 1.0, "within": 0.0}, "within=0 around 1"),
        ({"equals": 1.0, "within": -0.1}, "within=-0.1 around 1"),
        ({"equals": 0.0, "within": 1e-3}, "claim at_most"),
        ({"equals": 1.0, "within": float("nan")}, "within=nan around 1"),
        ({"equals": 0.04981, "within": 2e-4}, "gives 0.04981 more digits than within=0.0002 supports; expected 0.0498"),
        ({"equals": float("nan"), "within": 0.1}, "around nan"),
        ({"at_most": float("nan")}, "at_most=nan; expected a finite number"),
        ({"at_most": float("inf")}, "at_most=inf; expected a finite number"),
        ({"at_least": 2.0, "at_most": 1.0}, "at_least=2.0 above at_most=1.0"),
    ],
)
def test_malformed_claim_is_refused_whatever_the_value(claimed, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        st.claim("x", 1.0, **claimed)


def test_nothing_measured_is_refused():
    with pytest.raises(ValueError, match="has no values"):
        st.claim("x", np.zeros(0), at_most=1.0)


def test_claim_error_fails_like_an_assertion():
    assert issubclass(st.ClaimError, AssertionError)
