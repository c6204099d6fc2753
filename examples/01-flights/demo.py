"""``make demo``: a cluster, a real data set through it, and Spark on top, in three minutes.

Everything goes through the command line and the library as a user has them. The cluster lives in
a temporary directory on free ports, and nothing of it is left behind.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from data import ROWS, write_csv
from rich.console import Console
from rich.progress import Progress

import runnel
from runnel.cli.inputs import KeyRule, read_chunks
from runnel.local.processes import free_base_port

HERE = Path(__file__).parent
SPUS = 3
console = Console(highlight=False, soft_wrap=True)


def run(*arguments: str) -> None:
    """Run a ``runnel`` command as a user would, and show it."""
    console.print(f"\n[bold]$ runnel {shlex.join(arguments)}[/]")
    code = subprocess.run([sys.executable, "-m", "runnel.cli.main", *arguments]).returncode
    if code:
        raise SystemExit(f"that failed with exit code {code}")


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
    begin = time.monotonic()
    tables = []
    with runnel.connect(sc) as cluster, Progress(console=console, transient=True) as progress:
        task = progress.add_task("records", total=expected[0])
        for batch in cluster.consumer("flights", start="earliest", stop="latest").batches():
            tables.append(batch)
            progress.advance(task, batch.num_rows)
    seconds = time.monotonic() - begin
    found = checksum(tables)
    megabytes = sum(t.nbytes for t in tables) / 1e6
    console.print(
        f"{found[0]:,} records in {seconds:.2f} s"
        f" ({found[0] / seconds:,.0f} records/s, {megabytes / seconds:,.0f} MB/s)"
    )
    if found != expected or found[0] != ROWS:
        raise SystemExit(f"records differ: sent (count, checksum) {expected}, read {found}")
    console.print(f"count and checksum agree with the file: {found[0]:,} records, {found[1]:#x}")


def main() -> None:
    """Run the demo, and clean up whatever happens."""
    begin = time.monotonic()
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
            run("get", "partitions")
            run("produce", "flights", "--file", str(csv), "--key-field", "tailnum")
            check_everything_came_back(sc, csv)
            run("consume", "flights", "--from-beginning", "--no-follow", "-n", "3")
            console.print(
                "\n[bold]the ten busiest routes, by Spark[/]", "(routes.py; JVM starting)"
            )
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
            job = [sys.executable, str(HERE / "routes.py"), sc]
            subprocess.run(job, check=True, env=environment)
        finally:
            with suppress(SystemExit):
                run("cluster", "delete", "--yes")
    console.print(
        f"\nDone in {time.monotonic() - begin:.0f} s. Try next, with your own cluster:\n"
        "  . .venv/bin/activate\n"
        "  runnel cluster start --spus 3\n"
        "  runnel create topic hello --partitions 3\n"
        "  echo 'Ada:first record' | runnel produce hello --key-separator :\n"
        "  runnel consume hello --from-beginning --no-follow\n"
        "  runnel describe topic hello\n"
        "  runnel cluster stop"
    )


if __name__ == "__main__":
    main()
