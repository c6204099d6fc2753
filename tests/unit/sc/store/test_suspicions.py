"""Suspicions: how a session ended, the SC's own lag, and what an SPU did before decide."""

from __future__ import annotations

import pytest

from sc.store.suspicions import RECONNECT_MS, RETURN_MS, TICK_MS, Suspicions
from sc.store.view import Liveness
from schemas.control.session_end import SessionEnd
from tests.unit.sc.builders import session_of, spu_of, view_of

NOW = 100_000


def connected(*spu_ids: int) -> Suspicions:
    """These SPUs have sessions; the SC's clock is punctual until `NOW`."""
    found = Suspicions()
    for spu_id in spu_ids:
        found.opened(spu_id, NOW - 50_000)
    found.tick(NOW - TICK_MS)
    found.tick(NOW)
    return found


@pytest.mark.parametrize(
    ("end", "quiet", "wait_ms"),
    [
        pytest.param(SessionEnd.LOST, 0, 0, id="given-process-gone-then-gone-at-once"),
        pytest.param(SessionEnd.LOST, 2, 0, id="given-process-gone-and-quiet-others-then-gone"),
        pytest.param(SessionEnd.GOODBYE, 0, 0, id="given-goodbye-then-gone-at-once"),
        pytest.param(SessionEnd.SILENT, 0, 0, id="given-silent-alone-then-gone-at-once"),
        pytest.param(SessionEnd.SILENT, 1, 1_500, id="given-two-of-three-silent-then-suspect"),
        pytest.param(SessionEnd.SILENT, 2, 1_500, id="given-all-silent-then-suspect"),
        pytest.param(SessionEnd.CLOSED, 0, 1_500, id="given-closed-then-suspect"),
    ],
)
def test_ended(end: SessionEnd, quiet: int, wait_ms: int) -> None:
    found = connected(1, 2, 3)
    found.ended(1, end, NOW, quiet)
    assert found.until_ms(1) == (NOW + wait_ms if wait_ms else 0)
    assert found.until_ms(2) == 0
    assert found.changed_ms == NOW


@pytest.mark.parametrize(
    ("spus", "silent"),
    [
        pytest.param(2, 2, id="given-two-of-two"),
        pytest.param(3, 3, id="given-three-of-three"),
        pytest.param(4, 3, id="given-three-of-four"),
        pytest.param(5, 3, id="given-three-of-five"),
        pytest.param(9, 5, id="given-five-of-nine"),
    ],
)
def test_given_most_silent_together_then_each_of_them_is_suspect(spus: int, silent: int) -> None:
    found = connected(*range(spus))
    for spu_id in range(silent):
        found.ended(spu_id, SessionEnd.SILENT, NOW + 80 * spu_id, silent - 1 - spu_id)
    assert all(found.until_ms(i) == NOW + 80 * i + RECONNECT_MS for i in range(silent))
    assert not any(found.is_flapping(i, NOW + 800) for i in range(silent))


@pytest.mark.parametrize(("spus", "silent"), [(2, 1), (4, 2), (9, 4)])
def test_given_no_more_than_half_silent_then_all_gone(spus: int, silent: int) -> None:
    found = connected(*range(spus))
    for spu_id in range(silent):
        found.ended(spu_id, SessionEnd.SILENT, NOW, silent - 1 - spu_id)
    assert all(found.until_ms(i) == 0 for i in range(silent))


def test_given_silence_long_after_that_of_others_then_gone() -> None:
    found = connected(1, 2, 3, 4)
    found.ended(1, SessionEnd.SILENT, NOW, 2)
    late = NOW + 1_001
    found.tick(NOW + 500)
    found.tick(NOW + 1_000)
    found.ended(4, SessionEnd.SILENT, late, 0)
    assert found.until_ms(4) == 0


@pytest.mark.parametrize(
    ("end", "suspect"),
    [
        pytest.param(SessionEnd.LOST, True, id="given-process-gone-then-suspect"),
        pytest.param(SessionEnd.SILENT, True, id="given-silent-then-suspect"),
        pytest.param(SessionEnd.CLOSED, True, id="given-closed-then-suspect"),
        pytest.param(SessionEnd.GOODBYE, False, id="given-goodbye-then-gone"),
    ],
)
@pytest.mark.parametrize("after_ms", [0, 500])
def test_given_the_sc_lagged_then_it_doubts_itself(
    end: SessionEnd, suspect: bool, after_ms: int
) -> None:
    found, resumed = connected(1, 2), NOW + 800
    if after_ms:
        found.tick(resumed)
    found.ended(1, end, resumed + after_ms)
    assert found.until_ms(1) == (resumed + after_ms + RECONNECT_MS if suspect else 0)
    assert not found.is_flapping(1, resumed + after_ms)


@pytest.mark.parametrize(
    ("late_ms", "after_ms"),
    [
        pytest.param(500, 0, id="given-late-by-two-heartbeats-then-no-lag"),
        pytest.param(3_000, 501, id="given-lag-over-for-a-while-then-as-ever"),
    ],
)
def test_given_no_lag_then_a_lost_process_is_gone_at_once(late_ms: int, after_ms: int) -> None:
    found = connected(1, 2)
    found.tick(NOW + TICK_MS + late_ms)
    found.ended(1, SessionEnd.LOST, NOW + TICK_MS + late_ms + after_ms)
    assert found.until_ms(1) == 0


def test_given_a_lag_then_suspicions_that_had_not_ended_start_again() -> None:
    found = connected(1, 2, 3)
    found.ended(1, SessionEnd.CLOSED, NOW)
    for tick in range(1, 15):
        found.tick(NOW + TICK_MS * tick)
    assert found.until_ms(1) == NOW + 1_500
    assert found.observe(NOW + 10_000)
    assert found.until_ms(1) == NOW + 11_500
    found.tick(NOW + 10_010)
    assert not found.observe(NOW + 10_100)
    assert found.until_ms(1) == NOW + 11_510


def test_given_a_lag_then_suspicions_that_had_ended_before_stay_ended() -> None:
    found = connected(1, 2)
    found.ended(1, SessionEnd.CLOSED, NOW)
    for tick in range(1, 17):
        found.tick(NOW + TICK_MS * tick)
    found.tick(NOW + 10_000)
    assert found.until_ms(1) == NOW + 1_500


def test_given_no_tick_yet_then_no_lag() -> None:
    found = Suspicions()
    found.opened(1, NOW)
    assert not found.observe(NOW + 60_000)
    found.ended(1, SessionEnd.LOST, NOW + 60_000)
    assert found.until_ms(1) == 0


@pytest.mark.parametrize(
    ("ends", "wait_ms", "flapping"),
    [
        pytest.param([(0, SessionEnd.CLOSED)], 1_500, False, id="given-once-then-once"),
        pytest.param(
            [(0, SessionEnd.CLOSED), (10_000, SessionEnd.CLOSED)],
            3_000,
            True,
            id="given-twice-then-twice-as-long",
        ),
        pytest.param(
            [(0, SessionEnd.LOST), (10_000, SessionEnd.SILENT), (20_000, SessionEnd.CLOSED)],
            4_500,
            True,
            id="given-three-of-any-kind-then-three-times",
        ),
        pytest.param(
            [(0, SessionEnd.CLOSED), (60_000, SessionEnd.CLOSED)],
            1_500,
            False,
            id="given-a-minute-between-then-once",
        ),
        pytest.param(
            [(0, SessionEnd.GOODBYE), (10_000, SessionEnd.CLOSED)],
            1_500,
            False,
            id="given-goodbye-before-then-once",
        ),
        pytest.param(
            [(0, SessionEnd.LOST), (10_000, SessionEnd.LOST)],
            0,
            True,
            id="given-process-gone-twice-then-gone-at-once-and-flapping",
        ),
        pytest.param(
            [(1_000 * i, SessionEnd.CLOSED) for i in range(30)],
            15_000,
            True,
            id="given-very-many-then-ten-times",
        ),
    ],
)
def test_losses_of_one_spu(
    ends: list[tuple[int, SessionEnd]], wait_ms: int, flapping: bool
) -> None:
    found, at = Suspicions(), NOW
    found.opened(2, NOW)
    for after_ms, end in ends:
        at = NOW + after_ms
        found.opened(1, at)
        found.ended(1, end, at)
    assert max(0, found.until_ms(1) - at) == wait_ms
    assert found.is_flapping(1, at) is flapping
    assert not found.is_flapping(1, at + 60_000)
    assert not found.is_flapping(2, at)


def test_given_it_connects_again_then_not_suspect() -> None:
    found = connected(1, 2)
    found.ended(1, SessionEnd.CLOSED, NOW)
    assert found.opened(1, NOW + 10) == frozenset()
    assert found.until_ms(1) == 0


def test_given_all_lost_touch_then_the_first_return_gives_the_others_their_time() -> None:
    found = connected(1, 2, 3)
    for quiet, spu_id in ((2, 1), (1, 2), (0, 3)):
        found.ended(spu_id, SessionEnd.SILENT, NOW, quiet)
    back = NOW + 20_000
    assert found.opened(2, back) == {1, 3}
    assert (found.until_ms(1), found.until_ms(3)) == (back + RETURN_MS, back + RETURN_MS)
    assert found.opened(1, back + 100) == frozenset()
    assert found.until_ms(3) == back + RETURN_MS


def test_given_some_stayed_then_a_return_gives_nobody_time() -> None:
    found = connected(1, 2, 3)
    found.ended(1, SessionEnd.CLOSED, NOW)
    found.ended(2, SessionEnd.CLOSED, NOW)
    assert found.opened(2, NOW + 100) == frozenset()
    assert found.until_ms(1) == NOW + 1_500
    assert found.opened(2, NOW + 20_000) == frozenset()
    assert found.until_ms(1) == 0


@pytest.mark.parametrize(
    ("end", "gone"),
    [
        pytest.param(SessionEnd.GOODBYE, True, id="given-goodbye"),
        pytest.param(SessionEnd.LOST, True, id="given-a-process-that-ended"),
        pytest.param(SessionEnd.CLOSED, False, id="given-an-sc-that-was-silent"),
    ],
)
def test_in_the_grace_of_a_new_sc_an_spu_that_had_a_session_is_judged_by_its_end(
    end: SessionEnd, gone: bool
) -> None:
    """A rolling restart ends SPUs right after their SC: the others need not wait for its grace."""
    view = view_of(spu_of(1), spu_of(2), sessions=[session_of(2)], grace_until_ms=60_000)
    suspicions = view.suspicions
    assert view.liveness(1, 0) is Liveness.UNKNOWN
    suspicions.opened(1, 0)
    suspicions.opened(2, 0)
    suspicions.ended(1, end, 10)
    after_ms = 10 + RECONNECT_MS
    assert (view.liveness(1, after_ms) is Liveness.OFFLINE) == gone
    suspicions.opened(1, after_ms)
    assert not suspicions.is_gone(1)


def fallen(*silent_at: tuple[int, int]) -> Suspicions:
    """Of six SPUs that were connected, these fell silent so long after `NOW`, each alone."""
    found = connected(1, 2, 3, 4, 5, 6)
    for spu_id, after_ms in silent_at:
        found.tick(NOW + after_ms)
        found.ended(spu_id, SessionEnd.SILENT, NOW + after_ms)
    return found


@pytest.mark.parametrize(
    ("silent_at", "revived"),
    [
        pytest.param(((1, 0), (2, 80)), {2}, id="given-two-together-then-the-other"),
        pytest.param(((1, 0), (2, 500), (3, 900)), {2, 3}, id="given-three-then-both-others"),
        pytest.param(((2, 0), (1, 1_000)), {2}, id="given-the-later-one-returns-then-the-other"),
        pytest.param(((1, 0), (2, 1_001)), set(), id="given-not-together-then-none"),
    ],
)
def test_given_one_of_a_site_returns_then_its_fellows_have_time(
    silent_at: tuple[tuple[int, int], ...], revived: set[int]
) -> None:
    found, back = fallen(*silent_at), NOW + 60_000
    assert found.opened(1, back) == revived
    for spu_id, _ in silent_at:
        assert found.until_ms(spu_id) == (back + RETURN_MS if spu_id in revived else 0)


def test_given_a_fellow_that_stays_away_then_it_is_suspect_once() -> None:
    found = fallen((1, 0), (2, 0))
    found.opened(1, NOW + 10_000)
    found.ended(1, SessionEnd.SILENT, NOW + 20_000)
    assert found.opened(1, NOW + 30_000) == frozenset()
    assert found.until_ms(2) < NOW + 30_000


def test_given_a_fellow_whose_process_ended_then_nobody_waits_for_it() -> None:
    found = fallen((1, 0))
    found.ended(2, SessionEnd.LOST, NOW + 10)
    assert found.opened(1, NOW + 10_000) == frozenset()
