"""The batch: built, stamped, verified, decoded; and nothing that is damaged gets through."""

from __future__ import annotations

from typing import Any

import crc32c as crc32c_package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import CorruptBatchError
from schemas.wire.batch import (
    CODECS,
    HEADER_SIZE,
    MAGIC,
    NO_TRANSACTION,
    ClientPart,
    build,
    build_control,
    build_pieces,
    crc32c,
    read_header,
    set_offset_and_term,
    split_batches,
    verify,
    verify_client_part,
    verify_leader_part,
)
from schemas.wire.payload import decode_records
from tests.unit.schemas.wire.batches import batch_of, record, stored, table_of

#: One batch of three bytes, stamped. The format never changes by accident.
GOLDEN = bytes.fromhex(
    "fd5f3bf65c337a1bf6d002964900000003000200000001006800000052420201"
    "0000000003000000e80300000000000007d800000000000015cd5b0700000000"
    "02000000090000000b000000000000000c000000000000000000000000000000"
    "6162630000000000"
)


rows = st.builds(
    record,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.none()
    | st.lists(
        st.fixed_dictionaries(
            {
                "key": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
                "value": st.none() | st.binary(max_size=5),
            }
        ),
        max_size=3,
    ),
    timestamp_us=st.integers(0, 2**52),
)


@given(
    st.lists(rows, min_size=1, max_size=20),
    st.sampled_from(sorted(CODECS)),
    st.integers(0, 2**62),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(-1, 2**62),
)
def test_law_what_is_built_stamped_and_verified_decodes_to_the_same(
    given_rows: list[dict[str, Any]],
    codec: str,
    base: int,
    term: int,
    producer: int,
    epoch: int,
    sequence: int,
    transaction: int,
) -> None:
    records = table_of(given_rows)
    batch = batch_of(
        records,
        codec,
        producer_id=producer,
        producer_epoch=epoch,
        sequence=sequence,
        first_transaction_id=transaction,
        last_transaction_id=transaction,
    )
    verify_client_part(batch)
    set_offset_and_term(batch, base, term)
    header = verify(batch)
    assert decode_records(batch).equals(records)
    assert (header.base_offset, header.term, header.length) == (base, term, len(batch))
    assert header.next_offset == base + len(given_rows)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (
        producer,
        epoch,
        sequence,
    )
    assert header.first_transaction_id == header.last_transaction_id == transaction
    assert header.codec == CODECS[codec]
    assert not header.is_control


@given(st.sampled_from(sorted(CODECS)), st.integers(0), st.integers(0, 7))
def test_law_any_flipped_bit_is_detected(codec: str, at: int, bit: int) -> None:
    damaged = bytearray(stored(codec))
    damaged[at % len(damaged)] ^= 1 << bit
    with pytest.raises(CorruptBatchError):
        verify(damaged)


def test_every_single_flipped_bit_is_detected() -> None:
    damaged = bytearray(GOLDEN)
    for at in range(len(damaged)):
        for bit in range(8):
            damaged[at] ^= 1 << bit
            with pytest.raises(CorruptBatchError):
                verify(damaged)
            damaged[at] ^= 1 << bit
    verify(damaged)


@pytest.mark.parametrize("check", [verify, verify_client_part, verify_leader_part, read_header])
def test_given_any_shorter_length_then_corrupt_and_nothing_else(check: Any) -> None:
    whole = stored()
    for length in range(HEADER_SIZE):
        with pytest.raises(CorruptBatchError):
            check(whole[:length])
    for length in range(HEADER_SIZE, len(whole)):
        for whole_check in (verify, verify_client_part):
            with pytest.raises(CorruptBatchError, match="arrived"):
                whole_check(whole[:length])


@given(st.binary(max_size=250))
def test_law_any_bytes_are_refused_with_corrupt_batch(data: bytes) -> None:
    for check in (verify, verify_client_part, read_header):
        with pytest.raises(CorruptBatchError):
            check(data)


def test_given_more_bytes_than_the_batch_then_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="batch header says 104 bytes, 112 arrived"):
        verify(GOLDEN + bytes(8))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"record_count": 0}, "at least one record", id="given-no-records"),
        pytest.param({"record_count": 1, "codec": 9}, "unknown codec 9", id="given-a-codec"),
    ],
)
def test_headers_a_client_may_not_send(changes: dict[str, int], says: str) -> None:
    batch = build(b"x", first_timestamp_us=0, last_timestamp_us=0, **changes)
    with pytest.raises(CorruptBatchError, match=says):
        verify_client_part(batch)


@pytest.mark.parametrize(
    ("at", "data", "says"),
    [
        pytest.param(28, b"\0\0", "batch magic is 0x0000, not 0x4252", id="given-another-magic"),
        pytest.param(24, b"\x5f\0\0\0", "length 95 is less than its header", id="given-short"),
        pytest.param(
            24, b"\xff\0\0\0", "batch header says 255 bytes, 104 arrived", id="given-long"
        ),
        pytest.param(
            96, b"X", "client CRC32C is 0x.*, the header says 0x1b7a335c", id="given-damage"
        ),
        pytest.param(
            8, b"X", "leader CRC32C is 0x.*, the header says 0xf63b5ffd", id="given-offset"
        ),
        pytest.param(0, b"X", "leader CRC32C", id="given-damage-in-the-leader-crc"),
        pytest.param(4, b"X", "leader CRC32C", id="given-damage-in-the-client-crc"),
    ],
)
def test_what_is_said_about_damage(at: int, data: bytes, says: str) -> None:
    damaged = bytearray(GOLDEN)
    damaged[at : at + len(data)] = data
    with pytest.raises(CorruptBatchError, match=says):
        verify(damaged)


def test_given_the_head_of_another_batch_then_detected() -> None:
    """Both parts are whole by themselves, but do not belong together."""
    one, other = bytearray(stored()), bytearray(GOLDEN)
    mixed = bytes(other[:24]) + bytes(one[24:])
    with pytest.raises(CorruptBatchError, match="client CRC32C"):
        verify(mixed)


# The bytes


def golden() -> bytearray:
    batch = build(
        b"abc",
        record_count=3,
        first_timestamp_us=1_000,
        last_timestamp_us=55_303,
        codec=2,
        flags=1,
        producer_id=123_456_789,
        producer_epoch=2,
        sequence=9,
        first_transaction_id=11,
        last_transaction_id=12,
    )
    set_offset_and_term(batch, 0x49_9602_D0F6, 0x0001_0000_0002_0003)
    return batch


def test_the_bytes_of_a_batch_are_pinned() -> None:
    assert golden().hex() == GOLDEN.hex()


def test_the_pinned_batch_reads_as_it_was_written() -> None:
    header = verify(GOLDEN)
    assert (header.base_offset, header.term) == (0x49_9602_D0F6, 0x0001_0000_0002_0003)
    assert (header.length, header.codec, header.flags, header.schema_id) == (104, 2, 1, 0)
    assert (header.record_count, header.is_control) == (3, True)
    assert (header.first_timestamp_us, header.last_timestamp_us) == (1_000, 55_303)
    assert (header.producer_id, header.producer_epoch, header.sequence) == (123_456_789, 2, 9)
    assert (header.first_transaction_id, header.last_transaction_id) == (11, 12)


def test_magic_is_readable() -> None:
    assert GOLDEN[28:30] == b"RB"
    assert MAGIC.to_bytes(2, "little") == b"RB"


@given(st.binary(max_size=40))
def test_law_batches_are_padded_to_eight_bytes_of_zero(payload: bytes) -> None:
    batch = build(payload, record_count=1, first_timestamp_us=0, last_timestamp_us=0)
    assert len(batch) % 8 == 0
    assert len(batch) - HEADER_SIZE - len(payload) < 8
    assert batch[HEADER_SIZE:] == payload + bytes(-len(payload) % 8)
    assert read_header(batch).length == len(batch)


@given(payload=st.lists(st.binary(max_size=20), max_size=5))
def test_law_pieces_make_the_batch_that_their_payload_makes(payload: list[bytes]) -> None:
    says: ClientPart = {
        "record_count": 3, "first_timestamp_us": 1, "last_timestamp_us": 2,
        "producer_id": 7, "sequence": 9,
    }  # fmt: skip
    pieces = build_pieces(payload, **says)
    assert b"".join(pieces) == build(b"".join(payload), **says)
    assert all(piece is given for piece, given in zip(pieces[1:], payload, strict=False))
    header = verify_client_part(b"".join(pieces))
    assert (header.record_count, header.producer_id, header.sequence) == (3, 7, 9)


def test_stamping_again_replaces_the_leaders_part_only() -> None:
    batch = bytearray(stored())
    set_offset_and_term(memoryview(batch), 99, 5)
    header = verify(batch)
    assert (header.base_offset, header.term) == (99, 5)
    assert batch[24:] == stored()[24:]


def test_given_not_stamped_then_only_the_client_part_verifies() -> None:
    batch = batch_of(table_of([record()]))
    assert bytes(batch[:4]) + bytes(batch[8:24]) == bytes(20)
    verify_client_part(batch)
    with pytest.raises(CorruptBatchError, match="leader CRC32C"):
        verify(batch)


def test_leader_parts_are_checked_in_the_middle_of_a_segment() -> None:
    data = stored() + GOLDEN
    verify_leader_part(data, len(stored()))
    with pytest.raises(CorruptBatchError):
        verify_leader_part(data, len(stored()) + 8)


def test_control_batches() -> None:
    batch = build_control("term", 55)
    set_offset_and_term(batch, 7, 1)
    header = verify(batch)
    assert header.is_control
    assert (header.record_count, header.next_offset) == (1, 8)
    assert (header.first_timestamp_us, header.last_timestamp_us) == (55, 55)
    assert header.first_transaction_id == NO_TRANSACTION
    assert bytes(batch[HEADER_SIZE:]) == b"term\0\0\0\0"


# Splitting


@given(
    st.lists(st.binary(max_size=30), max_size=5),
    st.integers(0, HEADER_SIZE + 40),
)
def test_law_split_gives_the_whole_batches(payloads: list[bytes], cut: int) -> None:
    batches = [
        build(payload, record_count=1, first_timestamp_us=0, last_timestamp_us=0)
        for payload in payloads
    ]
    data = b"".join(batches)
    kept = max(0, len(data) - cut)
    found = split_batches(memoryview(data)[:kept])
    whole, end = 0, 0
    while whole < len(batches) and end + len(batches[whole]) <= kept:
        end += len(batches[whole])
        whole += 1
    assert [bytes(raw) for _, raw in found] == [bytes(batch) for batch in batches[:whole]]
    assert all(header.length == len(raw) for header, raw in found)


def test_given_garbage_between_batches_then_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="magic"):
        split_batches(memoryview(stored() + bytes(HEADER_SIZE)))


def test_given_garbage_shorter_than_a_header_then_left_out() -> None:
    assert len(split_batches(memoryview(stored() + bytes(HEADER_SIZE - 1)))) == 1


# CRC32C


def test_crc32c_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")
    assert crc32c_package.crc32c(b"") == crc32c(b"") == 0
