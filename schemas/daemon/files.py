"""Replacing a small file as a whole."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path


def write_json(path: Path, data: object, *, mode: int = 0o644) -> None:
    """Replace a small file as `replace_text` does."""
    replace_text(path, json.dumps(data, indent=2) + "\n", mode=mode)


def replace_text(
    path: Path, text: str, *, mode: int = 0o644, unfinished: Path | None = None
) -> None:
    """Replace a small file atomically: after a crash it holds the old text or the new one. Until it
    is whole it is called ``unfinished``, by default as ``path`` with the suffix ``.tmp``.

    Raises OSError that names a file; nothing unfinished is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished or path.with_suffix(".tmp")
    # One that a process left which was killed may have other rights, and others may have it open.
    unfinished.unlink(missing_ok=True)
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, mode)
            file.write(text)
            file.flush()
            os.fsync(fd)
        unfinished.replace(path)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink()
        if isinstance(error, OSError) and error.filename is None:
            # A write names no file by itself.
            error.filename = str(path)
        raise
