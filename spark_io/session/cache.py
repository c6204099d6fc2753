"""Small generated files in the user's cache directory, written once and shared by all sessions."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/runnel``, by default ``~/.cache/runnel``; may not exist yet."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel"


def ensure_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Make a file hold ``text``; writes nothing if it already does. Atomic.

    Raises OSError if the directory cannot be written.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text() == text and path.stat().st_mode & 0o777 == mode:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
