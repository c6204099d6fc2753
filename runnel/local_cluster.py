"""`LocalCluster`: a cluster of real daemons for a script, a test or a notebook.

The daemons belong to a supervisor process (`runnel.local.supervisor`), which holds them for as long
as this process has a pipe to it open: they end with it, however it ends. Nothing here needs the
main thread or an event loop, and nothing changes the contexts of the command line.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import asdict
from operator import index
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from runnel.blocking import Cluster, connect
from runnel.fork import tell_forks
from runnel.local import supervisor
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import MAX_SPUS
from runnel.local.supervisor import Answer, Order
from schemas.errors import (
    DeadlineExceededError,
    ErrorCode,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    error_from,
)

#: How long daemons may take to stop. They are killed after half of it.
_STOP_TIMEOUT_S: Final = 90.0
#: Options in errors that stand for an argument: the first word, or what to choose.
_OPTIONS: Final = re.compile(
    r"(?:\A|(?<=another )|(?<=another with )|(?<= give this one a )"
    r"|(?<=one that runs: ))"
    r"--(base-port|data-dir|spus|kv|name)\b"
)


class LocalCluster:
    """A cluster on this machine that lives as long as its ``with`` block, which gives a `Cluster`.

    ::

        with runnel.LocalCluster(spus=3) as cluster:
            cluster.write("orders", frame)

    It has one SPU unless ``spus`` says otherwise, and listens on free ports of loopback, or from
    ``base_port`` on. What it stores is temporary, unless ``data_dir`` names a directory: that one
    is kept, and the next cluster there has the same data and as many SPUs. ``kv`` is ``sqlite`` or
    ``etcd``. With ``dashboard=True`` it serves one to browsers, and a notebook that shows a client
    links to it. In a notebook, use `connect` and `close` instead of ``with``; for asyncio, call
    `start` and `runnel.aio.connect` with `address`.

    The cluster ends when this process ends, even if it is killed. In a fork of the process, `close`
    does nothing: the cluster belongs to the parent. The command line goes on using the cluster that
    it used before.
    """

    def __init__(
        self,
        spus: int | None = None,
        *,
        data_dir: str | Path | None = None,
        base_port: int | None = None,
        kv: str | None = None,
        name: str | None = None,
        dashboard: bool = False,
    ) -> None:
        spus, base_port = _whole("spus", spus), _whole("base_port", base_port)
        if spus is not None and not 0 <= spus <= MAX_SPUS:
            raise InvalidRequestError(f"spus is {spus}; 0 to {MAX_SPUS} is possible")
        _check_text("kv", kv, "'sqlite', 'etcd' or 'etcd://HOST:PORT'")
        _check_text("name", name, "the name of the cluster, a text")
        self._wanted = (spus, base_port, kv, name, bool(dashboard))
        self._kept = None if data_dir is None else _directory(data_dir)
        self._data_dir = self._kept
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._answer = Answer()
        self._clients: weakref.WeakSet[Cluster] = weakref.WeakSet()
        self._entered: Cluster | None = None

    def __repr__(self) -> str:
        if not self.running:
            return "<runnel.LocalCluster, not running>"
        return f"<runnel.LocalCluster at {self.address}: {self._answer.spus} SPUs>"

    @property
    def running(self) -> bool:
        """Whether it was started by this process and not closed. Its daemons may have died."""
        return self._supervisor is not None

    @property
    def address(self) -> str:
        """Where its SC listens, for `connect`. Raises InvalidRequestError if it is not running."""
        if self._answer.address is None:
            raise InvalidRequestError("the local cluster is not running; call start() or connect()")
        return self._answer.address

    @property
    def data_dir(self) -> Path | None:
        """Where it stores everything, logs too; None if that is temporary and it is not running."""
        return self._data_dir

    def start(self) -> Self:
        """Start it, and wait until it takes records; does nothing if it is running.

        Raises what went wrong, after everything was stopped again: ConflictError if a cluster runs
        in ``data_dir`` already, or ports are in use; RunnelError with what a daemon said last.
        """
        if self.running:
            return self
        if self._kept is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="runnel-"))
        order = Order(str(self._data_dir), self._kept is None, *self._wanted)
        try:
            with tempfile.TemporaryFile() as said:
                self._supervisor = _new_supervisor(said)
                tell_forks(self)
                atexit.register(self.close)
                self._answer = _ask(self._supervisor, order, said)
        except BaseException:
            # After Ctrl-C, too: the supervisor stops what it has started.
            self.close()
            raise
        if self._answer.code is not None:
            error = error_from(ErrorCode(self._answer.code), _of_arguments(self._answer.message))
            self.close()
            raise error
        return self

    def connect(self) -> Cluster:
        """A client of the cluster, which is started if it is not running. `close` closes it."""
        client = connect(self.start().address)
        self._clients.add(client)
        return client

    def close(self) -> None:
        """Close its clients and stop it; removes a temporary directory. May be called twice.

        Raises the first thing that a client could not deliver, after everything was stopped.
        """
        failure: BaseException | None = None
        try:
            for client in list(self._clients):
                try:
                    client.close()
                except RunnelError as error:
                    failure = failure or error
        finally:
            self._clients.clear()
            self._stop()
        if failure is not None:
            raise failure

    def forked(self) -> None:
        """Called in a fork: the cluster belongs to the parent, which alone may end it."""
        if self._supervisor is not None:
            atexit.unregister(self.close)
            for pipe in (self._supervisor.stdin, self._supervisor.stdout):
                if pipe is not None:
                    pipe.close()
            # The parent reaps it.
            self._supervisor.returncode = 0
            self._supervisor = None
            self._clients.clear()

    def __enter__(self) -> Cluster:
        self._entered = self.connect()
        return self._entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._entered is not None:
                self._entered.__exit__(kind, error, traceback)
        finally:
            self._entered = None
            self.close()

    def _stop(self) -> None:
        process, self._supervisor = self._supervisor, None
        if process is not None:
            atexit.unregister(self.close)
            answer, self._answer = self._answer, Answer()
            _end(process)
            if process.returncode != 0 and answer.code is None:
                self._stop_daemons()
        if self._kept is None and self._data_dir is not None and process is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def _stop_daemons(self) -> None:
        """Stop what a supervisor that was killed has left."""
        if self._data_dir is not None:
            with suppress(NotFoundError):
                ClusterDaemons(self._data_dir).stop()


def _whole(argument: str, value: object) -> int | None:
    """A whole number, of NumPy too. Raises InvalidRequestError that names the argument."""
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidRequestError(f"{argument} is {value!r}; give a whole number") from None


def _check_text(argument: str, value: object, wanted: str) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(f"{argument} is {value!r}; give {wanted}")


def _directory(data_dir: object) -> Path:
    if not isinstance(data_dir, str | PathLike):
        raise InvalidRequestError(f"data_dir is {data_dir!r}; give the path of a directory")
    try:
        return Path(data_dir).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidRequestError(
            f"data_dir is {str(data_dir)!r}, and the home directory that ~ stands for is not known;"
            " give the path of a directory"
        ) from error


def _of_arguments(message: str) -> str:
    """An error of a start, with the names of arguments for those of options, where these are not
    part of a command."""
    return _OPTIONS.sub(lambda found: found[1].replace("-", "_"), message)


def _new_supervisor(said: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # Without the working directory: what lies there is the user's.
        [sys.executable, "-P", "-m", supervisor.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        start_new_session=True,
    )


def _ask(process: subprocess.Popen[bytes], order: Order, said: IO[bytes]) -> Answer:
    """Give the supervisor its order, and wait for the answer; `runnel.local.starting` bounds it."""
    assert process.stdin is not None  # noqa: S101 - a pipe, as asked for
    assert process.stdout is not None  # noqa: S101 - the same
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        said.seek(0)
        last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
        raise RunnelError(
            f"the process that runs the local cluster ended: {last or 'it said nothing'}"
        )
    found: dict[str, Any] = json.loads(line)
    return Answer(**found)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe, which ends the cluster, and wait until it has ended.

    Raises DeadlineExceededError; Ctrl-C interrupts the wait only.
    """
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise DeadlineExceededError(
            f"the local cluster has not stopped within {_STOP_TIMEOUT_S:g} s; its supervisor is"
            f" process {process.pid}"
        ) from None
