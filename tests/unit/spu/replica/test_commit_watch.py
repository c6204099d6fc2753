"""When a leader counts as stalled, and for how long, tick by tick."""

from __future__ import annotations

import itertools

import pytest

from spu.replica.commit_watch import COMMITS_MS, STALLED_MS, CommitWatch

Tick = tuple[int, int, int]


@pytest.mark.parametrize(
    ("ticks", "stalled"),
    [
        pytest.param([(0, 4, 10), (60_000, 4, 10)], True, id="nothing-committed-for-long"),
        pytest.param([(0, 9, 10), (60_000, 9, 10)], False, id="nothing-to-commit"),
        pytest.param([(0, 4, 10), (1_000, 4, 10), (STALLED_MS, 4, 10)], False, id="not-yet"),
        pytest.param(
            [(0, 4, 10), (1_000, 4, 10), (1_000 + STALLED_MS, 4, 10)], True, id="long-enough"
        ),
        pytest.param(
            [(0, 4, 10), (1_000, 4, 10), (5_000, 5, 11), (6_000, 5, 11), (10_000, 5, 11)],
            False,
            id="one-commit-begins-it-anew",
        ),
    ],
)
def test_a_leader_is_stalled_if_records_wait_for_long(ticks: list[Tick], stalled: bool) -> None:
    watch = CommitWatch()
    if len(ticks) == 2:
        ticks = [ticks[0], (1_000, *ticks[0][1:]), ticks[1]]
    for now_ms, lac, leo in ticks:
        watch.observe(lac, leo, now_ms)
    assert watch.stalled == stalled


def test_given_a_commit_now_and_then_only_the_stall_does_not_come_and_go() -> None:
    watch, seen = CommitWatch(), list[bool]()
    for second in range(60):
        # It commits once in ten seconds.
        watch.observe(second // 10, 100, second * 1_000)
        seen.append(watch.stalled)
    assert sum(now != before for before, now in itertools.pairwise(seen)) == 1
    assert seen[-1]


def test_given_everything_is_committed_then_the_stall_ends_after_a_moment() -> None:
    watch = CommitWatch()
    for second in range(10):
        watch.observe(4, 10, second * 1_000)
    assert watch.stalled
    watch.observe(9, 10, 10_000)
    assert watch.stalled
    watch.observe(9, 10, 10_000 + COMMITS_MS)
    assert not watch.stalled
