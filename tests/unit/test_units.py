"""Durations and rates, in and out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.errors import InputError
from sojourn.units import format_duration, format_wait, parse_duration, parse_number, parse_rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5),
        ("1.5 s", 1.5),
        ("2min", 120),
        ("3m", 180),
        ("250µs", 25e-5),
        (".5", 0.5),
        ("1e-3s", 1e-3),
        (2, 2.0),
        (0.25, 0.25),
        ("1h", 3600),
        ("1d", 86400),
        ("7ns", 7e-9),
    ],
)
def test_durations(text: object, expected: float) -> None:
    assert parse_duration(text, "x") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("13", 13), ("13/s", 13), ("780/min", 13), ("36/ h", 0.01), (1e3, 1000)]
)
def test_rates(text: object, expected: float) -> None:
    assert parse_rate(text, "x") == pytest.approx(expected)


@pytest.mark.parametrize("value", ["", "ms", None, True, [1], math.inf, math.nan])
def test_what_is_no_quantity_is_refused(value: object) -> None:
    for parse in (parse_duration, parse_rate, parse_number):
        with pytest.raises(InputError, match=r"^here: must be a "):
            parse(value, "here")


def test_more_than_numbers_can_hold_is_refused() -> None:
    for parse, text in (
        (parse_duration, "1e308h"),
        (parse_rate, "1e300/ns"),
        (parse_number, "1e999"),
    ):
        with pytest.raises(InputError, match=r"^here: is too large; got '1e"):
            parse(text, "here")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (1.254, "1.25 s"),
        (3.4e-6, "3.4 µs"),
        (0.5, "500 ms"),
        (1234.5, "1234 s"),
        (math.inf, "∞"),
        (-0.25, "-250 ms"),
    ],
)
def test_format(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@given(st.floats(1e-6, 1e6))
def test_what_is_shown_can_be_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds), "x") == pytest.approx(seconds, rel=6e-3)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (14, "14 s"),
        (99, "99 s"),
        (110, "2 min"),
        (1854, "31 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_what_is_left_is_told_in_a_unit_that_suits(seconds: float, words: str) -> None:
    assert format_wait(seconds) == words
