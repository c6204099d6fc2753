"""The file of a backup: lines of JSON, of which the first says what it is and the last that it is
whole.

::

    {"runnelBackup": 1, "cluster": NAME, "uid": …, "incarnation": …, "revision": …, "at": …,
     "version": …}
    {"key": …, "value": …}          one key, in the order of the store; "base64" instead of "value"
                                    where the value is not UTF-8
    {"keys": …, "bytes": …, "sha256": …}

The digest is that of `sc.transfer.copying.Digest`. A file without its last line was not written to
its end.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pydantic import Field, ValidationError

from sc.transfer.copying import Digest
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StorageFailedError,
    UnsupportedError,
)
from schemas.model import Model
from schemas.objects.keys import ClusterKeys

FORMAT: Final = 1
"""Version of the file's lines."""

_MAX_LINE: Final = 16 << 20
"""Most characters of a line: more than any value of a store."""


class Header(Model):
    """What a backup is of: a cluster at a revision of its store. ``at`` is ISO 8601 in UTC,
    ``version`` that of the Runnel that wrote it."""

    runnel_backup: int = Field(ge=1)
    cluster: str
    uid: str
    incarnation: int = Field(ge=0, lt=1 << 16)
    revision: int = Field(ge=0, lt=1 << 63)
    at: str
    version: str


class _Line(Model):
    key: str
    value: str | None = None
    base64: str | None = None


class _Trailer(Model):
    keys: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was read, and is whole: its keys and values in their order."""

    header: Header
    items: tuple[tuple[str, bytes], ...]
    digest: Digest


class BackupWriter:
    """Writes a backup beside its place, and puts it there when it is whole and on the disk. Its
    owner alone may read it: it holds what secrets of SPUs are verified by. Use it as a context
    manager; raises ConflictError where there is a file already, StorageFailedError."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path, self._header = path, header
        self.digest = Digest()

    def __enter__(self) -> Self:
        try:
            if self._path.exists():
                raise ConflictError(f"{self._path} is there already; name another file")
            # For its owner alone.
            descriptor, self._unfinished = tempfile.mkstemp(
                prefix=f".{self._path.name}.", dir=self._path.parent
            )
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        self._write(self._header.model_dump_json(by_alias=True))
        return self

    def add(self, key: str, value: bytes) -> None:
        """Write one key."""
        self.digest.add(key, value)
        try:
            line = {"key": key, "value": value.decode()}
        except UnicodeDecodeError:
            line = {"key": key, "base64": base64.b64encode(value).decode()}
        self._write(json.dumps(line, ensure_ascii=False))

    def _write(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def _finish(self) -> None:
        digest = self.digest
        trailer = _Trailer(keys=digest.keys, bytes=digest.bytes, sha256=digest.sha256)
        self._write(trailer.model_dump_json(by_alias=True))
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._give_name()
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except FileExistsError as error:
            raise ConflictError(f"{self._path} is there already; name another file") from error
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def _give_name(self) -> None:
        """Not over a file that somebody made meanwhile."""
        try:
            os.link(self._unfinished, self._path)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems have no links.
            if self._path.exists():
                raise
            os.rename(self._unfinished, self._path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                os.unlink(self._unfinished)


def read_backup(path: Path) -> Backup:
    """Read all of a backup, and compare it with what its last line says.

    Raises NotFoundError, StorageFailedError, UnsupportedError for a later format,
    InvalidRequestError for a file that is no backup, is not whole or was changed.
    """
    try:
        if path.exists() and not path.is_file():
            # It is read twice: once before anything is touched.
            raise InvalidRequestError(f"{path} is no plain file")
        with path.open(encoding="utf-8", newline="\n") as file:
            return _read(path, iter(lambda: file.readline(_MAX_LINE), ""))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}") from error
    except UnicodeDecodeError as error:
        raise _no_backup(path) from error
    except OSError as error:
        raise StorageFailedError(f"cannot read {path}: {error.strerror or error}") from error


def _read(path: Path, lines: Iterator[str]) -> Backup:
    header = _header(path, next(lines, ""))
    roots = ClusterKeys(header.cluster).roots
    digest = Digest()
    items: list[tuple[str, bytes]] = []
    trailer: _Trailer | None = None
    for number, text in enumerate(lines, start=2):
        if trailer is not None:
            raise InvalidRequestError(f"{path}:{number}: text after the last line of a backup")
        if not text.endswith("\n"):
            break
        if text.startswith('{"keys":'):
            trailer = _trailer(path, number, text)
            continue
        key, value = _item(path, number, text)
        if not key.startswith(roots):
            raise InvalidRequestError(
                f"{path}:{number}: key {key!r} is no key of cluster {header.cluster!r}; use"
                " another backup"
            )
        digest.add(key, value)
        items.append((key, value))
    if trailer is None:
        raise InvalidRequestError(
            f"{path} is not whole: its last line is missing, after {len(items):,} keys; use another"
            " backup"
        )
    if trailer != _Trailer(keys=digest.keys, bytes=digest.bytes, sha256=digest.sha256):
        raise InvalidRequestError(
            f"{path} was changed after it was written: it holds {digest.keys:,} keys with sha256"
            f" {digest.sha256[:16]}…, and was written with {trailer.keys:,} and"
            f" {trailer.sha256[:16]}…; use another backup"
        )
    return Backup(header, tuple(items), digest)


def _header(path: Path, line: str) -> Header:
    try:
        found = json.loads(line)
        version = found["runnelBackup"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _no_backup(path) from error
    if isinstance(version, int) and version > FORMAT:
        raise UnsupportedError(
            f"{path} has format {version}, this version of Runnel knows {FORMAT}; upgrade Runnel"
        )
    try:
        return Header.model_validate_json(line)
    except ValidationError as error:
        raise _no_backup(path) from error


def _item(path: Path, number: int, text: str) -> tuple[str, bytes]:
    try:
        line = _Line.model_validate_json(text)
        if (line.value is None) == (line.base64 is None):
            raise ValueError("one of value and base64 is needed")
        if line.base64 is not None:
            return line.key, base64.b64decode(line.base64, validate=True)
        return line.key, str(line.value).encode()
    except (ValidationError, ValueError, binascii.Error) as error:
        raise InvalidRequestError(
            f"{path}:{number}: this is no line of a backup; use another backup"
        ) from error


def _trailer(path: Path, number: int, text: str) -> _Trailer:
    try:
        return _Trailer.model_validate_json(text)
    except ValidationError as error:
        raise InvalidRequestError(
            f"{path}:{number}: this is no last line of a backup; use another backup"
        ) from error


def _no_backup(path: Path) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path} is no backup of a cluster: `runnel cluster backup` writes one"
    )


def _cannot_write(path: Path, error: OSError) -> StorageFailedError:
    return StorageFailedError(f"cannot write {path}: {error.strerror or error}")
