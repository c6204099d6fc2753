"""Which partition a key belongs to: one fixed hash, for one key and for a column of keys.

``partition = (murmur3_x86_32(key, seed 0) & 0x7fffffff) mod partitions``

MurmurHash3 (Austin Appleby, public domain), 32-bit x86 variant, seed 0. Every producer uses
it: `send`, `send_table` and Spark. Test vectors are in ``docs/reference/protocol.md``. A
record without a key belongs to no partition; the producer spreads such records.
"""

from __future__ import annotations

from collections.abc import Sequence

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)


def hash_key(key: bytes) -> int:
    """Unsigned 32-bit hash of one key."""
    return int(mmh3.hash(key, 0, False))


def partition_for(key: bytes, partitions: int) -> int:
    """The partition, from 0, of one key."""
    return (hash_key(key) & 0x7FFFFFFF) % partitions


def partitions_of(keys: Sequence[bytes], partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key of a sequence."""
    # The mask clears the sign bit of the hash.
    hashes = np.fromiter(map(mmh3.hash, keys), np.int64, len(keys))
    return (hashes & 0x7FFFFFFF) % partitions


def hash_keys(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Unsigned 32-bit hashes of a binary or string column; the hash of a null is 0.

    Keys of one length are hashed together, one word of every key at a time.
    """
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if not (pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type)):
        keys = keys.cast(pa.binary())
    offset_type = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _validity, offsets_buffer, data_buffer = keys.buffers()
    hashes = np.zeros(len(keys), dtype=np.uint32)
    if len(keys) == 0:
        return hashes
    offsets = np.frombuffer(offsets_buffer, dtype=offset_type)[
        keys.offset : keys.offset + len(keys) + 1
    ]
    data = (
        np.frombuffer(data_buffer, dtype=np.uint8)
        if data_buffer is not None
        else np.zeros(0, np.uint8)
    )
    lengths = np.diff(offsets)
    present = ~np.asarray(keys.is_null())
    for length in np.unique(lengths[present]):
        rows = np.flatnonzero(present & (lengths == length))
        hashes[rows] = _hash_equal_length(data, offsets[rows].astype(np.int64), int(length))
    return hashes


def partitions_for(keys: pa.Array, partitions: int) -> npt.NDArray[np.int64]:
    """The partition of each key of a column; meaningless where the key is null."""
    return (hash_keys(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _rotl(x: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _hash_equal_length(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int
) -> npt.NDArray[np.uint32]:
    h = np.zeros(len(starts), dtype=np.uint32)
    words, tail = divmod(length, 4)

    def little_endian(at: int, size: int) -> npt.NDArray[np.uint32]:
        value = np.zeros(len(starts), dtype=np.uint32)
        for i in range(size):
            value |= data[starts + (at + i)].astype(np.uint32) << np.uint32(8 * i)
        return value

    for word in range(words):
        h ^= _rotl(little_endian(4 * word, 4) * _C1, 15) * _C2
        h = _rotl(h, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    if tail:
        h ^= _rotl(little_endian(4 * words, tail) * _C1, 15) * _C2
    h ^= np.uint32(length & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h
