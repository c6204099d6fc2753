"""``runnel partition verify``: the findings about replicas, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.cli.connection import who
from runnel.cli.failure import EXIT_FAILED, EXIT_NOT_NOW, EXIT_OK, stderr
from runnel.cli.render import TableOutput, print_rows
from runnel.contexts import default_sc
from runnel.local.offline_admin import verify_logs
from runnel.loop_thread import LoopThread
from runnel.net.address import parse_addresses
from runnel.partition.replicas import locate
from runnel.partition.verify import (
    Finding,
    PartitionResult,
    ReplicaResult,
    Verdict,
    verify_partition,
)
from runnel.partition.verify import Progress as Told

_HEADINGS = ["PARTITION", "SPU", "RESULT", "SEGMENTS", "INDEXES", "BATCHES", "RECORDS", "BYTES"]


def verify_cluster(names: Sequence[str], output: TableOutput, sc: str | None) -> int:
    """Verify partitions online, print what was found, and give the exit code."""
    thread = LoopThread("runnel partition verify")
    try:
        with _progress() as progress:
            results = thread.call(_verify_all(names, sc, progress))
    finally:
        thread.stop()
    if output is TableOutput.JSON:
        print(json.dumps({"items": [partition_json(one) for one in results]}, indent=2))
    else:
        print_results(results)
    return exit_code([one.worst for one in results])


async def _verify_all(
    names: Sequence[str], sc: str | None, progress: _Bars
) -> list[PartitionResult]:
    client = ScClient(parse_addresses(default_sc() if sc is None else sc), who())
    try:
        located = await locate(Admin(client), names)
        # One after another, so that no SPU verifies two at a time.
        return [await verify_partition(one, progress.of(one.name)) for one in located]
    finally:
        await client.close()


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 where anything is damaged or differs, else 5 where a replica could not be asked, else 0."""
    if Verdict.DAMAGED in verdicts or Verdict.DIFFERS in verdicts:
        return EXIT_FAILED
    return EXIT_NOT_NOW if Verdict.UNCHECKED in verdicts else EXIT_OK


def print_results(results: Sequence[PartitionResult]) -> None:
    """A row for each replica; below the table the findings, and which replicas are identical."""
    rows = [_row(one.partition, replica) for one in results for replica in one.replicas]
    print_rows([*_HEADINGS, "OFFSETS", "DIGEST"], rows)
    for one in results:
        for replica in one.replicas:
            place = f"{one.partition} on SPU {replica.spu}"
            if replica.reason is not None:
                print(f"{place}: {replica.reason}")
            for finding in replica.findings:
                print(f"{place}: {finding_line(finding)}")
            if replica.checked is not None and not replica.is_whole:
                print(f"{place}: it takes no part until it is rebuilt from its leader")
        _print_comparison(one)


def _print_comparison(one: PartitionResult) -> None:
    if len(one.alike) > 1 and one.compared_upto > one.compared_from:
        spus = ", ".join(map(str, one.alike))
        upto = one.compared_upto - 1
        print(
            f"{one.partition}: identical from offset {one.compared_from} to {upto} on SPUs {spus}"
        )


def _row(partition: str, replica: ReplicaResult) -> list[str]:
    who = f"{replica.spu} (leader)" if replica.leads else str(replica.spu)
    checked = replica.checked
    if checked is None:
        return [partition, who, replica.verdict.value, *"-------"]
    return [
        partition,
        who,
        replica.verdict.value,
        f"{checked.segments:,}",
        f"{checked.indexes:,}",
        f"{checked.batches:,}",
        f"{checked.records:,}",
        f"{checked.checked_bytes:,}",
        f"{checked.log_start}-{checked.next_offset - 1}",
        (_digest(replica) or "-")[:12],
    ]


def _digest(replica: ReplicaResult) -> str | None:
    """The digest of a replica; None if it cannot be compared."""
    checked = replica.checked
    if checked is None or not replica.is_whole or checked.compared_from < 0:
        return None
    return checked.digest.hex()


def finding_line(finding: Finding) -> str:
    """One finding as a line: file, position, what it is."""
    at = f" at byte {finding.position}" if finding.position else ""
    kind = "" if finding.is_damage else " (no damage)"
    return f"{finding.file}{at}: {finding.reason}{kind}"


def partition_json(one: PartitionResult) -> dict[str, Any]:
    """A partition with its replicas, as ``-o json`` prints it."""
    return {
        "partition": one.partition,
        "result": one.worst.value,
        "comparedFrom": one.compared_from,
        "comparedUpto": one.compared_upto,
        "alike": list(one.alike),
        "replicas": [_replica_json(replica) for replica in one.replicas],
    }


def _replica_json(replica: ReplicaResult) -> dict[str, Any]:
    checked = replica.checked
    found: dict[str, Any] = {
        "spu": replica.spu,
        "leader": replica.leads,
        "result": replica.verdict.value,
        "reason": replica.reason,
        "problems": [finding_json(finding) for finding in replica.findings],
    }
    if checked is not None:
        found |= {
            "logStart": checked.log_start,
            "lac": checked.lac,
            "checkedUpto": checked.next_offset,
            "segments": checked.segments,
            "indexes": checked.indexes,
            "batches": checked.batches,
            "records": checked.records,
            "bytes": checked.checked_bytes,
            "digest": _digest(replica),
        }
    return found


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding as ``-o json`` prints it."""
    return {
        "file": finding.file,
        "position": finding.position,
        "reason": finding.reason,
        "severity": finding.severity,
        "rebuilt": finding.rebuilt,
    }


def verify_offline(path: Path, output: TableOutput) -> int:
    """Verify the partitions in a directory that no SPU uses; prints, and gives the exit code."""
    with _progress() as progress:
        found = verify_logs(path, progress.of(path.name))
    if output is TableOutput.JSON:
        print(json.dumps({"items": [_directory_json(one) for one in found]}, indent=2))
    else:
        print_rows(
            ["PARTITION", *_HEADINGS[2:], "OFFSETS"],
            [
                [
                    _name(one),
                    _verdict(one).value,
                    *(f"{one[key]:,}" for key in ("segments", "indexes", "batches", "records")),
                    f"{one['checkedBytes']:,}",
                    f"{one['logStart'] if one['logStart'] is not None else '?'}-{one['end'] - 1}",
                ]
                for one in found
            ],
        )
        for one in found:
            for problem in one["problems"]:
                print(f"{one['directory']}/{finding_line(Finding.from_json(problem))}")
    return exit_code([_verdict(one) for one in found])


def _name(one: dict[str, Any]) -> str:
    return str((one["meta"] or {}).get("name", Path(one["directory"]).name))


def _verdict(one: dict[str, Any]) -> Verdict:
    harmed = any(Finding.from_json(problem).is_damage for problem in one["problems"])
    return Verdict.DAMAGED if harmed else Verdict.OK


def _directory_json(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": _name(one),
        "directory": one["directory"],
        "result": _verdict(one).value,
        "logStart": one["logStart"],
        "checkedUpto": one["end"],
        "segments": one["segments"],
        "indexes": one["indexes"],
        "batches": one["batches"],
        "records": one["records"],
        "bytes": one["checkedBytes"],
        "problems": one["problems"],
    }


class _Bars:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("verify", total=None, name="")

    def of(self, name: str) -> Told:
        def told(done: int, total: int) -> None:
            self._progress.update(self._task, completed=done, total=total, name=name)

        return told


@contextmanager
def _progress() -> Iterator[_Bars]:
    columns = (
        TextColumn("{task.fields[name]}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr(), transient=True) as progress:
        yield _Bars(progress)
