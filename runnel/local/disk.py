"""Logs on this machine's disks while no SPU has them open, by a process of the SPU's own
(``spu.admin``), as this package may not import it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from runnel.local.offline_admin import run_admin
from schemas.daemon.installation import Program
from schemas.errors import NotFoundError

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
    def say(line: dict[str, Any]) -> None:
        if progress is not None:
            progress(line["count"], line["total"])

    done = run_admin(
        Program.SPU_ADMIN, {"verb": verb, "path": str(path)}, f"the look at {path}", say
    )
    return cast(list[dict[str, Any]], done["partitions"])
