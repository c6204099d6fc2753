"""``make demo``: a cluster, a real data set through it, and Spark on top, in about a minute.

Three SPUs hold every record. The demo kills one of them, a leader, while records flow, and
no record is lost. It uses the command line and the library just as a user does. The cluster is
in a temporary directory on free ports, and the demo deletes it afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from data import ROWS, write_csv
from rich.console import Console
from rich.progress import Progress

import runnel
from runnel.cli.records.inputs import KeyRule, read_chunks
from runnel.local.processes import free_base_port

HERE = Path(__file__).parent
SPUS = 3
console = Console(highlight=False, soft_wrap=True)


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a ``runnel`` command as a user would, and show it."""
    console.print(f"\n[bold]$ runnel {shlex.join(arguments)}[/]")
    return subprocess.Popen([sys.executable, "-m", "runnel.cli.main", *arguments])


def run(*arguments: str) -> None:
    """Run a ``runnel`` command to its end."""
    if code := begin(*arguments).wait():
        raise SystemExit(f"that failed with exit code {code}")


def answer(*arguments: str) -> Any:
    """Run a ``runnel`` command and return the JSON that it prints."""
    command = [sys.executable, "-m", "runnel.cli.main", *arguments, "-o", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def produce_while_a_leader_dies(sc: str, csv: Path) -> None:
    """Send the file, and kill -9 the SPU that leads most once a tenth of it is committed."""
    leaders = [item["status"]["leader"] for item in answer("get", "partitions")["items"]]
    victim = max(sorted(set(leaders)), key=leaders.count)
    pid = next(spu["pid"] for spu in answer("cluster", "status")["spus"] if spu["id"] == victim)
    producing = begin("produce", "flights", "--file", str(csv), "--key-field", "tailnum")
    with runnel.connect(sc) as cluster:
        while producing.poll() is None:
            there = sum(bounds.latest for bounds in cluster.offsets("flights").values())
            if there >= ROWS // 10:
                os.kill(pid, signal.SIGKILL)
                console.print(
                    f"[bold]kill -9 {pid}[/]: SPU {victim}, which leads"
                    f" {leaders.count(victim)} of {len(leaders)} partitions, with"
                    f" {there:,} records committed"
                )
                break
            time.sleep(0.02)
        else:
            raise SystemExit("everything was sent before a leader could be killed")
    if code := producing.wait():
        raise SystemExit(f"that failed with exit code {code}")


def wait_until_whole(then: str) -> None:
    """Wait until every replica holds everything (the SC starts a killed SPU again), and say so."""
    began = time.monotonic()
    while any(len(item["status"]["lrs"]) < SPUS for item in answer("get", "partitions")["items"]):
        if time.monotonic() - began > 60:
            run("get", "partitions", "-o", "wide")
            raise SystemExit("not all replicas caught up within a minute")
        time.sleep(0.2)
    console.print(f"\n{then}")
    run("get", "partitions")


def checksum(tables: Iterable[pa.Table]) -> tuple[int, int]:
    """How many records, and a sum over them that does not depend on their order."""
    count = total = 0
    for table in tables:
        keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
        count += len(values)
        for key, value in zip(keys, values, strict=True):
            total += zlib.crc32(value, zlib.crc32(key) if key is not None else 1)
    return count, total % (1 << 64)


def check_everything_came_back(sc: str, csv: Path) -> None:
    """Read the topic from its beginning and compare with the file."""
    console.print("\n[bold]consuming everything back[/] with the Python library")
    expected = checksum(chunk.table for chunk in read_chunks(csv, KeyRule(field="tailnum")))
    began = time.monotonic()
    tables = []
    with runnel.connect(sc) as cluster, Progress(console=console, transient=True) as progress:
        task = progress.add_task("records", total=expected[0])
        for batch in cluster.consumer("flights", start="earliest", stop="latest").batches():
            tables.append(batch)
            progress.advance(task, batch.num_rows)
    seconds = time.monotonic() - began
    found = checksum(tables)
    megabytes = sum(t.nbytes for t in tables) / 1e6
    console.print(
        f"{found[0]:,} records in {seconds:.2f} s"
        f" ({found[0] / seconds:,.0f} records/s, {megabytes / seconds:,.0f} MB/s)"
    )
    if found != expected or found[0] != ROWS:
        raise SystemExit(f"records differ: sent (count, checksum) {expected}, read {found}")
    console.print(f"count and checksum agree with the file: {found[0]:,} records, {found[1]:#x}")


def keep_in_an_archive(directory: Path) -> None:
    """Give the topic an archive, and take its records there: retention may remove them then, and
    readers still see one topic."""
    topic = yaml.safe_load((HERE / "flights.yaml").read_text())
    topic["spec"]["archive"] = {"path": str(directory / "archive")}
    (directory / "flights.yaml").write_text(yaml.safe_dump(topic))
    run("apply", "-f", str(directory / "flights.yaml"))
    run("archive", "run", "flights", "--all")


def main() -> None:
    """Run the demo, and always clean up."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="runnel-demo-") as directory:
        os.environ["RUNNEL_HOME"] = directory
        os.environ.pop("RUNNEL_SC", None)
        data_dir = Path(directory) / "cluster"
        base = free_base_port(data_dir, SPUS)
        sc = f"localhost:{base}"
        csv = write_csv(Path(directory))
        try:
            run("cluster", "start", "--spus", str(SPUS), "--base-port", str(base),
                "--data-dir", str(data_dir))  # fmt: skip
            run("apply", "-f", str(HERE / "flights.yaml"))
            run("wait", "topic", "flights", "--for", "provisioned")
            wait_until_whole("three replicas of every partition are live:")
            produce_while_a_leader_dies(sc, csv)
            wait_until_whole("the killed SPU is back and has caught up; its partitions moved:")
            check_everything_came_back(sc, csv)
            run("consume", "flights", "--from-beginning", "--no-follow", "-n", "3")
            keep_in_an_archive(Path(directory))
            console.print(
                "\n[bold]the ten busiest routes, by Spark from the files[/]",
                "(routes.py; JVM starting)",
            )
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
            run("create", "topic", "routes", "--replication-factor", str(SPUS))
            job = [sys.executable, str(HERE / "routes.py"), sc, "--into", "routes"]
            subprocess.run(job, check=True, env=environment)
            console.print("[bold]the same rows, which Spark wrote to a topic[/]")
            run("consume", "routes", "--from-beginning", "--no-follow", "-n", "3")
        finally:
            with suppress(SystemExit):
                run("cluster", "delete", "--yes")
    console.print(
        f"\nDone in {time.monotonic() - began:.0f} s. Try next, with your own cluster:\n"
        "  . .venv/bin/activate\n"
        "  runnel cluster start --spus 3\n"
        "  runnel create topic hello --partitions 3 --replication-factor 3\n"
        "  echo 'Ada:first record' | runnel produce hello --key-separator :\n"
        "  runnel consume hello --from-beginning --no-follow\n"
        "  runnel describe topic hello\n"
        "  runnel cluster stop"
    )


if __name__ == "__main__":
    main()
