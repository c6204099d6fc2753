"""What counts as received, and how late it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from runnel.bench import arrivals as module
from runnel.bench.arrivals import Arrivals
from schemas.errors import DeadlineExceededError, UnreachableError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of `perf_counter`, in the only element."""
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    return now


def batch(*timestamps_us: int) -> pa.RecordBatch:
    return pa.record_batch({"timestamp": pa.array(timestamps_us, pa.timestamp("us", "UTC"))})


def test_latency_counts_from_when_a_record_was_due(clock: list[float]) -> None:
    arrivals = Arrivals(3)
    arrivals.begin()
    due_us = [arrivals.due_us(at_s) for at_s in (0.0, 0.5, 1.0)]

    def batches() -> Iterator[pa.RecordBatch]:
        clock[0] = 100.6
        yield batch(*due_us[:2])
        clock[0] = 102.0
        yield batch(due_us[2])

    arrivals.read(batches())
    arrivals.wait_for_all(0)
    assert np.round(arrivals.latencies_ms(), 3).tolist() == [600.0, 100.0, 1000.0]


def test_given_the_wall_clock_is_set_then_nothing_changes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals = Arrivals(1)
    arrivals.begin()
    due_us = arrivals.due_us(1.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    clock[0] = 101.25
    arrivals.read([batch(due_us)])
    assert np.round(arrivals.latencies_ms(), 3).tolist() == [250.0]


def test_given_records_of_the_warming_up_then_they_do_not_count(clock: list[float]) -> None:
    arrivals = Arrivals(1)
    arrivals.read([batch(1, 2)])
    arrivals.wait_for_any(0)
    assert arrivals.received == 0
    arrivals.begin()
    clock[0] = 100.5
    arrivals.read([batch(1, 2, arrivals.due_us(0.0)), batch(1)])
    assert arrivals.received == 1
    assert np.round(arrivals.latencies_ms(), 3).tolist() == [500.0]


def test_given_records_that_do_not_come_then_it_says_how_many(clock: list[float]) -> None:
    arrivals = Arrivals(1_000)
    with pytest.raises(DeadlineExceededError, match="no record was read"):
        arrivals.wait_for_any(0)
    arrivals.begin()
    with pytest.raises(DeadlineExceededError, match="0 of 1,000 records were read"):
        arrivals.wait_for_all(0)


def test_given_a_reader_that_fails_then_whoever_waits_is_told() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        raise UnreachableError("the SPU is gone")

    arrivals = Arrivals(5)
    arrivals.read(broken())
    for wait in (arrivals.wait_for_any, arrivals.wait_for_all):
        with pytest.raises(UnreachableError, match="the SPU is gone"):
            wait(0)
    with pytest.raises(UnreachableError, match="the SPU is gone"):
        arrivals.raise_failure()


def test_given_an_end_before_all_have_come_then_that_is_no_success() -> None:
    arrivals = Arrivals(5)
    arrivals.begin()
    arrivals.read([batch(arrivals.due_us(0.0))])
    with pytest.raises(DeadlineExceededError, match="1 of 5 records were read"):
        arrivals.wait_for_all(0)
