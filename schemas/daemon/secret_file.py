"""The file that holds an SPU's secret, readable by its owner alone.

Neighbours: an SPU reads it when it connects (`spu.control`); the SC writes it for SPUs that it
starts (`sc.provisioning.local`), ``runnel spu secret`` for others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from schemas.daemon.files import replace_text
from schemas.errors import InvalidRequestError

#: In the log directory of the SPU.
DEFAULT_FILE: Final = "secret"
_MIN_CHARACTERS: Final = 32


def read_secret(file: Path) -> str | None:
    """The secret in a file; None if there is no such file.

    Raises OSError, and InvalidRequestError if others may read it or it holds no secret.
    """
    try:
        # A byte that is no text makes it no secret, as other wrong characters do.
        with file.open(encoding="utf-8", errors="replace") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(4096)
    except FileNotFoundError:
        return None
    if mode & 0o077:
        raise InvalidRequestError(f"others may read its secret; protect it: chmod 600 {file}")
    secret = text.strip()
    if len(secret) < _MIN_CHARACTERS or not secret.isascii() or not secret.isprintable():
        raise InvalidRequestError(
            "its file holds no secret; make another one: runnel spu secret NAME. A secret has"
            f" {_MIN_CHARACTERS} or more printable ASCII characters: {file}"
        )
    return secret


def write_secret(file: Path, secret: str) -> None:
    """Replace the secret in a file; after a crash it holds the old one or the new one.

    Raises OSError; nothing unfinished is left then.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(file, secret + "\n", mode=0o600, unfinished=file.with_name(f".{file.name}.tmp"))
