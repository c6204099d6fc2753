"""``runnel cluster migrate``: the objects move to another KV store."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from runnel.cli.cluster.local import DataDirOption, local_cluster, print_notes
from runnel.cli.progress import progress
from runnel.local import metadata, offline_admin
from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError


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
    with progress("moving the cluster") as update:
        if source is not None and name is not None:
            moved: dict[str, Any] | None = offline_admin.migrate_kv(source, kv, name, update)
        else:
            cluster = local_cluster(data_dir)
            moved = metadata.migrate(cluster, kv, update)
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
    print_notes(notes)
