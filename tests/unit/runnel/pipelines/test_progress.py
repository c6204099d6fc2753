"""Batches of a run, added up."""

from __future__ import annotations

from runnel.pipelines.progress import Batch, Progress


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    progress = Progress(100.0)
    assert progress.rate(100.0) == 0
    progress.take(Batch(0, 50, 5, 9, 1), 102.0)
    assert progress.rate(102.0) == 25
    progress.take(Batch(1, 70, None, 0, 1), 109.0)
    assert progress.rate(110.0) == 12
    assert progress.rate(113.0) == 7
    assert progress.rate(130.0) == 0


def test_what_the_sc_is_told() -> None:
    progress = Progress(0.0)
    before = progress.numbers(1.0, 2, "boom")
    assert (before.last_batch, before.lag, before.restarts, before.last_error) == (
        None,
        None,
        2,
        "boom",
    )
    progress.take(Batch(3, 10, 4, 8, 1), 1.0)
    progress.take(Batch(4, 20, 6, 2, 1), 2.0)
    found = progress.numbers(2.0, 0, None)
    assert (found.last_batch, found.rows_in, found.rows_out, found.lag) == (4, 20, 6, 2)
    assert (found.total_rows_in, found.total_rows_out, found.rows_per_second) == (30, 10, 15)
