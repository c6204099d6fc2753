"""Segment files are read to the end of what is readable, damage and all."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.partition.stored_batches import base_of, read_segment, read_segments, segment_files
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import build, set_offset_and_term


def batch(base: int, count: int = 2, payload: bytes = b"x" * 40) -> bytearray:
    made = build(payload, record_count=count, first_timestamp_us=1, last_timestamp_us=2)
    set_offset_and_term(made, base, 1)
    return made


HEAD = bytes(batch(4)[:24])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two segments: offsets 0 to 3, and 4 to 7."""
    for base in (4, 0):
        data = bytes(batch(base)) + bytes(batch(base + 2))
        (tmp_path / f"{base:020d}.log").write_bytes(data)
    (tmp_path / "other.log").write_bytes(b"")
    return segment_files(tmp_path)


def test_segments_come_in_order(files: list[Path]) -> None:
    assert [base_of(path) for path in files] == [0, 4]
    assert base_of(Path("copy.log")) == 0


def test_given_whole_batches_then_each_with_its_place(files: list[Path]) -> None:
    found = list(read_segments(files, 0))
    assert [one.header.base_offset for one in found if one.header] == [0, 2, 4, 6]
    assert [(one.file, one.position) for one in found[2:]] == [
        (files[1].name, 0),
        (files[1].name, len(found[0].data)),
    ]
    assert all(one.problem is None for one in found)


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (2, 2), (4, 4), (7, 6)])
def test_it_begins_with_the_batch_that_holds_an_offset(
    files: list[Path], offset: int, first: int
) -> None:
    found = next(read_segments(files, offset)).header
    assert found is not None
    assert found.base_offset == first


def test_given_an_offset_behind_the_end_then_nothing(files: list[Path]) -> None:
    assert list(read_segments(files, 8)) == []


def test_given_a_flipped_bit_then_the_next_batch_is_read_all_the_same(files: list[Path]) -> None:
    data = bytearray(files[0].read_bytes())
    data[100] ^= 1
    files[0].write_bytes(data)
    one, other = read_segment(files[0])
    assert "client CRC32C" in str(one.problem)
    assert one.header is not None
    assert other.problem is None


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        pytest.param(b"half", "4 bytes cannot hold a batch header", id="given-a-torn-header"),
        pytest.param(bytes(200), "magic", id="given-zeros"),
        pytest.param(bytes(batch(4))[:-8], "does not fit the file", id="given-a-torn-batch"),
        pytest.param(
            bytes(batch(4)[:24])
            + (MAX_BATCH_BYTES + 8).to_bytes(4, "little")
            + bytes(batch(4)[28:]),
            "does not fit the file",
            id="given-a-length-that-cannot-be",
        ),
    ],
)
def test_given_what_is_no_batch_then_it_ends_there(
    files: list[Path], tail: bytes, problem: str
) -> None:
    size = files[0].stat().st_size
    files[0].write_bytes(files[0].read_bytes() + tail)
    *whole, last = read_segment(files[0])
    assert len(whole) == 2
    assert (last.header, last.position) == (None, size)
    assert problem in str(last.problem)
