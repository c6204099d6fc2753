"""``cluster logs``: lines of all daemons by time, and the names of those that do not answer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import runnel
from runnel.cli.cluster import logs as module
from runnel.cli.cluster.local import local_cluster
from schemas.daemon.log_ring import LogRing
from schemas.objects.metadata import Object
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeSpu


def log(ring: LogRing | None, second: int, process: str, **more: Any) -> None:
    line = {
        "timestamp": f"2026-01-31T12:00:{second:02}.5Z",
        "level": "info",
        "event": f"event {second}",
        "process": process,
        "cause": "-",
    } | more
    assert ring is not None
    ring.append(line, json.dumps(line))


def spu_at(name: str, spu_id: int, port: int) -> Object:
    endpoint = {"ingress": [{"hostname": "127.0.0.1"}], "port": port}
    return runnel.Spu(name, spu_id, public_endpoint=endpoint)


@pytest.fixture
def daemons(sc: FakeSc, spu: FakeSpu) -> tuple[FakeSc, FakeSpu]:
    """The fake SPU has the id 1."""
    sc._store(spu_at("edge", 1, spu.port))
    log(sc.log_ring, 1, "sc", cause="api-1")
    log(spu.log_ring, 2, "spu-1", cause="api-1", level="warning")
    log(sc.log_ring, 3, "sc")
    log(spu.log_ring, 4, "spu-1", level="error")
    return sc, spu


def seconds(out: str) -> list[int]:
    return [int(line.split("event ")[1].split()[0]) for line in out.splitlines()]


@pytest.mark.usefixtures("daemons")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param([], [1, 2, 3, 4], id="given-nothing-then-all-by-time"),
        pytest.param(["--since", "2026-01-31T12:00:03"], [3, 4], id="given-a-time"),
        pytest.param(["--since", "10m"], [], id="given-a-duration"),
        pytest.param(["--level", "warning"], [2, 4], id="given-a-level"),
        pytest.param(["--cause", "api-1"], [1, 2], id="given-a-cause"),
        pytest.param(["--spu", "edge"], [2, 4], id="given-the-name-of-an-spu"),
        pytest.param(["--spu", "1"], [2, 4], id="given-the-id-of-an-spu"),
        pytest.param(["-n", "1"], [4], id="given-a-number-then-the-last-of-all"),
        pytest.param(["-n", "0"], [], id="given-0-then-none"),
    ],
)
def test_lines(options: list[str], expected: list[int], command: CommandLine) -> None:
    done = command("cluster", "logs", *options)
    assert (done.code, done.err) == (0, "")
    assert seconds(done.out) == expected


@pytest.mark.usefixtures("daemons")
def test_a_line_begins_with_its_time_daemon_and_level(command: CommandLine) -> None:
    first = command("cluster", "logs").out.splitlines()[1]
    assert first == "2026-01-31T12:00:02.5Z spu-1 warning  event 2 cause=api-1"


@pytest.mark.usefixtures("daemons")
def test_given_json_then_an_object_a_line(command: CommandLine) -> None:
    found = [json.loads(line) for line in command("cluster", "logs", "-o", "json").out.splitlines()]
    assert [line["process"] for line in found] == ["sc", "spu-1", "sc", "spu-1"]


def test_given_an_spu_that_does_not_answer_then_named_and_5(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    daemons[0]._store(spu_at("far", 2, 1))
    done = command("cluster", "logs")
    assert done.code == 5
    assert seconds(done.out) == [1, 2, 3, 4]
    assert "warning: spu-2 does not answer: SPU 2 is" in done.err


def test_given_daemons_of_an_earlier_version_then_named_and_5(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    sc, spu = daemons
    sc.log_ring = spu.log_ring = None
    done = command("cluster", "logs")
    assert (done.code, done.out) == (5, "")
    assert "sc does not answer: the SC is of an earlier version" in done.err
    assert "spu-1 does not answer: SPU 1 is of an earlier version" in done.err


def test_given_a_ring_that_does_not_reach_back_then_said_to_those_who_ask_for_all(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    sc, _spu = daemons
    sc.log_ring = LogRing(3, max_lines=1)
    log(sc.log_ring, 5, "sc", cause="api-1")
    log(sc.log_ring, 6, "sc", cause="api-1")
    assert not command("cluster", "logs").err
    said = command("cluster", "logs", "--cause", "api-1").err
    assert "sc keeps no lines from before 2026-01-31T12:00:06.5" in said
    assert not command("cluster", "logs", "--since", "2026-01-31T12:00:07").err


def test_given_follow_then_new_lines_once_each(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sc, spu = daemons
    rounds = iter(range(5, 8))

    def sleep(_seconds: float) -> None:
        second = next(rounds, None)
        if second is None:
            raise KeyboardInterrupt
        log(spu.log_ring if second % 2 else sc.log_ring, second, "any")

    # Of this module only: other threads of this process sleep, too.
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep))
    done = command("cluster", "logs", "-f", "-n", "1")
    assert done.code == 130
    assert seconds(done.out) == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--since", "yesterday"], 2, "--since: 'yesterday' is neither a duration nor a time"),
        (["--level", "loud"], 2, "--level"),
        (["--cause", ""], 2, "--cause: a causality id has 1 to 256 characters"),
        (["--spu", "nine"], 3, "there is no SPU 'nine'; SPUs: edge"),
        (["spu-0", "--level", "error"], 2, "DAEMON and --data-dir print files as they are"),
        (["spu-0"], 3, "there is no log of 'spu-0'; logs: none: the cluster was never started"),
    ],
)
@pytest.mark.usefixtures("daemons")
def test_mistakes(arguments: list[str], code: int, message: str, command: CommandLine) -> None:
    done = command("cluster", "logs", *arguments)
    assert done.code == code
    assert message in done.err


def test_given_no_sc_and_no_files_then_5(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_SC", "127.0.0.1:1")
    done = command("cluster", "logs")
    assert done.code == 5
    assert "no SC answers at 127.0.0.1:1" in done.err


def test_given_a_stopped_local_cluster_then_the_ends_of_its_files_and_5(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNNEL_SC")
    monkeypatch.setattr(module, "default_sc", lambda: "127.0.0.1:1")
    files = local_cluster(None).data_dir / "logs"
    files.mkdir(parents=True)
    (files / "sc-0.log").write_text("one\ntwo\n")
    done = command("cluster", "logs", "-n", "1")
    assert (done.code, done.out) == (5, "two\n")
    assert "no SC answers" in done.err
    assert "these are the log files of the cluster in" in done.err
