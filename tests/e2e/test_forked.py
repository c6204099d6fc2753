"""A forked command does what a started one does, and several run at a time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import Command
from tests.e2e.forked import fork_server
from tests.polling import eventually
from tests.silent_port import silent_port

SAME = {
    "given-success-then-0-and-output": (("explain", "topic.spec"), b""),
    "given-standard-input-then-it-is-read": (("apply", "-f", "-"), b"kind: [Topic\n"),
    "given-a-file-then-it-is-of-the-directory": (("apply", "-f", "here.yaml"), b""),
}


@pytest.mark.parametrize(("arguments", "stdin"), SAME.values(), ids=SAME)
def test_forked_is_as_started(tmp_path: Path, arguments: tuple[str, ...], stdin: bytes) -> None:
    (tmp_path / "here.yaml").write_text("kind: Topik\n")
    command = Command(tmp_path / "home", python=sys.executable, directory=tmp_path)
    started = subprocess.run(
        [*command.program, *arguments],
        cwd=tmp_path,
        env=command.environment,
        input=stdin,
        capture_output=True,
    )
    forked = command.run(*arguments, stdin=stdin)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
async def test_given_a_signal_while_another_runs_then_the_code_says_so(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    command = Command(tmp_path, python=sys.executable)
    server = psutil.Process(fork_server().pid)
    with silent_port() as port:
        arguments = ("get", "topics", "--sc", f"127.0.0.1:{port}")
        waiting = asyncio.create_task(asyncio.to_thread(command.run, *arguments))
        await eventually(lambda: any(child.net_connections() for child in server.children()))
        other = await asyncio.to_thread(command.run, "get", "topcs")
        assert other.returncode == 2
        (child,) = server.children()
        child.send_signal(number)
        assert (await waiting).returncode == code


def test_given_a_command_that_does_not_end_then_it_is_killed(tmp_path: Path) -> None:
    command = Command(tmp_path, python=sys.executable)
    server = fork_server()
    with silent_port() as port:
        arguments = ("get", "topics", "--sc", f"127.0.0.1:{port}")
        with pytest.raises(subprocess.TimeoutExpired, match="timed out"):
            server.run(arguments, b"", command.environment, tmp_path, timeout_s=0.1)
    assert psutil.Process(server.pid).children() == []
