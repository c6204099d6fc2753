"""``runnel cluster backup`` and ``restore``: a file of what the SC keeps in its KV store."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from runnel.cli.cluster.local import DataDirOption, local_cluster, print_notes
from runnel.cli.connection import who
from runnel.cli.failure import say
from runnel.cli.progress import progress
from runnel.cli.render import count
from runnel.local import metadata, offline_admin
from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError


def _plain(file: Path) -> Path:
    """Raises BadParameter for what is no name of a file."""
    try:
        str(file).encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter("the name of the file is not UTF-8") from error
    if str(file) == "-":
        raise typer.BadParameter("a backup is a file: name one")
    return file


BackupArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The file of the backup.", callback=_plain)
]


def backup(
    file: BackupArgument,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Back up the cluster --name, instead of a local one, from this store: a KV URL as"
            " in sc.yaml.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The cluster's name; only with --from.")] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Write a backup of the cluster's objects and of who leads what, while it runs.

    Records are not in it; they are on the SPUs' disks. The file is as secret as the KV store: it
    holds by what the secrets of SPUs are verified. An existing file is not overwritten.
    """
    if (source is None) != (name is None):
        raise InvalidRequestError("--from and --name go together")
    with progress("backing up the cluster") as update:
        if source is not None and name is not None:
            done = offline_admin.back_up_kv(source, name, file, update)
        else:
            done = metadata.back_up(local_cluster(data_dir), file, update)
    print(
        f"wrote {file}: {done['keys']:,} keys ({done['bytes']:,} bytes) at revision"
        f" {done['revision']:,}, sha256 {done['sha256'][:16]}…"
    )


def restore(
    file: BackupArgument,
    kv: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Restore into this store, instead of that of the local cluster: a KV URL as in"
            " sc.yaml. Stop all SCs first.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what is in the file, and whether it is whole."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Put a backup in the place of the cluster's objects; records stay where they are.

    The cluster begins a recovery: nothing is deleted, and each partition is led by the replica that
    holds most. What was created after the backup is not in it, what was deleted is there again. A
    running SC of a local cluster is restarted; SPUs run on.
    """
    cluster = None if kv is not None else local_cluster(data_dir)
    notes: list[str] = []
    with progress("looking at the backup") as update:
        if cluster is not None:
            found = metadata.restore(cluster, file, update, by=who(), dry_run=True)
        else:
            found = offline_admin.restore_kv(file, str(kv), update, by=who(), dry_run=True)
    if dry_run:
        print(f"{file} is whole: {_content(found)}")
        print(_effect(found, _store(kv)))
        return
    if found["replaced"] and not yes:
        _ask(found, _store(kv))
    begin = time.monotonic()
    try:
        with progress("restoring the cluster") as update:
            if cluster is not None:
                done = metadata.restore(cluster, file, update, by=who(), dry_run=False)
                notes = cluster.notes
            else:
                done = offline_admin.restore_kv(file, str(kv), update, by=who(), may_replace=True)
    except KeyboardInterrupt:
        say("the restore is not complete: run it again, or the SC may not start")
        raise
    took = time.monotonic() - begin
    print(f"restored {_content(done)}, in {took:.1f} s; read back and equal")
    print(
        f"the cluster recovers in incarnation {done['incarnation']}"
        + ("" if done.get("restarted") else " once its SC starts")
        + "; see: runnel cluster check"
    )
    print_notes(notes)


def _store(kv: str | None) -> str:
    return "the store of this cluster" if kv is None else without_password(kv)


def _content(found: dict[str, Any]) -> str:
    """What a backup is of, in words."""
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in sorted(found["kinds"].items()))
    return (
        f"cluster {found['cluster']!r} as of {found['at']} (revision {found['revision']:,}, runnel"
        f" {found['version']}): {count(found['keys'], 'key')}, {kinds or 'no objects'}"
    )


def _effect(found: dict[str, Any], store: str) -> str:
    if not found["replaced"]:
        return f"{store} holds nothing of it"
    return f"a restore would replace {count(found['replaced'], 'key')} in {store}"


def _ask(found: dict[str, Any], store: str) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError(
            f"{_effect(found, store)}, and elects every partition anew; add --yes to confirm"
        )
    print(_content(found))
    typer.confirm(
        f"replace {count(found['replaced'], 'key')} in {store}, and elect every partition anew?",
        abort=True,
    )
