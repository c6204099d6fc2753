"""How far named consumers are behind, from what they committed and what others know of the ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runnel.positions.admin import NamedConsumer, PartitionProgress
from runnel.positions.lag import Ends, partition_lags

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def named(*partitions: PartitionProgress, topic_gone: bool = False) -> NamedConsumer:
    return NamedConsumer("billing", "orders", True, "ann", NOW, topic_gone, partitions)


@pytest.mark.parametrize(
    ("committed", "end", "ends", "expected"),
    [
        pytest.param(3, 10, None, (10, 7), id="given-bounds-then-their-difference"),
        pytest.param(3, None, {("orders", 1): 12}, (12, 9), id="given-ends-then-theirs"),
        pytest.param(3, 10, {("orders", 1): 12}, (12, 9), id="given-both-then-that-of-the-ends"),
        pytest.param(3, 10, {("orders", 0): 12}, (10, 7), id="given-ends-of-others-then-bounds"),
        pytest.param(14, None, {("orders", 1): 12}, (12, 0), id="given-an-old-end-then-none"),
        pytest.param(None, 10, None, (10, None), id="given-no-commit-then-unknown"),
        pytest.param(3, None, {}, (None, None), id="given-no-end-then-unknown"),
    ],
)
def test_lag(
    committed: int | None, end: int | None, ends: Ends | None, expected: tuple[int | None, ...]
) -> None:
    (found,) = partition_lags([named(PartitionProgress(1, committed, None, 0, end))], NOW, ends)
    assert (found.consumer, found.topic, found.partition) == ("billing", "orders", 1)
    assert (found.end, found.lag_records) == expected
    assert (found.committed, found.open, found.commit_age_s) == (committed, True, None)


@pytest.mark.parametrize(("passed_s", "age_s"), [(90, 90.0), (-5, 0.0)])
def test_age_of_a_commit_is_never_negative_though_clocks_differ(
    passed_s: int, age_s: float
) -> None:
    progress = PartitionProgress(0, 1, NOW - timedelta(seconds=passed_s), 0, 1)
    (found,) = partition_lags([named(progress)], NOW)
    assert found.commit_age_s == age_s


def test_given_a_topic_that_is_gone_then_nothing() -> None:
    assert partition_lags([named(PartitionProgress(0, 1, None, 0, 5), topic_gone=True)], NOW) == ()
