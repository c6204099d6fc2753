"""``runnel cluster``: the local cluster."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

from runnel.cli.arguments import TableOutputOption
from runnel.cli.cluster.backup import backup, restore
from runnel.cli.cluster.check import check
from runnel.cli.cluster.diagnostics import diagnostics
from runnel.cli.cluster.local import DataDirOption, local_cluster, print_notes
from runnel.cli.cluster.logs import logs
from runnel.cli.cluster.migrate import migrate
from runnel.cli.cluster.rebalance import rebalance
from runnel.cli.cluster.recover import recover
from runnel.cli.contexts import note_override
from runnel.cli.failure import say
from runnel.cli.progress import going_on, progress
from runnel.cli.render import TableOutput, count, print_rows
from runnel.contexts import load_contexts
from runnel.local.cluster import ClusterDaemons
from runnel.local.plan import DASHBOARD
from schemas.errors import InvalidRequestError

app = typer.Typer(help="Start, inspect and stop a cluster on this machine.", no_args_is_help=True)


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
    scs: Annotated[
        int | None,
        typer.Option(
            help="Number of SCs, of which one leads; more than one need --kv etcd. [default: 1]"
        ),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            help="SC k uses P+2k and the next one; SPU i uses P+10+3i and the next two."
            " [default: 9003]"
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="The cluster's name; needed if several clusters share an etcd."),
    ] = None,
    dashboard: Annotated[
        bool | None,
        typer.Option(
            "--dashboard/--no-dashboard",
            help="Serve a dashboard to browsers, at port P+6. [default: yes]",
        ),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Start a local cluster in the background and wait until it takes records.

    A cluster that is started again keeps its data and settings.
    """
    cluster = local_cluster(data_dir)
    is_new = cluster.load() is None
    plan = cluster.plan(spus, base_port, kv, name, dashboard=dashboard, scs=scs)
    before = load_contexts().current
    spus_text = count(plan.spus, "SPU")
    begin = time.monotonic()
    with progress("starting the cluster") as update:
        started = cluster.start(plan, update)
    if not started:
        print(f"the cluster is already running: SC at {plan.sc_address}, {spus_text}")
        _print_dashboard(cluster)
        print_notes(cluster.notes)
        return
    took = time.monotonic() - begin
    spus_text = count(cluster.require().spus, "SPU")
    print(f"cluster is ready after {took:.1f} s: SC at {plan.sc_address}, {spus_text}")
    _print_dashboard(cluster)
    print_notes(cluster.notes)
    _print_context(before)
    # One that is started again has its topics.
    print(f"next: runnel {'create topic hello --partitions 3' if is_new else 'get topics'}")


def _print_dashboard(cluster: ClusterDaemons) -> None:
    state = cluster.require()
    if DASHBOARD in state.processes:
        print(f"dashboard: {state.plan(cluster.data_dir).dashboard_url}")


def _print_context(before: str | None) -> None:
    """Tell users who have several clusters which one commands talk to now."""
    now = load_contexts().current
    if before not in (None, now):
        say(f"commands use context {now} now; for the one before: runnel context use {before}")
    note_override()


@app.command()
def status(
    data_dir: DataDirOption = None,
    output: TableOutputOption = TableOutput.TABLE,
) -> None:
    """Show the daemons with their ids, pids, ports and states."""
    found = local_cluster(data_dir).status()
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
        for row in (*found["etcd"], *found["sc"], *found["dashboard"], *found["spus"])
    ]
    print_rows(["NAME", "ID", "PID", "PORTS", "STATE"], rows)


@app.command()
def stop(data_dir: DataDirOption = None) -> None:
    """Stop the local cluster; its data stays."""
    cluster = local_cluster(data_dir)
    with progress("stopping the cluster"):
        stopped = cluster.stop()
    if stopped:
        print(f"stopped {', '.join(stopped)}; the data stays in {cluster.data_dir}")
    else:
        print("the cluster was not running")


@app.command()
def restart(
    rolling: Annotated[
        bool,
        typer.Option(help="One daemon after the other, while clients go on."),
    ] = True,
    data_dir: DataDirOption = None,
) -> None:
    """Restart the daemons of the local cluster, for a new version for example.

    SCs come first. Each SPU has others lead before it stops, and the next one follows when all
    replicas are live again. With --no-rolling, all stop, and all start.
    """
    cluster = local_cluster(data_dir)
    again = "not all is restarted; to start what is away, and go on: runnel cluster restart"
    with going_on(again), progress("restarting the cluster") as update:
        if rolling:
            restarted = cluster.restart(update)
        else:
            restarted = cluster.stop()
            cluster.start(cluster.plan(), update, remember=False)
    print(f"restarted {', '.join(restarted)}")


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
    cluster = local_cluster(data_dir)
    cluster.require_something()
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidRequestError("this deletes all records; add --yes to confirm")
        typer.confirm(f"delete the cluster in {cluster.data_dir} with all its records?", abort=True)
    cluster.delete(keep_objects=keep_objects)
    print(f"deleted {cluster.data_dir}")


app.command()(migrate)
app.command()(backup)
app.command()(restore)
app.command()(logs)
app.command()(check)
app.command()(diagnostics)
app.command()(recover)
app.command()(rebalance)
