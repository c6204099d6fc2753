"""``runnel archive``: run archiving, list the files of an archive, verify them."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

import runnel
from runnel.cli import completion
from runnel.cli.arguments import ScOption, TableOutputOption, TopicArgument
from runnel.cli.connection import connected
from runnel.cli.failure import EXIT_FAILED
from runnel.cli.render import TableOutput, count, print_rows
from runnel.records.record import time_of
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.quantities import parse_duration_ms, readable_size
from schemas.objects.topic import Topic, partition_name

if TYPE_CHECKING:
    from runnel.archive.manifest import ArchivedFile
    from runnel.archiving.run import ArchiveRun
    from runnel.archiving.writing import ArchiveTask

app = typer.Typer(
    help="Take topics into their archives, and show what is there.", no_args_is_help=True
)


@app.command()
def run(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...",
            help="Default: all topics with an archive.",
            autocompletion=completion.topics,
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also records that are not due yet.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go on, with a run so often: 10m. Ctrl-C ends it.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Files that are written at once.")] = 2,
    sc: ScOption = None,
) -> None:
    """Archive what is due: segments that were completed spec.archive.after ago.

    Each file is durable and listed before replicas may remove its records. Ended in any way, the
    next run goes on where this one was.
    """
    pause_s = None if every is None else _pause_s(every)
    with connected(sc) as cluster:
        while True:
            try:
                failed = _run_all(cluster, topics, everything=everything, workers=workers)
            except RunnelError as error:
                if pause_s is None or isinstance(error, InvalidRequestError | NotFoundError):
                    raise
                # The next run goes on where this one was.
                print(f"error: {error.message}", file=sys.stderr)
            if pause_s is None:
                break
            time.sleep(pause_s)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _pause_s(every: str) -> float:
    try:
        pause_s = parse_duration_ms(every) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--every: {error}") from error
    if pause_s < 1:
        raise InvalidRequestError(f"--every is {every!r}; give at least 1s")
    return pause_s


def _run_all(
    cluster: runnel.Cluster, topics: list[str] | None, *, everything: bool, workers: int
) -> bool:
    """Whether something failed; it was printed."""
    names = topics or _with_archive(cluster)
    if not names:
        print("no topic has an archive; apply one with spec.archive.path")
    failed = False
    for name in names:
        try:
            done = cluster.archive(name, everything=everything, workers=workers, on_file=_on_file)
        except RunnelError as error:
            if len(names) == 1:
                raise
            print(f"error: {name}: {error.message}", file=sys.stderr)
            failed = True
        else:
            failed |= _report(done)
    return failed


def _with_archive(cluster: runnel.Cluster) -> list[str]:
    return [
        one.name
        for one in cluster.list("topic")
        if isinstance(one, Topic) and one.spec.archive is not None
    ]


def _on_file(task: ArchiveTask, file: ArchivedFile, left: int) -> None:
    name = partition_name(task.place.topic, task.partition)
    records, size = count(file.rows, "record"), readable_size(file.size)
    more = f"; {count(left, 'file')} to come" if left else ""
    print(f"{name}: offsets {file.base} to {file.end - 1}, {records}, {size}{more}", flush=True)


def _report(done: ArchiveRun) -> bool:
    if done.relisted:
        print(f"{done.topic}: listed {count(done.relisted, 'file')} that nobody had listed")
    for index, at in sorted(done.diverged.items()):
        print(
            f"warning: {partition_name(done.topic, index)}: the log holds other records than the"
            f" archive from offset {at} on, as after an unclean election. What the log holds is"
            " archived from there; the former records stay in their files, and readers leave them"
            " out",
            file=sys.stderr,
        )
    for index, error in sorted(done.failures.items()):
        name = partition_name(done.topic, index)
        print(f"error: {name}: not archived: {error.message}", file=sys.stderr)
    files = count(len(done.files), "file")
    removed = f"; deleted {count(done.removed, 'file')} that nobody needs" if done.removed else ""
    print(
        f"{done.topic}: archived {count(done.rows, 'record')} in {files},"
        f" {readable_size(done.size)}{removed}",
        flush=True,
    )
    return bool(done.failures)


@app.command(name="list")
def list_(
    topic: TopicArgument, output: TableOutputOption = TableOutput.TABLE, sc: ScOption = None
) -> None:
    """List the files in the archive of a topic."""
    with connected(sc) as cluster:
        found = cluster.archived(topic)
    partitions = sorted(found.listed.partitions.items())
    if output is TableOutput.JSON:
        print(json.dumps({"directory": str(found.place.directory), "partitions": [
            {
                "partition": index,
                "before": one.before,
                "removedBefore": one.removed_before,
                "divergedAt": one.diverged_at,
                "files": [
                    {
                        "path": str(found.place.file(index, file.name)),
                        "base": file.base,
                        "end": file.end,
                        "readableBefore": file.until,
                        "records": file.rows,
                        "bytes": file.size,
                        "firstTime": _time(file, file.first_us),
                        "lastTime": _time(file, file.last_us),
                    }
                    for file in one.files
                ],
            }
            for index, one in partitions
        ]}, indent=2))  # fmt: skip
        return
    rows = [
        (
            partition_name(topic, index),
            str(file.base),
            str(file.end),
            str(file.rows),
            readable_size(file.size),
            _time(file, file.last_us) or "-",
            file.name if file.until == file.end else f"{file.name} (readable below {file.until})",
        )
        for index, one in partitions
        for file in one.files
    ]
    print(f"directory: {found.place.directory}")
    if rows:
        print_rows(("PARTITION", "BASE", "END", "RECORDS", "SIZE", "LAST TIME", "FILE"), rows)
    else:
        print(f"nothing is archived yet; to begin: runnel archive run {topic}")


def _time(file: ArchivedFile, time_us: int) -> str | None:
    return time_of(time_us).isoformat(timespec="milliseconds") if file.rows else None


@app.command()
def verify(topic: TopicArgument, sc: ScOption = None) -> None:
    """Read every file in the archive of a topic, and check it against what was written."""
    checked = 0

    def on_file(index: int, file: ArchivedFile) -> None:
        nonlocal checked
        checked += 1
        if sys.stderr.isatty():
            print(f"\r{count(checked, 'file')} checked", end="", file=sys.stderr, flush=True)

    with connected(sc) as cluster:
        problems = cluster.verify_archive(topic, on_file)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for one in problems:
        print(f"error: {partition_name(topic, one.partition)}: {one.path}: {one.reason}")
    if problems:
        raise typer.Exit(EXIT_FAILED)
    print(f"{topic}: {count(checked, 'file')}, all as they were written")
