"""Work on a cluster's KV store without an SC, by a process of the SC's own (``sc.admin``)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, cast

from schemas.errors import RunnelError, error_from

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
    command = [sys.executable, "-P", "-m", "sc.admin"]
    pipe = subprocess.PIPE
    last = "it said nothing"
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        to, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        to.write(json.dumps(request))
        to.close()
        for text in answers:
            try:
                line = json.loads(text)
            except ValueError:
                # The last words of a process that cannot run.
                last = text.strip() or last
                continue
            if "done" in line:
                return cast(dict[str, Any], line["done"])
            if "error" in line:
                raise error_from(**line["error"])
            if progress is not None and "stage" in line:
                progress(f"{line['stage']}: {line['count']:,} of {line['total']:,}")
    raise RunnelError(f"the work on the store ended early: {last}")
