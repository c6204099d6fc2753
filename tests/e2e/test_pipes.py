"""What the shell does to a command: pipes that end early, closed descriptors, Ctrl-C."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.conftest import PYTHON, TIMEOUT_S, Command

RUNNEL = f"{shlex.quote(PYTHON)} -P -m runnel.cli.main"
#: More than any pipe holds.
LINES = "".join(f"{i:0100d}\n" for i in range(20_000))


def shell(cluster: Command, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which ``runnel`` is the command; its exit code is that of the first part."""
    return subprocess.run(
        ["/bin/bash", "-c", f'runnel() {{ {RUNNEL} "$@"; }}\n{script}\nexit ${{PIPESTATUS[0]}}'],
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.fixture(scope="module")
def filled(cluster: Command) -> Command:
    cluster("create", "topic", "filled")
    cluster("produce", "filled", stdin=LINES)
    return cluster


QUIET = {
    "given-consume-into-head-then-0": ("runnel consume filled -B --no-follow | head -1", 1),
    "given-json-into-head-then-0": ("runnel consume filled -B --no-follow -o json | head -1", 1),
    "given-a-tail-into-head-then-0": ("runnel consume filled --tail 9999 --no-follow|head -1", 1),
    "given-get-into-true-then-0": ("runnel get partitions | true", 0),
    "given-help-into-true-then-0": ("runnel --help | true", 0),
    "given-closed-stdin-then-0": ("runnel get partition filled-0 -o name <&-", 1),
    "given-closed-stdout-then-0": ("runnel get partitions >&-", 0),
    "given-closed-stderr-then-0": ("runnel get partition filled-0 -o name 2>&-", 1),
    "given-all-closed-then-0": ("runnel get partitions <&- >&- 2>&-", 0),
}


@pytest.mark.parametrize(("script", "lines"), QUIET.values(), ids=QUIET)
def test_quiet_end(filled: Command, script: str, lines: int) -> None:
    done = shell(filled, script)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == lines


def test_given_closed_stdin_then_produce_sees_no_input(cluster: Command) -> None:
    cluster("create", "topic", "unheard")
    done = shell(cluster, "runnel produce unheard <&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("produced 0 records")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("what", ["get partitions", "consume filled -B --no-follow"])
def test_given_a_full_disk_then_one_message_and_exit_1(filled: Command, what: str) -> None:
    done = shell(filled, f"runnel {what} >/dev/full")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left on device" in line


def interrupted(
    process: subprocess.Popen[bytes], by: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Exit code and standard error after a signal."""
    process.send_signal(by)
    _, said = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, said.decode()


def read_line(stream: IO[bytes] | None) -> str:
    assert stream is not None
    return stream.readline().decode()


def test_given_ctrl_c_while_it_follows_then_0(filled: Command) -> None:
    process = filled.start(
        "consume", "filled", "--tail", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert read_line(process.stdout).strip() == LINES.splitlines()[-1]
    assert interrupted(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_given_a_signal_while_it_follows_under_a_name_then_it_commits_and_closes(
    cluster: Command, number: signal.Signals
) -> None:
    name = f"ended-by-{number.name.lower()}"
    cluster("create", "topic", name)
    cluster("produce", name, stdin="a\nb\n")
    process = cluster.start(
        "consume", name, "--name", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert [read_line(process.stdout) for _ in range(2)] == ["a\n", "b\n"]
    # Once this is printed, those before it are processed.
    cluster("produce", name, stdin="c\n")
    assert read_line(process.stdout) == "c\n"
    assert interrupted(process, number) == (0, "")
    (found,) = cluster.json("get", "consumers", name)["items"]
    assert found["state"] == "closed"
    assert found["lagAtMost"] <= 1


def test_given_sigterm_while_it_prints_into_a_full_pipe_then_what_was_printed_is_committed(
    cluster: Command,
) -> None:
    lines = [f"{number:05} {'x' * 60}\n" for number in range(20_000)]
    cluster("create", "topic", "slowly-read")
    cluster("produce", "slowly-read", stdin="".join(lines))
    read = ("consume", "slowly-read", "--name", "slow")
    process = cluster.start(*read, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = [read_line(process.stdout) for _ in range(9_000)]
    process.send_signal(signal.SIGTERM)
    found += map(bytes.decode, process.stdout or ())
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, said) == (0, b"")
    assert found[:-1] == lines[: len(found) - 1]
    assert len(found) < len(lines)
    (first, *_) = cluster(*read, "-n", "1").splitlines()
    # Printed lines come again at most as far as one commit reaches, and none is left out.
    assert 8_000 <= int(first[:5]) <= len(found)


def test_given_sigterm_in_a_watch_then_143(filled: Command) -> None:
    process = filled.start(
        "get", "partition", "filled-0", "-w", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert read_line(process.stdout).startswith("NAME")
    assert interrupted(process, signal.SIGTERM) == (143, "terminated\n")


def test_given_ctrl_c_in_produce_then_it_says_how_many_are_stored(cluster: Command) -> None:
    cluster("create", "topic", "cut-short")
    process = cluster.start(
        "produce", "cut-short", "--linger-ms", "0", stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"a\nb\n")
    process.stdin.flush()
    consumed = cluster("consume", "cut-short", "-B", "-n", "2")
    assert consumed == "a\nb\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert said.decode().splitlines() == [
        "2 records acknowledged before the interrupt",
        "interrupted",
    ]


def waiting(cluster: Command, *arguments: str) -> str:
    """The first line on standard error of a command that waits; it is interrupted then."""
    process = cluster.start(
        *arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"x\n")
    process.stdin.flush()
    said = read_line(process.stderr)
    code, rest = interrupted(process)
    assert code == 130, rest
    assert rest.splitlines()[-1] == "interrupted"
    assert "Traceback" not in rest
    return said


@pytest.fixture(scope="module")
def unplaced(cluster: Command) -> Iterator[str]:
    """A topic that no two SPUs can hold."""
    cluster("create", "topic", "rf9", "--replication-factor", "9", "--no-wait")
    while "insufficientResources" not in cluster("get", "topic", "rf9"):
        time.sleep(0.1)
    yield "rf9"
    cluster("delete", "topic", "rf9")


WAITING: Sequence[tuple[str, ...]] = (("produce",), ("consume", "--no-follow"))


@pytest.mark.parametrize("arguments", WAITING, ids=[a[0] for a in WAITING])
def test_given_a_topic_without_a_place_then_it_says_what_it_waits_for(
    cluster: Command, unplaced: str, arguments: tuple[str, ...]
) -> None:
    assert waiting(cluster, arguments[0], unplaced, *arguments[1:]) == (
        f"waiting: topic {unplaced} is insufficientResources:"
        " replicationFactor 9 needs 9 online SPUs; 2 of 2 registered are online\n"
    )


IMPORTS = {
    "typer": ("--version",),
    # Rich only shows what went wrong.
    "rich": ("get", "no-such-kind"),
    # A command imports what only it needs.
    "pyarrow": ("consume", "--help"),
    "aiohttp": ("describe", "topic", "orders"),
}


@pytest.mark.parametrize(("after_imports", "arguments"), IMPORTS.items(), ids=IMPORTS)
def test_given_ctrl_c_during_the_imports_then_130_and_no_traceback(
    tmp_path: Path, after_imports: str, arguments: tuple[str, ...]
) -> None:
    # The command sends itself the signal at the moment it first imports the module.
    script = f"""
import os, signal, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {after_imports!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["runnel", *{arguments!r}]
from runnel.cli import main
for name in [n for n in sys.modules if n.split(".")[0] == {after_imports!r}]:
    del sys.modules[name]
sys.meta_path.insert(0, Watch())
main.main()
"""
    done = subprocess.run(
        [PYTHON, "-P", "-c", script],
        env={**os.environ, "RUNNEL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
