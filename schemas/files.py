"""Small files that are replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path


def write_json(path: Path, data: object, *, mode: int = 0o644) -> None:
    """Replace a small file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode)
    temporary.chmod(mode)
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    temporary.replace(path)
