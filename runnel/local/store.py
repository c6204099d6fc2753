"""Work on a cluster's KV store without an SC, by a process of the SC's own (``sc.admin``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runnel.local.offline_admin import run_admin
from schemas.daemon.installation import Program

#: A line to show while it takes time.
Progress = Callable[[str], None]


def census(kv: str, cluster: str) -> dict[str, Any]:
    """``uid`` (None where the store never held the cluster), ``keys``, ``moved_to`` and
    ``arriving_from``. Raises UnreachableError and what else the store says."""
    return _run({"verb": "census", "kv": kv, "cluster": cluster})


def erase(kv: str, cluster: str, *, most_offices: int | None = None) -> int:
    """Delete all of a cluster from a store. Gives the number of keys.

    Raises ConflictError where more SCs took office over it than ``most_offices``.
    """
    request = {"verb": "erase", "kv": kv, "cluster": cluster, "mostOffices": most_offices}
    return int(_run(request)["keys"])


def migrate(source: str, target: str, cluster: str, progress: Progress) -> dict[str, Any]:
    """Move a cluster: ``uid``, ``keys``, ``bytes``, ``sha256`` and ``left`` of what was moved.

    Raises ConflictError, NotFoundError, UnreachableError."""
    return _run({"verb": "migrate", "kv": source, "to": target, "cluster": cluster}, progress)


def _run(request: dict[str, Any], progress: Progress | None = None) -> dict[str, Any]:
    def say(line: dict[str, Any]) -> None:
        if progress is not None:
            progress(f"{line['stage']}: {line['count']:,} of {line['total']:,}")

    return run_admin(Program.SC_ADMIN, request, "the work on the store", say)
