"""Commands forked from a process that has imported what they import: half a second less for each.

Most tests are about what a command does to a cluster and what it prints. They need a process with
an environment, standard streams and an exit code of its own, but not the interpreter's start and
the imports anew each time. Tests of an installed wheel start their commands from nothing
(`tests.e2e.conftest.Command`): one that relies on what another one imports fails there.

Neighbours: `tests.e2e.fork_server` is the other process.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select

SERVER = Path(__file__).with_name("fork_server.py")


class ForkServer:
    """Forks commands of ``runnel``, several at a time if several threads ask."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It gets pipes as a command does: an interpreter looks at its streams when it starts.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        self.pid = self._process.pid
        self._sending = threading.Lock()

    def close(self) -> None:
        """End the server. Commands that still run go on."""
        self._requests.close()
        self._process.communicate()

    def run(
        self,
        arguments: tuple[str, ...],
        stdin: bytes,
        environment: dict[str, str],
        directory: Path | None,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """What ``subprocess.run`` gives for the command. Raises what it raises after a time-out,
        when the command is killed."""
        message = json.dumps({
            "arguments": arguments,
            "environment": environment,
            "directory": str(directory or Path.cwd()),
        }).encode()  # fmt: skip
        pipes = [os.pipe() for _ in range(4)]
        given, out, err, told = pipes
        theirs = [given[0], out[1], err[1], told[1]]
        with self._sending:
            socket.send_fds(self._requests, [message], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        with ThreadPoolExecutor(3) as pool:
            pool.submit(_write, given[1], stdin)
            outputs = [pool.submit(_read, output) for output in (out[0], err[0])]
            code = _exit_code(told[0], timeout_s)
            stdout, stderr = (output.result() for output in outputs)
        command = ["runnel", *arguments]
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout_s, stdout, stderr)
        return subprocess.CompletedProcess(command, code, stdout, stderr)


@cache
def fork_server() -> ForkServer:
    """The server of this process, started by the first command. It ends with this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _exit_code(told: int, timeout_s: float) -> int | None:
    """The exit code of a command, or None if it had to be killed."""
    with open(told, "rb", buffering=0) as answers:
        pid = int(answers.readline())
        in_time, _, _ = select([answers], [], [], timeout_s)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        code = int(answers.readline())
    return code if in_time else None


def _write(descriptor: int, data: bytes) -> None:
    # A command may end before it has read all.
    with suppress(BrokenPipeError), open(descriptor, "wb", buffering=0) as pipe:
        while data:
            data = data[pipe.write(data) :]


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as pipe:
        return pipe.read()
