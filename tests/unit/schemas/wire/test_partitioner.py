"""The key hash: pinned by vectors, and the same for one key and for a column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.wire.partitioner import hash_key, hash_keys, partition_for, partitions_for

#: (key, hash, partition of 6). The first ones are MurmurHash3's own published vectors.
VECTORS = [
    (b"", 0x00000000, 0),
    (b"test", 0xBA6BD213, 1),
    (b"Hello, world!", 0xC0363E43, 1),
    (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723, 5),
    (b"\x21\x43\x65\x87", 0xF55B516B, 3),
    (b"\x21\x43\x65", 0x7E4A8634, 2),
    (b"\x21\x43", 0xA0F7B07A, 4),
    (b"\x21", 0x72661CF4, 2),
    (b"\xff\xff\xff\xff", 0x76293B50, 4),
    (b"\x00\x00\x00\x00", 0x2362F9DE, 4),
]

keys = st.lists(st.none() | st.binary(max_size=40), max_size=40)


def expected(column: list[bytes | None]) -> list[int]:
    return [0 if key is None else hash_key(key) for key in column]


@pytest.mark.parametrize(("key", "hashed", "partition"), VECTORS, ids=lambda value: repr(value))
def test_vectors(key: bytes, hashed: int, partition: int) -> None:
    assert hash_key(key) == hashed
    assert partition_for(key, 6) == partition
    assert hash_keys(pa.array([key])).tolist() == [hashed]
    assert partitions_for(pa.array([key]), 6).tolist() == [partition]


@given(keys, st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]))
def test_law_a_column_hashes_as_its_keys_do(column: list[bytes | None], kind: pa.DataType) -> None:
    assert hash_keys(pa.array(column, kind)).tolist() == expected(column)


@given(keys, st.integers(0, 40), st.integers(0, 40))
def test_law_slices_hash_as_their_part(column: list[bytes | None], start: int, count: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        sliced = pa.array(column, kind).slice(start, count)
        assert hash_keys(sliced).tolist() == expected(column[start : start + count])


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)))
def test_law_text_hashes_as_its_utf_8(column: list[str | None]) -> None:
    encoded = [None if text is None else text.encode() for text in column]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert hash_keys(pa.array(column, kind)).tolist() == expected(encoded)


@given(st.lists(st.sampled_from([None, b"", b"a", b"abcd", b"abcde"]), max_size=30))
def test_law_dictionaries_hash_as_their_values(column: list[bytes | None]) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        encoded = pa.array(column, kind).dictionary_encode()
        assert hash_keys(encoded).tolist() == expected(column)
        assert hash_keys(encoded.slice(3)).tolist() == expected(column[3:])


@given(st.lists(st.binary(min_size=5, max_size=5), max_size=10))
def test_law_keys_of_fixed_size(column: list[bytes]) -> None:
    assert hash_keys(pa.array(column, pa.binary(5))).tolist() == expected(list(column))


@given(st.integers(0, 2_000), st.integers(0, 255))
def test_law_long_keys(length: int, byte: int) -> None:
    key = bytes([byte]) * length
    assert hash_keys(pa.array([key, key[:-1]])).tolist() == expected([key, key[:-1]])


@given(st.binary(max_size=20), st.integers(1, 100_000))
def test_law_partitions_are_in_range_and_the_same_both_ways(key: bytes, count: int) -> None:
    partition = partition_for(key, count)
    assert 0 <= partition < count
    assert partitions_for(pa.array([key]), count).tolist() == [partition]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([], pa.binary()), id="given-no-rows"),
        pytest.param(pa.array([], pa.string()), id="given-no-rows-of-text"),
        pytest.param(pa.array([b"a"]).slice(1), id="given-an-empty-slice"),
    ],
)
def test_given_nothing_then_nothing(column: Any) -> None:
    assert hash_keys(column).tolist() == []
    assert partitions_for(column, 3).tolist() == []


def test_given_only_nulls_then_zeros() -> None:
    assert hash_keys(pa.nulls(3)).tolist() == [0, 0, 0]
    assert hash_keys(pa.nulls(3, pa.binary())).tolist() == [0, 0, 0]


def test_given_null_rows_with_bytes_below_then_still_zero() -> None:
    """A validity mask may hide bytes that are there."""
    column = pa.array([b"ab", b"cd"])
    buffers = [pa.py_buffer(b"\x02"), *column.buffers()[1:]]
    masked = pa.Array.from_buffers(pa.binary(), 2, buffers)
    assert masked.to_pylist() == [None, b"cd"]
    assert hash_keys(masked).tolist() == [0, hash_key(b"cd")]


def test_keys_spread_evenly() -> None:
    column = pa.array([str(number) for number in range(60_000)])
    counts = [0] * 6
    for partition in partitions_for(column, 6).tolist():
        counts[partition] += 1
    assert min(counts) > 9_500
    assert max(counts) < 10_500
