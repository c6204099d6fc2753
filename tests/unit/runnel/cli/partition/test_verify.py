"""``partition verify``: exit codes, and what is printed of replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.partition import verify
from runnel.cli.partition.verify import exit_code, finding_line, print_results, verify_offline
from runnel.cli.render import TableOutput
from runnel.partition.verify import Finding, PartitionResult, ReplicaResult, Verdict
from schemas.wire.log_requests import VerifyResponse
from tests.unit.runnel.cli.conftest import CommandLine

CHECKED = VerifyResponse(0, 9, 10, 10, 0, 2_000, 2_000, 5, 9, 1, 1, b"a" * 16, 1)
DAMAGE = Finding("f.log", 7, "client CRC32C is 0x1, the header says 0x2", "damage", False)
NOTE = Finding("f.index", 0, "is missing; built again", "note", True)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        pytest.param([], 0, id="given-nothing-then-0"),
        pytest.param([Verdict.OK], 0, id="given-all-well-then-0"),
        pytest.param([Verdict.OK, Verdict.UNCHECKED], 5, id="given-one-away-then-5"),
        pytest.param([Verdict.UNCHECKED, Verdict.DAMAGED], 1, id="given-damage-then-1"),
        pytest.param([Verdict.DIFFERS], 1, id="given-a-difference-then-1"),
    ],
)
def test_exit_codes(verdicts: list[Verdict], code: int) -> None:
    assert exit_code(verdicts) == code


def test_findings_say_where_and_whether_they_are_damage() -> None:
    assert finding_line(DAMAGE).startswith("f.log at byte 7: client CRC32C")
    assert finding_line(NOTE) == "f.index: is missing; built again (no damage)"


def test_a_table_a_line_for_each_problem_and_who_is_alike(
    capsys: pytest.CaptureFixture[str],
) -> None:
    early = replace(CHECKED, next_offset=3)
    replicas = (
        ReplicaResult(0, True, Verdict.OK, None, CHECKED, (NOTE,)),
        ReplicaResult(1, False, Verdict.OK, None, CHECKED),
        ReplicaResult(2, False, Verdict.DAMAGED, None, early, (DAMAGE,)),
        ReplicaResult(3, False, Verdict.UNCHECKED, "SPU 3 is offline"),
    )
    print_results([PartitionResult("t-0", 0, 10, replicas, (0, 1))])
    head, leader, _one, damaged, away, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["PARTITION", "SPU", "RESULT"]
    assert leader.split() == [
        *("t-0", "0", "(leader)", "ok", "1", "1", "5", "9", "2,000", "0-9", "616161616161"),
    ]
    assert damaged.split()[-2:] == ["0-2", "-"]
    assert away.split() == ["t-0", "3", "unchecked", *"-------"]
    assert lines == [
        "t-0 on SPU 0: f.index: is missing; built again (no damage)",
        f"t-0 on SPU 2: {finding_line(DAMAGE)}",
        "t-0 on SPU 2: it takes no part until it is rebuilt from its leader",
        "t-0 on SPU 3: SPU 3 is offline",
        "t-0: identical from offset 0 to 9 on SPUs 0, 1",
    ]


@pytest.mark.parametrize(
    ("compared_upto", "alike"), [pytest.param(0, (0, 1), id="no-range"), pytest.param(9, (0,))]
)
def test_given_nothing_to_compare_then_nothing_is_said(
    capsys: pytest.CaptureFixture[str], compared_upto: int, alike: tuple[int, ...]
) -> None:
    replicas = (ReplicaResult(0, True, Verdict.OK, None, CHECKED),)
    print_results([PartitionResult("t-0", 0, compared_upto, replicas, alike)])
    assert "alike" not in capsys.readouterr().out


USAGE = {
    "given-no-name-then-usage": (["verify"], "name partitions or topics"),
    "given-a-name-and-all-then-usage": (["verify", "t-0", "--all"], "name partitions or topics"),
    "given-a-name-and-a-directory-then-usage": (["verify", "t-0", "--dir", "."], "name partitions"),
    "given-another-output-then-usage": (
        ["verify", "t", "-o", "yaml"],
        "not one of 'table', 'json'",
    ),
    "given-nothing-to-dump-then-usage": (["dump"], "name a partition"),
    "given-two-starts-then-usage": (["dump", "t-0", "--offset", "1", "--tail", "2"], "give one of"),
    "given-no-time-then-usage": (["dump", "t-0", "--at", "noon"], "is not a time"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_wrong_usage(command: CommandLine, arguments: list[str], said: str) -> None:
    outcome = command("partition", *arguments)
    assert outcome.code == 2
    assert said in outcome.err


OFFLINE: dict[str, Any] = {
    "directory": "/d/partitions/u",
    "meta": {"name": "t-0"},
    "logStart": 0,
    "end": 4,
    "segments": 1,
    "indexes": 1,
    "batches": 2,
    "records": 3,
    "checkedBytes": 200,
    "problems": [],
}


def test_a_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problem = {"file": "f.log", "position": 9, "reason": "r", "severity": "damage"}
    damaged = OFFLINE | {"meta": None, "problems": [problem]}
    monkeypatch.setattr(verify, "verify_logs", lambda *_: [OFFLINE, damaged])
    assert verify_offline(tmp_path, TableOutput.TABLE) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["t-0", "ok", "1", "1", "2", "3", "200", "0-3"]
    assert lines[2].split()[:2] == ["u", "damaged"]
    assert lines[3] == "/d/partitions/u/f.log at byte 9: r"
