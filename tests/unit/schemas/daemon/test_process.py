"""Processes are recognised by pid and start time, and nothing else is ever signalled."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import psutil
import pytest

from schemas.daemon.process import (
    ProcessId,
    is_alive,
    is_ending,
    started_at,
    stop,
    until_ended,
)
from tests.processes import half_ended

#: Both say when they are ready and then wait until their input ends.
POLITE = "echo ready; read line"
STUBBORN = 'trap "" TERM; echo ready; while :; do read line; done'


@contextmanager
def shell(script: str) -> Iterator[subprocess.Popen[str]]:
    """A shell that runs a script, once it said that it is ready."""
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def id_of(process: subprocess.Popen[str]) -> ProcessId:
    return ProcessId(process.pid, started_at(process.pid))


def test_a_pid_of_somebody_else_is_never_signalled() -> None:
    with shell(POLITE) as process:
        found = id_of(process)
        assert is_alive(found)
        stranger = ProcessId(process.pid, found.started + "0")
        assert not is_alive(stranger)
        assert stop([stranger]) == []
        assert process.poll() is None
        assert stop([found]) == []
        assert process.wait(10) == -15
    assert not is_alive(found)
    assert stop([found]) == []


def test_none_is_not_alive_and_this_process_is() -> None:
    assert not is_alive(None)
    assert is_alive(ProcessId(os.getpid(), started_at(os.getpid())))


def test_given_ended_but_not_waited_for_then_not_alive() -> None:
    with shell(POLITE) as process:
        found = id_of(process)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert not is_alive(found)


def test_given_killed_and_its_files_are_not_closed_then_alive() -> None:
    with half_ended(60) as found:
        assert is_alive(found)
        assert is_ending(found)
        os.kill(found.pid, signal.SIGKILL)
        os.waitid(os.P_PID, found.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(found)
        assert not is_ending(found)


def test_given_killed_then_its_end_is_waited_for() -> None:
    running = ProcessId(os.getpid(), started_at(os.getpid()))
    with half_ended(0.3) as found:
        until_ended([running, found])
        assert not is_alive(found)
    assert not is_ending(running)


def test_given_gone_then_its_start_is_not_known() -> None:
    with shell(POLITE) as process:
        pass
    with pytest.raises(psutil.NoSuchProcess):
        started_at(process.pid)


def test_given_one_that_does_not_end_then_it_alone_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("schemas.daemon.process.STOP_TIMEOUT_S", 0.2)
    with shell(POLITE) as polite, shell(STUBBORN) as stubborn:
        assert stop([id_of(polite), id_of(stubborn)]) == [stubborn.pid]
        assert (polite.wait(10), stubborn.wait(10)) == (-15, -9)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_given_a_name_that_looks_like_fields_then_the_start_is_read_all_the_same(
    tmp_path: Path,
) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sh")
    with subprocess.Popen([program, "-c", POLITE], stdin=subprocess.PIPE) as process:
        try:
            boot, ticks = started_at(process.pid).split("/")
            created = psutil.Process(process.pid).create_time()
        finally:
            process.kill()
    assert re.fullmatch(r"[0-9a-f-]{36}", boot)
    since_boot = int(ticks) / os.sysconf("SC_CLK_TCK")
    assert psutil.boot_time() + since_boot == pytest.approx(created, abs=0.1)


def test_given_no_proc_then_the_second_in_which_it_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("schemas.daemon.process.Path", lambda _path: tmp_path / "absent")
    created = psutil.Process().create_time()
    assert started_at(os.getpid()) == f"{created:.0f}"
    assert is_alive(ProcessId(os.getpid(), f"{created:.0f}"))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_given_no_descriptors_then_a_process_is_not_taken_for_dead(number: int) -> None:
    error = OSError(number, os.strerror(number))
    with shell(POLITE) as process:
        known = id_of(process)
        with (
            mock.patch.object(Path, "read_text", side_effect=error),
            mock.patch.object(psutil, "Process", side_effect=error),
        ):
            assert is_alive(known)
            process.kill()
            process.wait()
            assert not is_alive(known)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
def test_given_an_error_of_the_moment_then_no_start_of_another_form(number: int) -> None:
    why = os.strerror(number)
    # What psutil opens a moment later succeeds.
    with (
        mock.patch.object(Path, "read_text", side_effect=OSError(number, why)),
        pytest.raises(OSError, match=why),
    ):
        started_at(os.getpid())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_given_a_descriptor_a_moment_later_then_a_process_is_not_taken_for_dead(
    number: int,
) -> None:
    known = ProcessId(os.getpid(), started_at(os.getpid()))
    with mock.patch.object(Path, "read_text", side_effect=OSError(number, os.strerror(number))):
        assert is_alive(known)
