"""The bound of time catches what is slow each time, and nothing else."""

from __future__ import annotations

import time

import pytest

from tests.fuzz import bounds


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_ALWAYS_S", 0.01)


def spin(seconds: float) -> None:
    ends_s = time.process_time() + seconds
    while time.process_time() < ends_s:
        pass


def test_given_a_target_that_is_slow_each_time_then_found() -> None:
    with pytest.raises(AssertionError, match="s of processor time"):
        bounds.in_time(lambda _data: spin(0.03), b"")


def test_given_a_target_that_was_slow_once_then_accepted() -> None:
    pauses = iter([0.03])
    assert bounds.in_time(lambda _data: spin(next(pauses, 0.0)), b"")


def test_given_a_long_input_then_more_is_allowed_where_no_loop_waits() -> None:
    data = b"x" * 4_096
    assert bounds.in_time(lambda _data: spin(0.03), data, offline=True)
    with pytest.raises(AssertionError):
        bounds.in_time(lambda _data: spin(0.03), data)
