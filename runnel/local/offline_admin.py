"""Work on a cluster's files while its daemons are down: on the KV store, and on logs on disk.

The client may not import the daemons' packages, so each job runs in a process: the ``admin`` module
of the SC (``sc.admin``) for the KV, of the SPU (``spu.admin``) for logs. It reads one JSON object
from standard input (so that passwords do not show in the list of processes), and writes one JSON
object per line: progress, then ``done`` or ``error``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from schemas.daemon.installation import Program, program_command
from schemas.errors import NotFoundError, RunnelError, error_from

#: Shows a line of progress.
ShowLine = Callable[[str], None]
#: Bytes verified, and bytes in all.
VerifyProgress = Callable[[int, int], None]
#: Called with each line of progress.
_OnLine = Callable[[dict[str, Any]], None]

# The KV store


def inspect_kv(kv: str, cluster: str) -> dict[str, Any]:
    """``uid`` (None if the store never held the cluster), ``keys``, ``moved_to`` and
    ``arriving_from``. Raises UnreachableError and other errors of the store."""
    return _on_kv({"verb": "census", "kv": kv, "cluster": cluster})


def erase_kv(kv: str, cluster: str, *, most_offices: int | None = None) -> int:
    """Delete all keys of a cluster from a store. Returns the number of keys.

    Raises ConflictError if more SCs became its leader than ``most_offices``.
    """
    request = {"verb": "erase", "kv": kv, "cluster": cluster, "mostOffices": most_offices}
    return int(_on_kv(request)["keys"])


def migrate_kv(source: str, target: str, cluster: str, progress: ShowLine) -> dict[str, Any]:
    """Move a cluster: ``uid``, ``keys``, ``bytes``, ``sha256`` and ``left`` of what was moved.

    Raises ConflictError, NotFoundError, UnreachableError."""
    return _on_kv({"verb": "migrate", "kv": source, "to": target, "cluster": cluster}, progress)


def back_up_kv(kv: str, cluster: str, path: Path, progress: ShowLine) -> dict[str, Any]:
    """Write a file of all that a store holds of a cluster: ``uid``, ``revision``, ``keys``,
    ``bytes`` and ``sha256``.

    Raises ConflictError where the file exists, NotFoundError, StorageFailedError,
    UnreachableError."""
    request = {"verb": "backUp", "kv": kv, "cluster": cluster, "path": str(path.absolute())}
    return _on_kv(request, progress)


def restore_kv(
    path: Path,
    kv: str,
    progress: ShowLine,
    *,
    by: str,
    may_replace: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Put a backup into a store that no SC uses: ``cluster``, ``uid``, ``at``, ``revision`` and
    ``version`` of the backup, ``keys``, ``bytes`` and ``kinds`` in it, the ``incarnation`` that
    begins, and how many keys were ``replaced``. With ``dry_run`` nothing is changed.

    Raises InvalidRequestError for a file that is no whole backup, UnsupportedError for one of a
    later version, ConflictError where the store is in use, holds another cluster, or this one and
    not ``may_replace``, NotFoundError, UnreachableError."""
    request = {
        "verb": "restore",
        "kv": kv,
        "path": str(path.absolute()),
        "by": by,
        "mayReplace": may_replace,
        "dryRun": dry_run,
    }
    return _on_kv(request, progress)


# Logs on disk


def describe_logs(path: Path) -> list[dict[str, Any]]:
    """Meta, checkpoint, segments and indexes of the partitions in a directory.

    Raises NotFoundError, InvalidRequestError if it is not such a directory, ConflictError
    while an SPU uses it.
    """
    return _on_logs("describe", path)


def verify_logs(path: Path, progress: VerifyProgress) -> list[dict[str, Any]]:
    """The problems of the partitions in a directory; raises what `describe_logs` raises."""
    return _on_logs("verify", path, progress)


def choose_partition(
    partitions: list[dict[str, Any]], name: str | None, path: Path
) -> dict[str, Any]:
    """The partition of this name, or the only one. Raises NotFoundError."""
    names = {str((one["meta"] or {}).get("name", one["directory"])): one for one in partitions}
    if name is None and len(names) == 1:
        return partitions[0]
    if name in names:
        return names[name]
    wanted = "several partitions: name one of them" if name is None else f"no partition {name}"
    raise NotFoundError(f"{path} holds {wanted}; there are {', '.join(sorted(names)) or 'none'}")


def _on_kv(request: dict[str, Any], progress: ShowLine | None = None) -> dict[str, Any]:
    def say(line: dict[str, Any]) -> None:
        if progress is not None:
            progress(f"{line['stage']}: {line['count']:,} of {line['total']:,}")

    return _run_admin(Program.SC_ADMIN, request, "the work on the store", say)


def _on_logs(verb: str, path: Path, progress: VerifyProgress | None = None) -> list[dict[str, Any]]:
    def say(line: dict[str, Any]) -> None:
        if progress is not None:
            progress(line["count"], line["total"])

    done = _run_admin(
        Program.SPU_ADMIN, {"verb": verb, "path": str(path)}, f"the look at {path}", say
    )
    return cast(list[dict[str, Any]], done["partitions"])


def _run_admin(
    program: Program, request: dict[str, Any], what: str, on_line: _OnLine | None = None
) -> dict[str, Any]:
    """The result of an admin process. Raises the error that it reports, or a RunnelError that names
    ``what`` if it ends without a report."""
    pipe = subprocess.PIPE
    last = "it said nothing"
    with subprocess.Popen(
        program_command(program),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        to, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        to.write(json.dumps(request))
        to.close()
        for text in answers:
            try:
                line = json.loads(text)
            except ValueError:
                # The last output of a process that cannot run.
                last = text.strip() or last
                continue
            if "done" in line:
                return cast(dict[str, Any], line["done"])
            if "error" in line:
                raise error_from(**line["error"])
            if on_line is not None and "stage" in line:
                on_line(line)
    raise RunnelError(f"{what} ended early: {last}")
