"""What follows from a seed, and that it leaves the cluster a chance."""

from __future__ import annotations

import pytest

from tests.chaos.whole.plan import (
    BRIEF_S,
    CALM_S,
    CLIENTS,
    HOSTS,
    JUMPS_S,
    ORDERS,
    TOO_MANY_S,
    Fault,
    Kind,
    cut_links,
    storms,
    touched,
    trouble_s,
)
from tests.chaos.whole.progress import PATIENCE_S

SEEDS = range(12)
A, B, C = "host-1", "host-2", "host-3"


def test_given_the_same_seed_then_the_plan_is_the_same() -> None:
    assert storms(7, 5) == storms(7, 5)
    assert storms(7, 5) != storms(8, 5)


def test_given_more_minutes_then_the_plan_only_goes_on() -> None:
    short, long = storms(7, 2), storms(7, 15)
    assert long[: len(short)] == short
    assert len(long) > len(short)


@pytest.mark.parametrize("minutes", [0.1, 2, 15])
def test_a_plan_fits_into_its_minutes_unless_they_are_too_few_for_one_storm(minutes: float) -> None:
    for seed in SEEDS:
        planned = storms(seed, minutes)
        took_s = sum(storm.length_s + CALM_S for storm in planned)
        assert took_s <= minutes * 60 or len(planned) == 1
        assert took_s > minutes * 60 - 40


@pytest.mark.parametrize("seed", SEEDS)
def test_given_any_seed_then_no_two_faults_disturb_each_other(seed: int) -> None:
    for storm in storms(seed, 5):
        for number, fault in enumerate(storm.faults):
            assert 0 <= fault.begin_s <= fault.end_s <= storm.length_s + 0.1, fault
            for other in storm.faults[number + 1 :]:
                apart = fault.begin_s >= other.end_s or other.begin_s >= fault.end_s
                assert apart or not touched(fault) & touched(other), (fault, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_given_any_seed_then_two_hosts_have_trouble_at_once_but_not_for_long(seed: int) -> None:
    planned = storms(seed, 5)
    assert any(trouble_s(storm.faults, 2) > 0 for storm in planned)
    assert all(trouble_s(storm.faults, 2) <= TOO_MANY_S for storm in planned)


def test_given_a_quarter_of_an_hour_then_all_kinds_of_faults_come() -> None:
    for seed in SEEDS:
        faults = [fault for storm in storms(seed, 15) for fault in storm.faults]
        assert {fault.kind for fault in faults} == set(Kind)
        killed = {fault.daemon for fault in faults if fault.kind is Kind.KILL}
        assert killed == {"spu", "sc", "etcd"}
        wrong = {fault.daemon for fault in faults if fault.kind is Kind.CLOCK}
        assert wrong == {"spu", "sc"}
        long = [f for f in faults if f.end_s - f.begin_s > BRIEF_S[1] and f.kind not in ORDERS]
        assert len(long) >= len(storms(seed, 15))


def test_a_calm_is_longer_than_progress_may_take() -> None:
    assert CALM_S > PATIENCE_S


@pytest.mark.parametrize(
    ("faults", "longest_s"),
    [
        ([], 0.0),
        ([Fault(Kind.KILL, 0, 9, A, "spu")], 0.0),
        ([Fault(Kind.KILL, 0, 9, A, "spu"), Fault(Kind.FREEZE, 1, 4, A, "sc")], 0.0),
        ([Fault(Kind.KILL, 0, 9, A, "spu"), Fault(Kind.FREEZE, 1, 4, B, "sc")], 3.0),
        ([Fault(Kind.KILL, 0, 9, A, "spu"), Fault(Kind.DRAIN, 1, 4, B)], 0.0),
        ([Fault(Kind.LOSE_SPUS, 2, 4)], 2.0),
        (
            [
                Fault(Kind.KILL, 0, 9, A, "spu"),
                Fault(Kind.FREEZE, 1, 4, B, "sc"),
                Fault(Kind.ISOLATE, 3, 6, C),
            ],
            5.0,
        ),
        (
            [
                Fault(Kind.KILL, 0, 9, A, "spu"),
                Fault(Kind.FREEZE, 1, 2, B, "sc"),
                Fault(Kind.ISOLATE, 3, 6, C),
            ],
            3.0,
        ),
    ],
)
def test_how_long_two_hosts_have_trouble(faults: list[Fault], longest_s: float) -> None:
    assert trouble_s(faults, 2) == longest_s


def test_given_a_quarter_of_an_hour_then_clocks_jump_forth_and_back() -> None:
    faults = [fault for seed in SEEDS for storm in storms(seed, 15) for fault in storm.faults]
    assert {fault.peer for fault in faults if fault.kind is Kind.CLOCK} == set(JUMPS_S)
    wrong = Fault(Kind.CLOCK, 0, 1, A, "sc", "-5")
    assert str(wrong) == "clock jump sc@host-1 -5"
    # It may be killed meanwhile.
    assert not touched(wrong) & touched(Fault(Kind.KILL, 0, 1, A, "sc"))
    assert touched(wrong) & touched(Fault(Kind.CLOCK, 0, 1, A, "sc", "+5"))


@pytest.mark.parametrize("seed", SEEDS)
def test_given_any_seed_then_no_clock_jumps_of_a_daemon_that_is_killed_already(seed: int) -> None:
    for storm in storms(seed, 15):
        for clock in [fault for fault in storm.faults if fault.kind is Kind.CLOCK]:
            down = [
                fault
                for fault in storm.faults
                if f"{clock.daemon}@{clock.host}" in touched(fault)
                and fault.kind is not Kind.FREEZE
                and fault.begin_s <= clock.begin_s <= fault.end_s
            ]
            assert not down, (clock, down)


def test_which_directions_of_which_links_are_cut() -> None:
    assert cut_links(Fault(Kind.CUT_ONE_WAY, 0, 1, A, peer=B)) == [(A, B)]
    assert set(cut_links(Fault(Kind.CUT, 0, 1, A, peer=CLIENTS))) == {(A, CLIENTS), (CLIENTS, A)}
    alone = set(cut_links(Fault(Kind.ISOLATE, 0, 1, A)))
    others = {*HOSTS, CLIENTS} - {A}
    assert alone == {(A, other) for other in others} | {(other, A) for other in others}
    peerless = set(cut_links(Fault(Kind.PEERLESS, 0, 1, A)))
    assert peerless == alone - {(A, CLIENTS), (CLIENTS, A)}
