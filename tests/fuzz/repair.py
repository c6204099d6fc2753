"""Checksums that fit, around bytes that lie.

Damage is found by a checksum; who writes lies on purpose computes it. So that fuzzing reaches
what stands behind the checksums, these functions put right ones around whatever they are given.
"""

from __future__ import annotations

import struct
from typing import Final

from schemas.wire.batch import HEADER_SIZE, MAGIC, crc32c

_DOCUMENT: Final = struct.Struct("<4sII")
_INDEX_HEAD: Final = struct.Struct("<4sIqqqqqqqI")
_SUMMARY: Final = struct.Struct("<qqqqqqq")
_INDEX_ENTRY: Final = 32


def batches(data: bytes) -> bytes:
    """``data`` with the magic and both checksums of every batch that it holds made right."""
    found = bytearray(data)
    at = 0
    while len(found) - at >= HEADER_SIZE:
        (length,) = struct.unpack_from("<I", found, at + 24)
        if not HEADER_SIZE <= length <= len(found) - at:
            break
        struct.pack_into("<H", found, at + 28, MAGIC)
        struct.pack_into("<I", found, at + 4, crc32c(found[at + 24 : at + length]))
        struct.pack_into("<I", found, at, crc32c(found[at + 4 : at + 24]))
        at += length
    return bytes(found)


def document(body: bytes) -> bytes:
    """A document file, such as a checkpoint, that holds ``body``."""
    return _DOCUMENT.pack(b"RNLD", len(body), crc32c(body)) + body


def journal_frame(body: bytes) -> bytes:
    """One write of a journal that holds ``body``."""
    return _DOCUMENT.pack(b"RNLJ", len(body), crc32c(body)) + body


def index(data: bytes) -> bytes:
    """An index file: ``data`` is its summary (seven numbers), then its entries."""
    summary = _SUMMARY.unpack(data[: _SUMMARY.size].ljust(_SUMMARY.size, b"\0"))
    entries = data[_SUMMARY.size :]
    entries = entries[: len(entries) // _INDEX_ENTRY * _INDEX_ENTRY]
    head = _INDEX_HEAD.pack(b"RNI2", len(entries), *summary, crc32c(entries))
    return head + struct.pack("<I", crc32c(head)) + entries
