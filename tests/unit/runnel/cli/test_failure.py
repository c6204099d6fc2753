"""What the command makes of signals, of readers that went away and of full disks."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from runnel.admin.states import find_resolution
from runnel.cli import failure, interrupts, readiness
from schemas.control.assignments import TopicAssignment
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic


class Output:
    """A standard output whose reader can go away."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        self.stream = io.TextIOWrapper(os.fdopen(writer, "wb"))

    def leave(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    def read(self) -> bytes:
        os.set_blocking(self._reader, False)
        return os.read(self._reader, 1_000)


@pytest.fixture
def output() -> Iterator[Output]:
    made = Output()
    yield made
    made.leave()
    made.stream.close()


def app_of(body: Callable[[], object]) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)

    @app.command()
    def command() -> None:
        body()

    return app


def run(
    monkeypatch: pytest.MonkeyPatch, body: Callable[[], object], output: Output | None = None
) -> int:
    monkeypatch.setattr("sys.argv", ["runnel"])
    if output is not None:
        monkeypatch.setattr("sys.stdout", output.stream)
    return failure.run(app_of(body))


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> None:
        raise error

    return body


def test_given_output_then_it_is_written_out_when_run_ends(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, lambda: print("x"), output) == 0
    assert output.read() == b"x\n"


def test_given_reader_gone_before_the_flush_then_no_failure(
    output: Output, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output.leave()
    assert run(monkeypatch, lambda: print("x"), output) == 0
    assert capfd.readouterr().err == ""


def test_given_reader_gone_within_the_command_then_no_failure(
    output: Output, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    output.leave()
    assert run(monkeypatch, lambda: print("x", flush=True), output) == 0
    assert capfd.readouterr().err == ""


def test_given_reader_gone_and_another_failure_then_that_one_counts(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.leave()

    def body() -> None:
        print("x")
        raise NotFoundError("gone")

    assert run(monkeypatch, body, output) == failure.EXIT_NOT_FOUND


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("flush", [False, True], ids=["at-the-end", "within-the-command"])
def test_given_a_full_disk_then_one_message_and_exit_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], flush: bool
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert run(monkeypatch, lambda: print("x", flush=flush)) == failure.EXIT_FAILED
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert "No space left on device" in line


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()], ids=["ctrl-c", "abort"])
def test_given_an_interrupt_then_it_says_so_and_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    assert run(monkeypatch, raising(error)) == failure.EXIT_INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")],
    ids=["sigterm", "sighup"],
)
@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_given_a_signal_then_it_ends_as_on_ctrl_c_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
    said: str,
    before: Any,
) -> None:
    undone = []

    def body() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            undone.append("once")
            raise

    handlers = {each: signal.getsignal(each) for each in interrupts.SAID}
    monkeypatch.setattr(interrupts, "_received", signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, before)
        interrupts.take_signals()
        assert run(monkeypatch, body) == code
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert undone == ["once"]
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_given_nohup_then_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = {each: signal.getsignal(each) for each in interrupts.SAID}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interrupts.take_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)


def test_given_another_exit_then_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as found:
        run(monkeypatch, raising(SystemExit(7)))
    assert found.value.code == 7


RESOLUTIONS = {
    "given-a-typo-then-the-nearest": ("provisoned", "topics; did you mean provisioned? Known: "),
    "given-nothing-near-then-all": (
        "foo",
        "'foo' is no resolution of topics. Known: deleted, writable, ",
    ),
}


@pytest.mark.parametrize(("word", "expected"), RESOLUTIONS.values(), ids=RESOLUTIONS)
def test_unknown_resolution(word: str, expected: str) -> None:
    with pytest.raises(InvalidRequestError) as found:
        find_resolution(Topic, word)
    assert expected in found.value.message


def topic(resolution: str = "provisioned", reason: str | None = None) -> TopicAssignment:
    return TopicAssignment.model_validate(
        {
            "name": "x",
            "uid": "u",
            "resolution": resolution,
            "reason": reason,
            "partitionCount": 3,
            "replicationFactor": 3,
            "compression": "none",
            "durability": "fsync",
            "maxRecordSize": 1024,
        }
    )


def partition(index: int, resolution: str, live: int, reason: str | None = None) -> Partition:
    return Partition.model_validate(
        {
            "metadata": {"name": f"x-{index}"},
            "spec": {
                "owner": {"kind": "Topic", "name": "x", "uid": "u"},
                "index": index,
                "replicas": [0, 1, 2],
                "preferredLeader": 0,
                "log": {"minInSyncReplicas": 2},
            },
            "status": {
                "resolution": resolution,
                "reason": reason,
                "lrs": [{"spuId": i, "storageId": "s"} for i in range(live)],
            },
        }
    )


GOOD = partition(0, "online", 3)
LEADERLESS = partition(1, "offline", 0, "SPU 0 is offline")
SHORT = partition(2, "online", 1, "1 of 3 replicas are live")
SHORT_SAID = "partition 2 of x cannot commit: 1 of 3 replicas are live"

OBSTACLES = {
    "given-all-well-then-none": (topic(), [GOOD], True, None, None),
    "given-no-placement-then-the-topics-reason": (
        topic("insufficientResources", "needs 9 SPUs"),
        [],
        False,
        None,
        "topic x is insufficientResources: needs 9 SPUs",
    ),
    "given-no-leader-then-the-partitions-reason": (
        topic(),
        [GOOD, LEADERLESS],
        False,
        None,
        "partition 1 of x has no leader: SPU 0 is offline",
    ),
    "given-too-few-replicas-and-committing-then-how-many": (
        topic(),
        [GOOD, SHORT],
        True,
        None,
        SHORT_SAID,
    ),
    "given-too-few-replicas-and-not-committing-then-none": (topic(), [SHORT], False, None, None),
    "given-several-then-the-first-and-their-number": (
        topic(),
        [LEADERLESS, SHORT],
        True,
        None,
        "partition 1 of x has no leader: SPU 0 is offline (and 1 more partition)",
    ),
    "given-another-partition-wanted-then-only-that": (
        topic(),
        [LEADERLESS, SHORT],
        True,
        [2],
        SHORT_SAID,
    ),
}


@pytest.mark.parametrize(
    ("assignment", "partitions", "committing", "wanted", "expected"),
    OBSTACLES.values(),
    ids=OBSTACLES,
)
def test_what_is_awaited(
    assignment: TopicAssignment,
    partitions: list[Partition],
    committing: bool,
    wanted: list[int] | None,
    expected: str | None,
) -> None:
    found = readiness.obstacle(assignment, partitions, committing=committing, wanted=wanted)
    assert found == expected


def test_only_partitions_that_can_commit_are_asked_for_offsets() -> None:
    assert [readiness.commits(p) for p in (GOOD, LEADERLESS, SHORT)] == [True, False, False]


def test_given_warnings_of_the_client_library_then_they_are_printed_as_those_of_the_command() -> (
    None
):
    call = (
        "import logging; from runnel.cli import failure\n"
        "def app(**_):\n"
        "    for name in ('runnel', 'other'):\n"
        "        logging.getLogger(name).warning('a[0]\\x1b is odd')\n"
        "        logging.getLogger(name).info('not this')\n"
        "failure.run(app)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "warning: a[0]\\x1b is odd\na[0]\x1b is odd\n"
