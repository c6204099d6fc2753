"""Real processes: a cluster started by the command line, in a directory and on ports of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from runnel.cli import failure
from runnel.cli.commands import app
from tests.contract.kv.etcd_server import require_client, require_etcd
from tests.e2e.forked import fork_server
from tests.ports import free_base_port

TIMEOUT_S = 90
#: The interpreter whose ``runnel`` is tested: this one's, unless an installed wheel's is named.
PYTHON = os.environ.get("RUNNEL_TEST_PYTHON", sys.executable)


@dataclass
class Command:
    """Runs ``runnel`` with a home of its own; clusters that it starts keep their objects in
    ``kv``. Commands run in ``directory``, if one is named."""

    home: Path
    kv: str = "sqlite"
    sc: str | None = None
    etcd: Path | None = None
    python: str = PYTHON
    directory: Path | None = None

    @property
    def program(self) -> tuple[str, ...]:
        # Without the working directory, which may hold the sources.
        return (self.python, "-P", "-m", "runnel.cli.main")

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RUNNEL_")}
        ours = {"RUNNEL_HOME": str(self.home), "NO_COLOR": "1"}
        if self.etcd is not None:
            ours["RUNNEL_ETCD"] = str(self.etcd)
        return {**inherited, **ours}

    def _start_options(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """A start that says nothing of the KV gets this command's; one that does not ask for a
        dashboard gets none, which would take processor time from the others."""
        if arguments[:2] != ("cluster", "start") or "--help" in arguments:
            return arguments
        if self.kv != "sqlite" and "--kv" not in arguments:
            arguments = (*arguments, "--kv", self.kv)
        if not {"--dashboard", "--no-dashboard"} & {*arguments}:
            arguments = (*arguments, "--no-dashboard")
        return arguments

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.program, *self._start_options(arguments)],
            env=self.environment,
            **options,
        )

    def __call__(self, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> str:
        """Standard output of a command that must end with ``code``."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout!r}\n{_err(done)}"
        )
        return done.stdout.decode()

    def fails(self, *arguments: str, code: int, stdin: str | bytes = b"") -> str:
        """Standard error of a command that must fail with ``code``, and say why in few lines."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout!r}\n{_err(done)}"
        )
        assert "Traceback" not in _err(done)
        assert _err(done).strip()
        return _err(done)

    def run(self, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """What a command printed, and its exit code. It is forked; an installed wheel's command is
        started from nothing."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        arguments = self._start_options(arguments)
        if self.python == sys.executable:
            return fork_server().run(arguments, data, self.environment, self.directory, TIMEOUT_S)
        return subprocess.run(
            [*self.program, *arguments],
            cwd=self.directory,
            env=self.environment,
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@dataclass(frozen=True)
class Refusals:
    """Runs ``runnel`` in the process of the test, for tables of what a cluster refuses.

    Even a forked process takes longer than most refusals. That a process ends with the code, and
    prints what it should where it should, is seen where `Command` runs one. An installed wheel
    has its own interpreter, and so its processes.
    """

    command: Command
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int, stdin: str = "") -> str:
        """Standard error of a command that must fail with ``code``, and say why."""
        if self.command.python != sys.executable:
            return self.command.fails(*arguments, code=code, stdin=stdin)
        found, out, err = self.run(*arguments, stdin=stdin)
        assert found == code, f"{arguments}: {found}\n{out}\n{err}"
        assert err.strip()
        return err

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit code, standard output and standard error of any command, in the directory of the
        process. An installed wheel's command runs in a process of its own."""
        if self.command.python != sys.executable:
            done = self.command.run(*arguments, stdin=stdin)
            return done.returncode, done.stdout.decode(), _err(done)
        self.capsys.readouterr()
        with self.monkeypatch.context() as patch:
            for name in os.environ.keys() - self.command.environment.keys():
                patch.delenv(name)
            for name, value in self.command.environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["runnel", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            found = failure.run(app)
        said = self.capsys.readouterr()
        return found, said.out, said.err


def _err(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode()


@dataclass(frozen=True)
class KvChoice:
    """Where clusters keep their objects, and the program if that is etcd."""

    kv: str
    etcd: Path | None = None


@pytest.fixture(scope="session", params=["sqlite", pytest.param("etcd", marks=pytest.mark.slow)])
def kv(request: pytest.FixtureRequest) -> KvChoice:
    """Every KV that a cluster of processes can have: what does not name `SQLITE_ALONE` runs on
    each."""
    if request.param == "sqlite":
        return KvChoice("sqlite")
    require_client()
    return KvChoice("etcd", require_etcd())


#: For a module about records: where the objects are kept changes nothing of what SPUs, clients and
#: commands do with records.
SQLITE_ALONE: Final = pytest.mark.parametrize("kv", ["sqlite"], indirect=True)


@pytest.fixture
def runnel(tmp_path: Path, kv: KvChoice) -> Iterator[Command]:
    """The command without a cluster; whatever it starts is stopped."""
    command = Command(tmp_path / "home", kv.kv, etcd=kv.etcd)
    yield command
    command.run("cluster", "stop")


@contextmanager
def running_cluster(home: Path, kv: KvChoice, spus: int) -> Iterator[Command]:
    """The command with a cluster of so many SPUs, which is stopped at the end."""
    command = Command(home, kv.kv, etcd=kv.etcd)
    base = free_base_port(home / "local", spus)
    command("cluster", "start", "--spus", str(spus), "--base-port", str(base))
    command.sc = f"localhost:{base}"
    try:
        yield command
    finally:
        command.run("cluster", "stop")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, kv: KvChoice) -> Iterator[Command]:
    """A running cluster of two SPUs that all modules share.

    A test gives its topics names of their own, and leaves every daemon running and every object
    well. What it must break, it breaks in a cluster that ``runnel`` starts.
    """
    with running_cluster(tmp_path_factory.mktemp("cluster"), kv, 2) as command:
        yield command


@pytest.fixture
def refused(
    cluster: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusals:
    """The command in this process, against the cluster that all modules share."""
    return Refusals(cluster, monkeypatch, capsys)
