"""Cold storage of a topic: completed ranges of its log, as Parquet files in a directory."""

from __future__ import annotations

import posixpath
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from schemas.model import CaselessEnum, Model
from schemas.objects.quantities import DurationMs, Millis, Size

_MAX_PATH: Final = 1_024
_SCHEME: Final = "file://"


class ParquetCodec(CaselessEnum):
    """How columns of Parquet files are compressed."""

    NONE = "none"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"
    GZIP = "gzip"


class ArchiveRetention(Model):
    """How long and how much an archive keeps; null means without limit."""

    time: DurationMs | None = None
    """How long records are kept, by their own times; null: for ever."""
    size: Size | None = None
    """How many bytes of files each partition keeps; null: without limit."""


def _directory(path: str) -> str:
    """An absolute directory, without ``file://`` and a slash at its end. Raises ValueError."""
    found = path.removeprefix(_SCHEME)
    if "://" in found:
        raise ValueError(
            f"is {path!r}; give a directory, such as /mnt/archive: this version writes to file"
            " systems that are mounted"
        )
    if not found.startswith("/"):
        raise ValueError(f"is {path!r}; give an absolute directory, such as /mnt/archive")
    if any(ord(char) < 0x20 or char == "\x7f" for char in found):
        raise ValueError(f"is {path!r}; a directory has no control characters")
    normal = posixpath.normpath(found)
    if normal in {"/", "//"}:
        raise ValueError("is the root directory; give one for archives, such as /mnt/archive")
    return normal


class ArchiveSettings(Model):
    """Where completed ranges of the log go, and when. `runnel archive run` takes them there."""

    path: Annotated[str, AfterValidator(_directory)] = Field(max_length=_MAX_PATH)
    """An absolute directory, the same on all hosts that archive or read: a mounted file system."""
    after: DurationMs = Millis(3_600_000)
    """How long after its completion a segment is archived."""
    retention: ArchiveRetention = ArchiveRetention()
    """What the archive keeps."""
    row_group: Size = Field(default=64 << 20, ge=1 << 20, le=1 << 30)
    """Bytes of a row group of a file, before compression; 1Mi to 1Gi."""
    compression: ParquetCodec = ParquetCodec.ZSTD
    """Codec of the files."""
