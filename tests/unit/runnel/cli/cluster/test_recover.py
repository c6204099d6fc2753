"""``cluster recover``: which SPU is believed, and that nothing happens without a confirmation."""

from __future__ import annotations

import pytest

from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_sc import WHY_NO_OFFICE, FakeSc


def turned_away(*ids: int) -> list[dict[str, object]]:
    return [{"spu": i, "why": f"SPU {i} has seen more", "incarnation": 5} for i in ids]


def test_given_one_spu_then_it_is_believed(command: CommandLine, sc: FakeSc) -> None:
    sc.divergent = turned_away(3)
    done = command("cluster", "recover", "--yes")
    assert (done.code, sc.recovered) == (0, [3])
    assert "recovers in incarnation 1" in done.out


def test_given_no_terminal_and_no_yes_then_refused(command: CommandLine, sc: FakeSc) -> None:
    sc.divergent = turned_away(3)
    done = command("cluster", "recover")
    assert (done.code, sc.recovered) == (2, [])
    assert "--yes" in done.err


def test_given_several_spus_then_one_must_be_named(command: CommandLine, sc: FakeSc) -> None:
    sc.divergent = turned_away(3, 4)
    done = command("cluster", "recover", "--yes")
    assert (done.code, sc.recovered) == (2, [])
    assert "3, 4" in done.err
    assert command("cluster", "recover", "--yes", "--spu", "4").code == 0
    assert sc.recovered == [4]


def test_given_nothing_to_recover_from_then_a_conflict(command: CommandLine, sc: FakeSc) -> None:
    assert command("cluster", "recover", "--yes").code == 4
    sc.divergent = turned_away(3)
    assert command("cluster", "recover", "--yes", "--spu", "9").code == 4
    assert sc.recovered == []


def test_given_no_sc_leads_then_it_does_not_say_that_there_is_nothing(
    command: CommandLine, sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.admin.calls.NOT_READY_S", 0.0)
    sc.leads = False
    done = command("cluster", "recover", "--yes")
    assert (done.code, sc.recovered) == (5, [])
    assert WHY_NO_OFFICE in done.err
