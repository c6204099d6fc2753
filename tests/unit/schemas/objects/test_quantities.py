"""Names, sizes and durations: what is accepted, what is said about the rest, round trips."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.objects.quantities import (
    MAX_QUANTITY,
    Millis,
    check_name,
    format_duration,
    format_size,
    parse_duration_ms,
    parse_size,
    readable_size,
)

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("2Gi", 2 << 30, id="given-binary-unit"),
        pytest.param("512Mi", 512 << 20, id="given-mebibytes"),
        pytest.param("1Ki", 1024, id="given-kibibytes"),
        pytest.param("3Ti", 3 << 40, id="given-tebibytes"),
        pytest.param("10M", 10_000_000, id="given-decimal-unit"),
        pytest.param("1k", 1000, id="given-lower-k"),
        pytest.param("1K", 1000, id="given-upper-k"),
        pytest.param("4GiB", 4 << 30, id="given-unit-with-b"),
        pytest.param("5 Mi", 5 << 20, id="given-space-before-unit"),
        pytest.param(" 7 ", 7, id="given-space-around"),
        pytest.param("1.5Ki", 1536, id="given-fraction"),
        pytest.param("0", 0, id="given-zero"),
        pytest.param(1234, 1234, id="given-number"),
        pytest.param("9007199254740993", 2**53 + 1, id="given-more-than-a-float-holds-then-exact"),
        pytest.param(MAX_QUANTITY, MAX_QUANTITY, id="given-largest"),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        pytest.param(
            "2Gx", "'2Gx' is not a size; write bytes or a number with Ki", id="given-unit"
        ),
        pytest.param("", "is not a size", id="given-nothing"),
        pytest.param("Gi", "is not a size", id="given-only-unit"),
        pytest.param("-1", "is not a size", id="given-negative-text"),
        pytest.param("1_000", "is not a size", id="given-underscore"),
        pytest.param("٣Gi", "is not a size", id="given-digits-of-another-script"),
        pytest.param(-1, "cannot be negative", id="given-negative-number"),
        pytest.param(True, "True is not a size", id="given-boolean"),
        pytest.param(1.5, "1.5 is not a size", id="given-float"),
        pytest.param(None, "None is not a size", id="given-none"),
        pytest.param(MAX_QUANTITY + 1, "at most", id="given-too-large-number"),
        pytest.param("8192Pi", "at most", id="given-too-large-text"),
        pytest.param("9" * 5000, "is not a size", id="given-endless-digits"),
    ],
)
def test_what_is_not_a_size(bad: object, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        parse_size(bad)
    assert len(str(raised.value)) < 200


@given(st.integers(0, MAX_QUANTITY))
def test_law_a_shown_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (43_415_928, "41.4 MiB"),
        (3 << 39, "1.5 TiB"),
    ],
)
def test_a_readable_size_has_a_unit_that_fits(size: int, shown: str) -> None:
    assert readable_size(size) == shown


@given(st.integers(1, 2**13 - 1), st.integers(0, 5))
def test_law_a_size_is_shown_in_its_largest_exact_unit(count: int, power: int) -> None:
    shown = format_size(count << (10 * power))
    assert len(shown) <= len(str(count)) + 2


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        pytest.param("7d", 7 * DAY_MS, id="given-days"),
        pytest.param("2w", 14 * DAY_MS, id="given-weeks"),
        pytest.param("15m", 900_000, id="given-minutes-not-milliseconds"),
        pytest.param("250ms", 250, id="given-milliseconds"),
        pytest.param("1h30m", 5_400_000, id="given-two-units"),
        pytest.param("1d2h3m4s5ms", 93_784_005, id="given-every-unit"),
        pytest.param("1.5s", 1500, id="given-fraction"),
        pytest.param("0.1", 100, id="given-fraction-of-a-second"),
        pytest.param("30", 30_000, id="given-text-without-unit-then-seconds"),
        pytest.param(30, 30_000, id="given-number-then-seconds"),
        pytest.param(0.25, 250, id="given-float-then-seconds"),
        pytest.param(0, 0, id="given-zero"),
        pytest.param(Millis(30), 30, id="given-milliseconds-already"),
        pytest.param("9007199254740993ms", 2**53 + 1, id="given-more-than-a-float-holds"),
    ],
)
def test_durations(text: str | float, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        pytest.param("7 d", "'7 d' is not a duration; write for example 7d", id="given-space"),
        pytest.param("soon", "is not a duration", id="given-word"),
        pytest.param("7y", "is not a duration", id="given-unknown-unit"),
        pytest.param("7dd", "is not a duration", id="given-unit-twice"),
        pytest.param("", "is not a duration", id="given-nothing"),
        pytest.param("-5s", "is not a duration", id="given-negative-text"),
        pytest.param(-5, "cannot be negative", id="given-negative-number"),
        pytest.param(True, "True is not a duration", id="given-boolean"),
        pytest.param(None, "None is not a duration", id="given-none"),
        pytest.param(math.inf, "inf is not a duration", id="given-infinity"),
        pytest.param(math.nan, "nan is not a duration", id="given-no-number"),
        pytest.param(10**400, "at most", id="given-a-number-no-float-holds"),
        pytest.param("1" + "0" * 30 + "d", "at most", id="given-too-long"),
        pytest.param("9" * 5000 + "d", "is not a duration", id="given-endless-digits"),
        pytest.param("7d" + "0h" * 31 + "!", "is not a duration", id="given-a-late-mistake"),
    ],
)
def test_what_is_not_a_duration(bad: object, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        parse_duration_ms(bad)
    assert len(str(raised.value)) < 200


@given(st.integers(0, MAX_QUANTITY))
def test_law_a_shown_duration_reads_back(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms)) == ms


@given(st.one_of(st.text(max_size=12), st.floats(), st.integers(), st.none()))
def test_law_anything_is_a_quantity_in_range_or_a_value_error(value: object) -> None:
    for parse in (parse_size, parse_duration_ms):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(value) <= MAX_QUANTITY


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a", id="given-one-letter"),
        pytest.param("Orders.v2_eu-west", id="given-every-class-of-characters"),
        pytest.param("_offsets", id="given-a-name-of-the-system"),
        pytest.param("...", id="given-three-dots"),
        pytest.param("0", id="given-digit"),
        pytest.param("x" * 249, id="given-longest"),
    ],
)
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        pytest.param("", "'' is not a valid name; use 1 to 249 of the", id="given-nothing"),
        pytest.param("x" * 250, "is not a valid name", id="given-one-too-long"),
        pytest.param("a b", "'a b' is not a valid name", id="given-space"),
        pytest.param("a/b", "'a/b' is not a valid name", id="given-slash"),
        pytest.param("a\n", r"'a\\n' is not a valid name", id="given-newline-at-the-end"),
        pytest.param("ä", "'ä' is not a valid name", id="given-umlaut"),
        pytest.param(".", "'.' is not a valid name; . and .. are reserved", id="given-dot"),
        pytest.param("..", "are reserved", id="given-two-dots"),
        pytest.param(7, 'a name is text; write it in quotes: "7"', id="given-number"),
    ],
)
def test_what_is_not_a_name(bad: object, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        check_name(bad)
    assert len(str(raised.value)) < 200
