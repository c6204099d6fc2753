"""``runnel cluster logs``: what the daemons logged, from their memory or from a local file.

Running daemons are asked for their last lines, wherever they are. The file of a local daemon is
printed as it is, also when the daemon has ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from runnel import environment
from runnel.cli.arguments import ScOption, TableOutputOption
from runnel.cli.cluster.local import local_cluster
from runnel.cli.context_option import data_dir_of_context
from runnel.cli.failure import EXIT_NOT_NOW, say, warn
from runnel.cli.render import TableOutput
from runnel.cli.times import parse_since
from runnel.contexts import default_sc
from runnel.local.cluster import ClusterDaemons
from schemas.daemon.log_options import LogLevel
from schemas.daemon.log_text import format_line
from schemas.errors import InvalidRequestError, NotFoundError, UnreachableError

FOLLOW_FILE_S: Final = 0.2
FOLLOW_DAEMONS_S: Final = 1.0
DEFAULT_LINES: Final = 50
MAX_CAUSE: Final = 256

SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION|TIME",
        help="Only what happened since then: 10m ago, or 2026-01-31T12:00:00 (UTC).",
        show_default=False,
    ),
]


def logs(
    context: typer.Context,
    daemon: Annotated[
        str | None,
        typer.Argument(
            help="sc-0, spu-0, …: print the file of this daemon of a local cluster instead, also"
            " after its end.",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--lines",
            min=0,
            help=f"Print the last N lines. Default: {DEFAULT_LINES}; with --since or --cause, all.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing new lines.")
    ] = False,
    since: SinceOption = None,
    level: Annotated[
        LogLevel, typer.Option(help="Only lines of this level, or more severe ones.")
    ] = LogLevel.DEBUG,
    cause: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only lines with this causality id.", show_default=False),
    ] = None,
    spu: Annotated[
        list[str] | None,
        typer.Option(
            help="Only lines of this SPU, by its name or id; may be repeated.", show_default=False
        ),
    ] = None,
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Print the files of the local cluster in this directory instead.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print what the SC and all SPUs logged last, in the order of time.

    Daemons keep their last 5000 lines in memory. One that cannot be reached is named on standard
    error; the exit code is 5 then. -o json prints one object a line.
    """
    selects = any((since, cause, spu, sc, level is not LogLevel.DEBUG)) or (
        output is not TableOutput.TABLE
    )
    if daemon is not None or data_dir is not None:
        if selects:
            raise InvalidRequestError(
                "DAEMON and --data-dir print files as they are; leave them out, or --since,"
                " --level, --cause, --spu, --sc and -o"
            )
        chosen = local_cluster(data_dir_of_context(context, data_dir))
        _print_files(chosen, daemon, DEFAULT_LINES if lines is None else lines, follow=follow)
        return
    if cause is not None and not 0 < len(cause) <= MAX_CAUSE:
        raise InvalidRequestError(f"--cause: a causality id has 1 to {MAX_CAUSE} characters")
    began = parse_since(since, datetime.now(UTC)) if since is not None else None
    if lines is None and began is None and cause is None:
        lines = DEFAULT_LINES
    try:
        complete = _print_lines(sc, began, level, cause, spu or [], lines, output, follow=follow)
    except UnreachableError as error:
        cluster = None if selects or environment.SC.value() else local_cluster(None)
        if cluster is None or not cluster.log_names():
            raise
        warn(error.message)
        say(f"these are the log files of the cluster in {cluster.data_dir}:")
        _print_files(cluster, None, DEFAULT_LINES if lines is None else lines, follow=follow)
        complete = False
    if not complete:
        raise typer.Exit(EXIT_NOT_NOW)


def _print_lines(
    sc: str | None,
    since: datetime | None,
    level: LogLevel,
    cause: str | None,
    spus: Sequence[str],
    lines: int | None,
    output: TableOutput,
    *,
    follow: bool,
) -> bool:
    """Print the lines of running daemons; gives whether all answered."""
    from runnel.admin.client import Admin
    from runnel.admin.http import ScClient
    from runnel.cli.connection import who
    from runnel.logs.daemons import DaemonLogs, LogLines, Wanted, choose
    from runnel.loop_thread import LoopThread
    from schemas.daemon.log_ring import MAX_ANSWER_LINES
    from schemas.objects.spu import Spu

    # A daemon gives at least one line, of which none is printed for `-n 0`.
    limit = MAX_ANSWER_LINES if lines is None else max(1, min(lines, MAX_ANSWER_LINES))
    wanted = Wanted(since, level, cause, limit)
    thread = LoopThread("runnel cluster logs")

    async def opened() -> tuple[ScClient, DaemonLogs]:
        client = ScClient.parse(default_sc() if sc is None else sc, who())
        try:
            found = [obj for obj in await Admin(client).list("spus") if isinstance(obj, Spu)]
            return client, DaemonLogs(None if spus else client, choose(found, spus))
        except BaseException:
            await client.close()
            raise

    away: dict[str, str] = {}

    def show(gathered: LogLines) -> None:
        for name, why in gathered.away.items():
            if name not in away:
                warn(f"{name} does not answer: {why}")
        for name in away.keys() - gathered.away.keys():
            say(f"{name} answers again")
        away.clear()
        away.update(gathered.away)
        _print(gathered.lines, output)

    try:
        client, daemons = thread.call(opened())
        try:
            first = thread.call(daemons.read(wanted))
            if lines is not None:
                first.lines = first.lines[-lines:] if lines else []
            elif first.notes:
                for note in first.notes:
                    warn(note)
            show(first)
            wanted = Wanted(since, level, cause, MAX_ANSWER_LINES)
            while follow:
                time.sleep(FOLLOW_DAEMONS_S)
                show(thread.call(daemons.read(wanted)))
        finally:
            thread.call(daemons.close())
            thread.call(client.close())
    finally:
        thread.stop()
    return not away


def _print(lines: Iterable[dict[str, object]], output: TableOutput) -> None:
    lines = list(lines)
    if output is TableOutput.JSON:
        for line in lines:
            print(json.dumps(line), flush=True)
        return
    width = max((len(str(line.get("process", ""))) for line in lines), default=0)
    colors = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    for line in lines:
        print(format_line(line, colors=colors, process_width=width), flush=True)


def _print_files(cluster: ClusterDaemons, daemon: str | None, lines: int, *, follow: bool) -> None:
    """Print the ends of the files of all local daemons, or of one. Raises NotFoundError."""
    names = cluster.log_names()
    if daemon is not None:
        if daemon not in names:
            known = ", ".join(names) or "none: the cluster was never started"
            raise NotFoundError(f"there is no log of {daemon!r}; logs: {known}")
        names = [daemon]
    positions = {}
    for name in names:
        if len(names) > 1:
            print(f"==> {name} <==")
        for line in cluster.log_tail(name, lines):
            print(line)
        positions[name] = cluster.log_file(name).stat().st_size
    while follow:
        for name, position in positions.items():
            with cluster.log_file(name).open("rb") as file:
                file.seek(position)
                fresh = file.read()
            positions[name] = position + len(fresh)
            for line in fresh.decode(errors="replace").splitlines():
                print(f"{name}: {line}" if len(names) > 1 else line, flush=True)
        time.sleep(FOLLOW_FILE_S)
