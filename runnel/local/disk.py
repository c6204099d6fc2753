"""Logs on this machine's disks while no SPU has them open, by a process of the SPU's own
(``spu.admin``), as this package may not import it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from schemas.errors import NotFoundError, RunnelError, error_from

#: Bytes that were verified, and bytes that there are.
Progress = Callable[[int, int], None]


def describe(path: Path) -> list[dict[str, Any]]:
    """Meta, checkpoint, segments and indexes of the partitions in a directory.

    Raises NotFoundError, InvalidRequestError for what is none, ConflictError while an SPU uses it.
    """
    return _run("describe", path)


def verify_directory(path: Path, progress: Progress) -> list[dict[str, Any]]:
    """What is wrong with the partitions in a directory; raises as `describe` does."""
    return _run("verify", path, progress)


def choose(partitions: list[dict[str, Any]], name: str | None, path: Path) -> dict[str, Any]:
    """The partition of this name, or the only one. Raises NotFoundError."""
    names = {str((one["meta"] or {}).get("name", one["directory"])): one for one in partitions}
    if name is None and len(names) == 1:
        return partitions[0]
    if name in names:
        return names[name]
    wanted = "several partitions: name one of them" if name is None else f"no partition {name}"
    raise NotFoundError(f"{path} holds {wanted}; there are {', '.join(sorted(names)) or 'none'}")


def _run(verb: str, path: Path, progress: Progress | None = None) -> list[dict[str, Any]]:
    command = [sys.executable, "-P", "-m", "spu.admin"]
    pipe = subprocess.PIPE
    last = "it said nothing"
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        to, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        to.write(json.dumps({"verb": verb, "path": str(path)}))
        to.close()
        for text in answers:
            try:
                line = json.loads(text)
            except ValueError:
                # The last words of a process that cannot run.
                last = text.strip() or last
                continue
            if "done" in line:
                return cast(list[dict[str, Any]], line["done"]["partitions"])
            if "error" in line:
                raise error_from(**line["error"])
            if progress is not None and "stage" in line:
                progress(line["count"], line["total"])
    raise RunnelError(f"the look at {path} ended early: {last}")
