"""The archive: a gzipped tar of text files, bounded in size, in which no secret is.

Every text passes the `Redactor` on its way in. Of a text that is too long the beginning and the end
are kept. Once the archive is full, further files are left out, and the manifest names them. The
archive is written beside its final name and gets that name when it is complete, so an interrupted
command leaves nothing behind, and only the user who runs the command may read it.

Neighbours: `runnel.diagnostics.contents` says which files there are; `runnel.diagnostics.collect`
fills them.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from runnel.diagnostics.contents import MANIFEST, README, readme
from runnel.diagnostics.redaction import Redactor
from schemas.errors import ConflictError, InvalidRequestError, RunnelError

#: Most bytes of one file, and of all files together, before compression.
MAX_FILE_BYTES: Final = 8 << 20
MAX_TOTAL_BYTES: Final = 256 << 20
_CUT: Final = "\n[… {bytes:,} bytes were left out here …]\n"


@dataclass(frozen=True, slots=True)
class Kept:
    """One file of the archive, and how many bytes of it were left out."""

    path: str
    bytes: int
    cut_bytes: int


class Archive:
    """An archive that is being written. Use `open_archive`."""

    def __init__(self, tar: tarfile.TarFile, folder: str, redactor: Redactor, at: datetime) -> None:
        self._tar = tar
        self._folder = folder
        self._at = at
        self._left = MAX_TOTAL_BYTES
        self.redactor = redactor
        self.kept: list[Kept] = []
        #: What is not there, and why.
        self.missing: dict[str, str] = {}

    def add(self, path: str, text: str) -> None:
        """Add a text, without its secrets. Raises OSError."""
        data = self.redactor.text(text).encode(errors="replace")
        kept, cut = shortened(data, MAX_FILE_BYTES)
        if len(kept) > self._left:
            self.miss(path, f"the archive is full ({MAX_TOTAL_BYTES >> 20} MiB)")
            return
        self._left -= len(kept)
        self.kept.append(Kept(path, len(kept), cut))
        self._write(path, kept)

    def add_json(self, path: str, value: Any) -> None:
        """Add a JSON document, without its secrets. Raises OSError."""
        clean = self.redactor.structure(value)
        self.add(path, json.dumps(clean, indent=2, ensure_ascii=False, default=str) + "\n")

    def miss(self, path: str, why: str) -> None:
        """Say in the manifest why something is not there."""
        self.missing[path] = self.redactor.text(why)

    def close(self) -> None:
        """Add the manifest and the README. Raises OSError."""
        document = {
            "at": self._at.isoformat(),
            "files": [asdict(kept) for kept in self.kept],
            "missing": self.missing,
            "secretsRemoved": self.redactor.removed,
        }
        self._write(MANIFEST, (json.dumps(document, indent=2) + "\n").encode())
        cut = [kept.path for kept in self.kept if kept.cut_bytes]
        self._write(
            README, readme(self._at.isoformat(timespec="seconds"), self.missing, cut).encode()
        )

    def _write(self, path: str, data: bytes) -> None:
        info = tarfile.TarInfo(f"{self._folder}/{path}")
        info.size = len(data)
        info.mode = 0o600
        info.mtime = int(self._at.timestamp())
        self._tar.addfile(info, io.BytesIO(data))


@contextmanager
def open_archive(file: Path, redactor: Redactor, at: datetime) -> Iterator[Archive]:
    """An archive that is ``file`` when it is left without an error.

    Raises ConflictError if the file exists, InvalidRequestError if none can be made there, and
    RunnelError if it cannot be written.
    """
    if file == Path("-"):
        raise InvalidRequestError("-o -: the archive needs a file; name one, as in -o found.tar.gz")
    if file.exists():
        raise _exists(file)
    try:
        # Two commands at once do not write to one file. Only its owner may read it.
        descriptor, name = tempfile.mkstemp(".partial", f".{file.name}.", file.parent)
    except OSError as error:
        raise InvalidRequestError(
            f"{file} cannot be made: {error.strerror}; name another file with -o"
        ) from error
    partial = Path(name)
    try:
        with (
            os.fdopen(descriptor, "wb") as stream,
            tarfile.open(fileobj=stream, mode="w:gz") as tar,
        ):
            folder = file.name.removesuffix(".tar.gz").removesuffix(".tgz")
            archive = Archive(tar, folder, redactor, at)
            yield archive
            archive.close()
        _name(partial, file)
    except OSError as error:
        raise RunnelError(
            f"{file} cannot be written: {error.strerror or error}; make room there, or name a file"
            " elsewhere with -o"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _name(partial: Path, file: Path) -> None:
    """Give a complete archive its name, unless there is a file of this name by now."""
    try:
        file.hardlink_to(partial)
    except FileExistsError:
        raise _exists(file) from None
    except OSError:
        # This file system has one name for a file.
        if file.exists():
            raise _exists(file) from None
        partial.replace(file)


def _exists(file: Path) -> ConflictError:
    return ConflictError(f"{file} exists already; name another file with -o, or remove it")


def shortened(data: bytes, most: int) -> tuple[bytes, int]:
    """At most about so many bytes, of the beginning and of the end, and how many were left out."""
    if len(data) <= most:
        return data, 0
    # The end says what happened last, the beginning how it began.
    head, tail = most // 4, most - most // 4
    cut = len(data) - head - tail
    return data[:head] + _CUT.format(bytes=cut).encode() + data[-tail:], cut
