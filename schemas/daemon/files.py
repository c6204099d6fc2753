"""Replacing a small file as a whole."""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_json(path: Path, data: object, *, mode: int = 0o644) -> None:
    """Replace a small file atomically: after a crash it holds the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode)
    temporary.chmod(mode)
    with temporary.open("w") as file:
        file.write(json.dumps(data, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
