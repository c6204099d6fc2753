"""The process that forks commands: it has imported what they import, so that they start at once.

``python -P fork_server.py SOCKET`` takes requests from the socket with this number until the other
end is closed. A request is one message: a JSON object with ``arguments``, ``environment`` and
``directory``, and four descriptors: the command's standard input, output and error, and a pipe that
is told, a line each, the command's process id and its exit code. A negative exit code is a signal.

Each command is a process of its own, with an environment, a directory and standard streams of its
own, and ends as an interpreter ends. Only its imports are shared.

Neighbours: `tests.e2e.forked` starts it and asks it.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

import runnel.cli.main
from runnel.cli import commands

#: What commands import while they run.
LATER = ("encodings.idna", "pandas", "pyarrow.parquet", "rich._emoji_codes", "uvloop")
DESCRIPTORS = 4
MOST_BYTES = 1 << 20


def main() -> None:
    """Fork commands, and become each of them in the forked process."""
    for name in commands.COMMANDS:
        commands.load(name)
    for name in LATER:
        import_module(name)
    # What is not collected is not written to, and stays shared with the forked processes.
    gc.freeze()
    if become_next(socket.socket(fileno=int(sys.argv[1]))):
        runnel.cli.main.main()


def become_next(requests: socket.socket) -> bool:
    """Whether this is a forked process that is to run its command; if not, there are no more."""
    ended = selectors.PollSelector()
    ended.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in ended.select():
            if key.fileobj is not requests:
                pid, told = key.data
                ended.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                _tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, DESCRIPTORS)
            if not message:
                return False
            *streams, told = descriptors
            pid = os.fork()
            if pid == 0:
                for other in ended.get_map().values():
                    os.close(other.fd)
                    if other.fileobj is not requests:
                        os.close(other.data[1])
                requests.detach()
                os.close(told)
                _become(json.loads(message), streams)
                return True
            for stream in streams:
                os.close(stream)
            _tell(told, pid)
            ended.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take over what a started process would have been given."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.argv = ["runnel", *request["arguments"]]


def _tell(told: int, number: int) -> None:
    # The test may be gone.
    with suppress(BrokenPipeError):
        os.write(told, b"%d\n" % number)


if __name__ == "__main__":
    main()
