"""``runnel cluster``: the local cluster."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from runnel.cli.arguments import TableOutputOption
from runnel.cli.cluster.check import check
from runnel.cli.cluster.recover import recover
from runnel.cli.context_option import data_dir_of_context
from runnel.cli.contexts import note_override
from runnel.cli.failure import say, stderr
from runnel.cli.render import TableOutput, count, print_rows
from runnel.contexts import current_context, load_contexts, runnel_home
from runnel.local import offline_admin
from runnel.local.cluster import LocalCluster
from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError, NotFoundError

app = typer.Typer(help="Start, inspect and stop a cluster on this machine.", no_args_is_help=True)
FOLLOW_POLL_S = 0.2

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=data_dir_of_context,
        help="The cluster's data directory. Default: that of the context, or RUNNEL_HOME/local.",
        show_default=False,
    ),
]


def _cluster(data_dir: Path | None) -> LocalCluster:
    if data_dir is None:
        context = current_context()
        local = context is not None and context.data_dir
        data_dir = Path(local) if local else runnel_home() / "local"
    return LocalCluster(data_dir)


@app.command()
def start(
    spus: Annotated[int | None, typer.Option(help="Number of SPUs. [default: 1]")] = None,
    kv: Annotated[
        str | None,
        typer.Option(
            help="The KV store: sqlite, etcd (started for you), or etcd://HOST:PORT,… (already"
            " running). [default: sqlite]"
        ),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            help="The SC uses P and P+1; SPU i uses P+10+3i and the next two. [default: 9003]"
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The cluster's name; needed if several clusters share an etcd."),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Start a local cluster in the background and wait until it takes records.

    A cluster that is started again keeps its data and settings.
    """
    cluster = _cluster(data_dir)
    plan = cluster.plan(spus, base_port, kv, name)
    before = load_contexts().current
    spus_text = count(plan.spus, "SPU")
    begin = time.monotonic()
    with stderr().status("starting the cluster") as spinner:
        started = cluster.start(plan, spinner.update)
    if not started:
        print(f"the cluster is already running: SC at {plan.sc_address}, {spus_text}")
        return
    took = time.monotonic() - begin
    spus_text = count(cluster.require().spus, "SPU")
    print(f"cluster is ready after {took:.1f} s: SC at {plan.sc_address}, {spus_text}")
    _print_notes(cluster.notes)
    _print_context(before)
    print("next: runnel create topic hello --partitions 3")


def _print_context(before: str | None) -> None:
    """Tell users who have several clusters which one commands talk to now."""
    now = load_contexts().current
    if before not in (None, now):
        say(f"commands use context {now} now; for the one before: runnel context use {before}")
    note_override()


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        stderr().print(f"but {note}")


@app.command()
def migrate(
    kv: Annotated[
        str,
        typer.Option(help="The new store: etcd (started for you), etcd://HOST:PORT,… or sqlite."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Move the cluster --name, instead of a local one, from this store to --kv; both"
            " are KV URLs as in sc.yaml. Stop its SC first.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The cluster's name; only with --from.")] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Move the cluster's objects to another KV store, and verify them.

    Records stay where they are, and SPUs continue to serve; a running SC is restarted on the new
    store. The old store keeps its copy, marked so that no SC starts on it. If the command is
    interrupted, run it again: it completes the move.
    """
    if (source is None) != (name is None):
        raise InvalidRequestError("--from and --name go together")
    begin = time.monotonic()
    notes: list[str] = []
    with stderr().status("moving the cluster") as spinner:
        if source is not None and name is not None:
            moved: dict[str, Any] | None = offline_admin.migrate_kv(
                source, kv, name, spinner.update
            )
        else:
            cluster = _cluster(data_dir)
            moved = cluster.migrate(kv, spinner.update)
            notes = cluster.notes
    took = time.monotonic() - begin
    to = without_password(kv)
    if moved is None:
        print(f"everything was moved to {to} earlier; the cluster uses it now")
    else:
        print(
            f"moved {moved['keys']:,} keys ({moved['bytes']:,} bytes) to {to} in {took:.1f} s;"
            f" read back and equal, sha256 {moved['sha256'][:16]}…"
        )
    _print_notes(notes)


@app.command()
def status(
    data_dir: DataDirOption = None,
    output: TableOutputOption = TableOutput.TABLE,
) -> None:
    """Show the daemons with their ids, pids, ports and states."""
    found = _cluster(data_dir).status()
    if output is TableOutput.JSON:
        print(json.dumps(found, indent=2))
        return
    print(f"cluster in {found['dataDir']}, SC at {found['address']}, objects in {found['kv']}")
    rows = [
        [
            row["name"],
            str(row["id"]),
            str(row["pid"] or "-"),
            " ".join(f"{use}={port}" for use, port in row["ports"].items()),
            row["state"],
        ]
        for row in (*found["etcd"], *found["sc"], *found["spus"])
    ]
    print_rows(["NAME", "ID", "PID", "PORTS", "STATE"], rows)


@app.command()
def stop(data_dir: DataDirOption = None) -> None:
    """Stop the local cluster; its data stays."""
    cluster = _cluster(data_dir)
    with stderr().status("stopping the cluster"):
        stopped = cluster.stop()
    if stopped:
        print(f"stopped {', '.join(stopped)}; the data stays in {cluster.data_dir}")
    else:
        print("the cluster was not running")


@app.command()
def delete(
    data_dir: DataDirOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    keep_objects: Annotated[
        bool,
        typer.Option("--keep-objects", help="Keep the objects in an etcd that runs elsewhere."),
    ] = False,
) -> None:
    """Stop the local cluster and delete all its data."""
    cluster = _cluster(data_dir)
    cluster.require_something()
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidRequestError("this deletes all records; add --yes to confirm")
        typer.confirm(f"delete the cluster in {cluster.data_dir} with all its records?", abort=True)
    cluster.delete(keep_objects=keep_objects)
    print(f"deleted {cluster.data_dir}")


@app.command()
def logs(
    daemon: Annotated[str | None, typer.Argument(help="sc-0, spu-0, … Default: all.")] = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="Print the last N lines.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing new lines.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Print what the daemons logged."""
    cluster = _cluster(data_dir)
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
        time.sleep(FOLLOW_POLL_S)


app.command()(check)
app.command()(recover)
