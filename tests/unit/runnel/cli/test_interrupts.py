"""Signals that come outside of the command: during its last words, and while the process ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: A process that runs ``runnel`` with a command of ours, and signals itself where ``{place}`` says.
_PROCESS = """
import atexit, os, signal, sys
from runnel.cli import commands, failure
from runnel.cli.main import main

def strike(kill=os.kill, process=os.getpid(), number=signal.SIGINT):
    # The interpreter clears the names of modules before it deletes the last objects.
    kill(process, number)

class Stderr:
    def write(self, text):
        strike()
        sys.__stderr__.write(text)
    def flush(self):
        sys.__stderr__.flush()

class Striking:
    def __del__(self, strike=strike):
        strike()

def command(**_):
    {place}
    strike(number=signal.{first})

commands.app = command
main()
"""

PLACES = {
    "given-last-words": "sys.stderr = Stderr()",
    "given-a-handler-of-the-exit": "atexit.register(strike)",
    "given-the-interpreter-taken-down": "sys.kept = Striking()",
}


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_second_signal_outside_of_the_command(place: str, first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS.format(place=place, first=first)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (130, 128 + signal.Signals[first])
    assert done.stderr.splitlines() in ([], ["interrupted"], ["terminated"])


def test_given_a_signal_before_a_call_awaits_its_coroutine_then_nothing_is_said_of_that() -> None:
    place = "async def answer(): ...\n    waiting = answer()"
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS.format(place=place, first="SIGTERM")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (143, "terminated\n")
