"""Compares the KV backends with each other, and with the bare disk in the same run.

    python -m benchmarks.kv [--backends memory,sqlite,etcd] [--seconds 5] [--keys 100000] [--json]

Fresh stores are used through the interface and the event loop of the SC, with values of 256 B.
SQLite and etcd sync every commit to files in a temporary directory; etcd has one member, started
the way a local cluster starts it. The backends take turns, several for each phase, and so does the
first floor, one synced write in that directory: other load on the machine affects all of them. The
second floor is the round trip of a value between two processes. ``memory:`` never waits: its column
shows what Python costs, and at most one of its calls is ever in flight.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import platform
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
import uvloop
import yaml

from benchmarks.kv_phases import (
    BATCH_OPS,
    BATCHES_IN_FLIGHT,
    IN_FLIGHT,
    VALUE,
    Measured,
    measure,
    percentile_ms,
)
from runnel.environment import ETCD
from runnel.local.etcd import etcd_version, find_etcd
from runnel.local.plan import HOST, ClusterPlan
from runnel.local.processes import free_base_port, start_daemon
from sc.kv import KV, open_kv
from sc.kv.interface import DEFAULT_PAGE
from schemas.daemon.log_options import LogLevel
from schemas.daemon.logs import configure_logs
from schemas.daemon.process import is_alive, stop
from schemas.errors import DeadlineExceededError, NotFoundError, UnsupportedError

BACKENDS: Final = ("memory", "sqlite", "etcd")
FLOOR_S: Final = 0.1
START_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A backend that this machine cannot run, and why."""

    unavailable: str


Outcome = Measured | Unavailable


# -- floors ---------------------------------------------------------------------------------------


def sync_times(path: Path) -> list[float]:
    """Seconds of synced writes of one value into a file that already has its length."""
    size = 1 << 22
    times: list[float] = []
    with path.open("wb", buffering=0) as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
        end = time.perf_counter() + FLOOR_S
        while (begin := time.perf_counter()) < end or not times:
            os.pwrite(file.fileno(), VALUE, len(times) * len(VALUE) % size)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begin)
    path.unlink()
    return times


def round_trip_times() -> list[float]:
    """Seconds for a value to reach another process on 127.0.0.1 and come back."""
    times: list[float] = []
    with socket.create_server((HOST, 0)) as server:
        context = multiprocessing.get_context("spawn")
        echo = context.Process(target=_echo, args=(server.getsockname()[1],))
        echo.start()
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end = time.perf_counter() + FLOOR_S
            while (begin := time.perf_counter()) < end:
                connection.sendall(VALUE)
                connection.recv(len(VALUE), socket.MSG_WAITALL)
                times.append(time.perf_counter() - begin)
        echo.join()
    return times


def _echo(port: int) -> None:
    with socket.create_connection((HOST, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(len(VALUE), socket.MSG_WAITALL):
            connection.sendall(data)


# -- stores ---------------------------------------------------------------------------------------


@contextmanager
def store(backend: str, directory: Path) -> Iterator[tuple[str, str]]:
    """URL of an empty store in a directory, and the version of the backend's program.

    Raises NotFoundError if there is no etcd.
    """
    if backend == "memory":
        yield "memory:", ""
    elif backend == "sqlite":
        yield f"sqlite:{directory / 'kv.db'}", sqlite3.sqlite_version
    else:
        with _etcd(directory) as found:
            yield found


@contextmanager
def _etcd(directory: Path) -> Iterator[tuple[str, str]]:
    try:
        version = etcd_version(find_etcd())
    except NotFoundError as error:
        raise NotFoundError(
            f"no etcd to start: put the program on the PATH or name it in {ETCD.name}"
        ) from error
    plan = ClusterPlan(directory, base_port=free_base_port(directory, 1), kv="etcd")
    config, log = directory / "etcd.yaml", directory / "etcd.log"
    config.write_text(yaml.safe_dump(plan.etcd.config))
    process = start_daemon(plan.etcd, config, log)
    try:
        deadline = time.monotonic() + START_S
        while not _healthy(plan.etcd.ports["client"]):
            if not is_alive(process) or time.monotonic() > deadline:
                raise DeadlineExceededError(f"etcd does not serve:\n{log.read_text()}")
            time.sleep(0.05)
        yield plan.kv_url, version
    finally:
        stop([process])


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return b'"true"' in connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()


# -- report ---------------------------------------------------------------------------------------


def machine(directory: Path) -> dict[str, object]:
    """The facts about the machine that the numbers depend on; loads are averages of one minute."""
    names = [
        line.partition(":")[2].strip()
        for line in _read("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if directory.resolve().is_relative_to(mount.mountpoint)
    ]
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "file_system": max(mounts, key=lambda m: len(m.mountpoint)).fstype if mounts else "",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _rows(keys: int) -> list[tuple[str, str, str]]:
    """Label, field and format of each line of the table."""
    return [
        ("put p50, ms", "put_p50_ms", ",.3f"),
        ("put p99, ms", "put_p99_ms", ",.3f"),
        (f"transactions/s, {IN_FLIGHT} in flight", "transactions_per_s", ",.0f"),
        (
            f"operations/s, {BATCH_OPS} each, {BATCHES_IN_FLIGHT} in flight",
            "batched_operations_per_s",
            ",.0f",
        ),
        ("put to watch event p50, ms", "event_p50_ms", ",.3f"),
        ("put to watch event p99, ms", "event_p99_ms", ",.3f"),
        (f"{keys:,} keys in pages of {DEFAULT_PAGE:,}, s", "list_s", ",.3f"),
    ]


def report(
    facts: dict[str, object], floor: dict[str, float], found: dict[str, Outcome], keys: int
) -> str:
    """A table with a column for each backend; below it, the backends that were not measured."""
    headings = [
        f"{name} {outcome.version}".rstrip() if isinstance(outcome, Measured) else name
        for name, outcome in found.items()
    ]
    about = (
        f"{facts['cores']} x {facts['processor']}, {facts['file_system']},"
        f" Python {facts['python']}, load {facts['load_before']} to {facts['load_after']}"
    )
    floors = (
        f"floor: write + fsync p50 {floor['fsync_ms']:.3f}, p99 {floor['fsync_p99_ms']:.3f} ms;"
        f" loopback round trip p50 {floor['round_trip_ms']:.3f},"
        f" p99 {floor['round_trip_p99_ms']:.3f} ms"
    )
    lines = [about, floors, " " * 38 + "".join(f"{heading:>15}" for heading in headings)]
    for label, field, style in _rows(keys):
        cells = [
            format(getattr(outcome, field), style) if isinstance(outcome, Measured) else "none"
            for outcome in found.values()
        ]
        lines.append(f"{label:38}" + "".join(f"{cell:>15}" for cell in cells))
    lines += [
        f"{name} was not measured: {outcome.unavailable}"
        for name, outcome in found.items()
        if isinstance(outcome, Unavailable)
    ]
    return "\n".join(lines)


def _backends(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in BACKENDS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(BACKENDS)}")
    return names


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return Path(text)


async def run(
    stores: dict[str, tuple[str, str]], between: Callable[[], None], *, seconds: float, keys: int
) -> dict[str, Outcome]:
    """Measure stores, each given as a URL and a version; they exist and are empty."""
    found: dict[str, Outcome] = {}
    opened: dict[str, KV] = {}
    async with AsyncExitStack() as stack:
        for name, (url, _) in stores.items():
            try:
                opened[name] = await open_kv(url)
            except UnsupportedError as error:
                found[name] = Unavailable(str(error))
            else:
                stack.push_async_callback(opened[name].close)
        phases = await measure(opened, between, seconds=seconds, keys=keys)
    return found | {name: phases.of(name, stores[name][1]) for name in opened}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="kv", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--backends", type=_backends, default=list(BACKENDS), help="which, separated by commas"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each phase counts")
    parser.add_argument("--keys", type=int, default=100_000, help="keys to list")
    parser.add_argument(
        "--directory", type=_directory, help="where to put the files (where temporary ones go)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    configure_logs("benchmark", level=LogLevel.ERROR)
    found: dict[str, Outcome] = {}
    stores: dict[str, tuple[str, str]] = {}
    syncs: list[float] = []
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="runnel-bench-", dir=arguments.directory)
            )
        )
        facts = machine(directory)
        trips = round_trip_times()
        for backend in arguments.backends:
            try:
                stores[backend] = stack.enter_context(store(backend, directory))
            except NotFoundError as error:
                found[backend] = Unavailable(str(error))
        found |= uvloop.run(
            run(
                stores,
                lambda: syncs.extend(sync_times(directory / "floor.bin")),
                seconds=arguments.seconds,
                keys=arguments.keys,
            )
        )
    found = {backend: found[backend] for backend in arguments.backends}
    facts["load_after"] = round(os.getloadavg()[0], 2)
    floor = {
        "fsync_ms": percentile_ms(syncs, 50),
        "fsync_p99_ms": percentile_ms(syncs, 99),
        "round_trip_ms": percentile_ms(trips, 50),
        "round_trip_p99_ms": percentile_ms(trips, 99),
    }
    if arguments.json:
        backends = {backend: asdict(outcome) for backend, outcome in found.items()}
        settings = {"seconds": arguments.seconds, "keys": arguments.keys, "value_bytes": len(VALUE)}
        everything = {"machine": facts, "settings": settings, "floor": floor, "backends": backends}
        print(json.dumps(everything, indent=2))
        return
    print(report(facts, floor, found, arguments.keys))


if __name__ == "__main__":
    main()
