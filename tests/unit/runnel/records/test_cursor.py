"""From fetched bytes to the records a reader is due."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.produce.batch import ProducerBatch
from runnel.records.cursor import READ_SCHEMA, READ_TRANSACTION_ID, SMALL_BYTES, Cursor
from schemas.errors import CorruptBatchError
from schemas.wire.batch import TRANSACTION_IDS_FLAG, build, build_control, set_offset_and_term
from schemas.wire.payload import TRANSACTION_ID, decode_records, encode_records

#: Two records with keys of this length are a large batch.
LARGE = SMALL_BYTES // 2


def batch(
    base: int, count: int, *, time_us: int = 0, codec: str = "none", padding: int = 0
) -> bytearray:
    """Records whose values are their offsets and whose timestamps rise by one.

    With ``padding`` bytes as keys.
    """
    pending: ProducerBatch[None] = ProducerBatch(0, None, 0.0)
    for index in range(count):
        pending.keys.append(b"x" * padding if padding else None)
        pending.values.append(b"%d" % (base + index))
        pending.timestamps.append(time_us + index)  # type: ignore[union-attr]
        pending.count += 1
    encoded = bytearray().join(pending.encode(codec))
    set_offset_and_term(encoded, base, 1 << 16)
    return encoded


def control(base: int) -> bytearray:
    made = build_control("term", 0)
    set_offset_and_term(made, base, 1 << 16)
    return made


def offsets(cursor: Cursor, *batches: bytearray) -> list[int]:
    found = cursor.take(memoryview(b"".join(batches)))
    for rows in found:
        assert rows.schema == READ_SCHEMA
        assert rows.column("value").to_pylist() == [
            b"%d" % offset for offset in rows.column("offset").to_pylist()
        ]
    return [offset for rows in found for offset in rows.column("offset").to_pylist()]


@pytest.mark.parametrize(
    ("start", "stop", "expected", "position"),
    [
        pytest.param(0, None, [0, 1, 2, 4, 5, 6], 8, id="given-the-start-then-control-is-skipped"),
        pytest.param(1, None, [1, 2, 4, 5, 6], 8, id="given-a-middle-then-the-first-batch-is-cut"),
        pytest.param(3, None, [4, 5, 6], 8, id="given-the-control-record-then-stepped-over"),
        pytest.param(0, 5, [0, 1, 2, 4], 5, id="given-a-stop-then-the-last-batch-is-cut"),
        pytest.param(0, 4, [0, 1, 2], 4, id="given-a-stop-behind-control-then-it-is-reached"),
        pytest.param(0, 8, [0, 1, 2, 4, 5, 6], 8, id="given-control-at-the-end-then-finished"),
        pytest.param(7, None, [], 8, id="given-only-control-then-the-position-moves"),
    ],
)
def test_offsets(start: int, stop: int | None, expected: list[int], position: int) -> None:
    cursor = Cursor("orders", 0, start, stop)
    assert offsets(cursor, batch(0, 3), control(3), batch(4, 3), control(7)) == expected
    assert cursor.position == position
    assert cursor.finished == (stop is not None)


def test_given_a_gap_between_batches_then_offsets_step_over_it() -> None:
    cursor = Cursor("orders", 0, 0)
    assert offsets(cursor, batch(0, 1), batch(10, 2)) == [0, 10, 11]


def test_given_a_time_then_earlier_records_of_the_first_batch_are_left_out_only() -> None:
    cursor = Cursor("orders", 0, 0, not_before_us=102)
    assert offsets(cursor, batch(0, 4, time_us=100), batch(4, 2, time_us=50)) == [2, 3, 4, 5]


def undecodable(base: int) -> bytearray:
    """Two records by their header, whose payload is none; its checksums are right."""
    made = build(b"no payload", record_count=2, first_timestamp_us=0, last_timestamp_us=0)
    set_offset_and_term(made, base, 1 << 16)
    return made


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(9, id="given-a-flipped-bit-in-the-leaders-part"),
        pytest.param(50, id="given-a-flipped-bit-in-the-clients-part"),
        pytest.param(-1, id="given-a-flipped-bit-in-the-payload"),
    ],
)
def test_damage(at: int) -> None:
    bad = batch(3, 2)
    bad[at] ^= 1
    with pytest.raises(CorruptBatchError, match=r"orders/0 at offset 3: .*CRC32C"):
        Cursor("orders", 0, 3).take(memoryview(bad))


def test_given_a_batch_that_cannot_be_decoded_then_those_before_it_come_first() -> None:
    good, bad = batch(0, 3), undecodable(3)
    cursor = Cursor("orders", 0, 0)
    assert offsets(cursor, good + bad + batch(5, 2)) == [0, 1, 2]
    assert cursor.position == 3
    with pytest.raises(CorruptBatchError, match="orders/0 at offset 3: payload is not"):
        cursor.take(memoryview(bad + batch(5, 2)))
    assert cursor.position == 3


def test_given_half_a_batch_then_it_is_not_taken_for_nothing() -> None:
    with pytest.raises(CorruptBatchError, match="no whole batch"):
        Cursor("orders", 0, 0).take(memoryview(batch(0, 2))[:-8])


@given(
    counts=st.lists(st.integers(-1, 4).filter(bool), min_size=1, max_size=12),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    codec=st.sampled_from(["none", "zstd"]),
)
def test_law_exactly_the_records_in_the_range(
    counts: list[int], start: int, length: int, codec: str
) -> None:
    log: list[bytearray] = []
    due: list[int] = []
    end = 0
    for count in counts:
        if count < 0:
            log.append(control(end))
            end += 1
        else:
            log.append(batch(end, count, codec=codec))
            due += range(end, end + count)
            end += count
    start = min(start, end)
    stop = start + length
    cursor = Cursor("orders", 0, start, stop)
    assert offsets(cursor, *log) == [offset for offset in due if start <= offset < stop]
    assert cursor.position == min(end, stop) or not length


@pytest.mark.parametrize(
    ("paddings", "rows"),
    [
        pytest.param([0, 0, 0], [6], id="given-small-batches-then-they-are-put-together"),
        pytest.param([LARGE, LARGE], [2, 2], id="given-large-batches-then-each-is-one"),
        pytest.param([0, 0, LARGE, 0, 0], [4, 2, 4], id="given-both-then-in-their-order"),
        pytest.param([LARGE], [2], id="given-one-batch-then-it-is-one"),
    ],
)
def test_what_is_put_together(paddings: list[int], rows: list[int]) -> None:
    data = b"".join(batch(2 * n, 2, padding=padding) for n, padding in enumerate(paddings))
    found = Cursor("orders", 0, 0).take(memoryview(data))
    assert [part.num_rows for part in found] == rows
    assert [o for part in found for o in part.column("offset").to_pylist()] == list(
        range(2 * len(paddings))
    )


def test_given_large_batches_then_their_values_are_not_copied() -> None:
    data = np.frombuffer(b"".join(batch(2 * n, 2, padding=LARGE) for n in range(2)), np.uint8)
    begin = data.ctypes.data
    for part in Cursor("orders", 0, 0).take(data.data):
        keys = part.column("key").buffers()[2]
        assert keys is not None
        assert begin <= keys.address < begin + len(data)


def chunk(base: int, count: int) -> FetchedChunk:
    cursor = Cursor("orders", 1, base)
    (rows,) = cursor.take(memoryview(batch(base, count)))
    return FetchedChunk(1, [rows], cursor.position)


def test_given_a_loop_left_in_the_middle_then_it_goes_on_there_by_record_or_batch() -> None:
    state = ReadState("orders")
    state.open(chunk(5, 4))
    for record in state.records():
        if record.offset == 6:
            break
    assert state.position == {1: 7}
    assert [record.offset for record in state.records()][:1] == [7]
    state.open(chunk(9, 3))
    assert next(state.records()).offset == 9
    rest = state.rest()
    assert isinstance(rest, pa.RecordBatch)
    assert rest.column("offset").to_pylist() == [10, 11]
    assert state.position == {1: 12}
    assert state.rest() is None
    assert list(state.records()) == []


@given(
    counts=st.lists(st.integers(1, 3), max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(1, 2)), max_size=8),
)
def test_law_a_chunk_is_handed_out_once_and_in_order_however_it_is_asked_for(
    counts: list[int], turns: list[tuple[int, int | None]]
) -> None:
    ends = [sum(counts[:n]) for n in range(len(counts) + 1)]
    cursor = Cursor("orders", 1, 0)
    batches = [
        cursor.take(memoryview(batch(base, count)))[0]
        for base, count in zip(ends, counts, strict=False)
    ]
    state = ReadState("orders")
    state.open(FetchedChunk(1, batches, ends[-1] + 1))
    found: list[int] = []
    for wanted, most in turns:
        state.has_processed()
        for record in islice(state.records(), wanted):
            found.append(record.offset)
            assert state.position == {1: record.offset + 1}
            assert state.processed() == {1: record.offset}
        state.has_processed()
        assert state.processed() == state.position
        before = dict(state.position)
        if (rest := state.rest(most)) is not None:
            found += rest.column("offset").to_pylist()
            assert state.position[1] in {found[-1] + 1, ends[-1] + 1}
            assert not before or state.processed() == before
    while (rest := state.rest()) is not None:
        found += rest.column("offset").to_pylist()
    assert found == list(range(ends[-1]))
    assert state.position == {1: ends[-1] + 1}


def with_ids(base: int, ids: list[int]) -> bytearray:
    """Records with these transaction ids."""
    records = decode_records(batch(base, len(ids)))
    encoded = build(
        encode_records(records.append_column(TRANSACTION_ID, pa.array(ids, TRANSACTION_ID.type))),
        record_count=len(ids),
        first_timestamp_us=0,
        last_timestamp_us=len(ids) - 1,
        flags=TRANSACTION_IDS_FLAG,
        first_transaction_id=ids[0],
        last_transaction_id=ids[-1],
    )
    set_offset_and_term(encoded, base, 1 << 16)
    return encoded


@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from(["none", "lz4"]))),
    st.frozensets(st.sampled_from(["timestamp", "key", "value", "headers"])),
    st.none() | st.integers(0, 3),
)
def test_law_wanted_columns_are_as_ever(
    batches: list[tuple[int, bool, str]], wanted: frozenset[str], since: int | None
) -> None:
    data, end = bytearray(), 0
    for count, ids, codec in batches:
        added = with_ids(end, [*range(count)]) if ids else batch(end, count, codec=codec, padding=9)
        data += added
        end += count
    whole = Cursor("orders", 0, 0, not_before_us=since).take(memoryview(data))
    narrow = Cursor("orders", 0, 0, not_before_us=since, wanted=wanted).take(memoryview(data))
    assert len(narrow) == len(whole)
    for part, expected in zip(narrow, whole, strict=True):
        assert part.schema == expected.schema
        names = [name for name in part.schema.names if name in wanted]
        names += [name for name in ("offset", "transaction_id") if name in part.schema.names]
        assert part.select(names).equals(expected.select(names))
        assert part.column("value").null_count == (0 if "value" in wanted else part.num_rows)


def test_given_only_control_records_then_the_position_still_moves() -> None:
    state = ReadState("orders")
    state.open(FetchedChunk(0, [], 7))
    assert state.rest() is None
    assert state.position == {0: 7}


@pytest.mark.parametrize(
    ("lac", "taken"),
    [
        pytest.param(2, None, id="given-the-end-of-a-batch-above-the-lac-then-refused"),
        pytest.param(6, None, id="given-only-the-last-one-above-then-refused-as-a-whole"),
        pytest.param(7, [0, 1, 2, 4, 5, 6, 7], id="given-the-lac-at-the-end-then-all"),
    ],
)
def test_nothing_above_the_last_add_confirmed_is_taken(lac: int, taken: list[int] | None) -> None:
    cursor = Cursor("orders", 0, 0)
    data = memoryview(batch(0, 3) + control(3) + batch(4, 4))
    if taken is not None:
        found = cursor.take(data, lac)
        assert [o for rows in found for o in rows.column("offset").to_pylist()] == taken
        return
    with pytest.raises(CorruptBatchError, match=rf"above the last add confirmed {lac}"):
        cursor.take(data, lac)
    assert (cursor.position, cursor.term) == (0, 0)


def test_given_damage_then_the_position_stays_and_another_replicas_bytes_are_taken_whole() -> None:
    whole = batch(0, 3, time_us=100) + batch(3, 2, time_us=103)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    cursor = Cursor("orders", 0, 1, not_before_us=102)
    with pytest.raises(CorruptBatchError, match="orders/0 at offset 3: "):
        cursor.take(memoryview(damaged))
    assert (cursor.position, cursor.term, cursor.not_before_us) == (1, 0, 102)
    assert offsets(cursor, whole) == [2, 3, 4]
    assert (cursor.position, cursor.term) == (5, 1 << 16)


def located(first: int, gaps: list[int]) -> pa.RecordBatch:
    """Records that have their offsets: as many as gaps, each so much after the one before. Times
    and transaction ids are ten times their offsets."""
    at = [first + sum(gaps[: i + 1]) for i in range(len(gaps))]
    columns = [[3] * len(at), at, [10 * one for one in at], [None] * len(at)]
    columns += [[b"%d" % one for one in at], [None] * len(at), [10 * one for one in at]]
    schema = READ_SCHEMA.append(READ_TRANSACTION_ID)
    arrays = [pa.array(v, field.type) for v, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 40),
    st.none() | st.integers(0, 60),
    st.sampled_from(["all", "time", "id", "until"]),
    st.integers(0, 600),
)
def test_law_located_records_are_due_as_those_of_batches(
    shapes: list[list[int]], start: int, stop: int | None, how: str, bound: int
) -> None:
    cursor = Cursor("t", 3, start, stop)
    if how == "time":
        cursor.not_before_us = bound
    elif how == "id":
        cursor.not_before_id = bound
    elif how == "until":
        cursor.before_us = bound
    due: list[int] = []
    there: list[int] = []
    end = 0
    for gaps in shapes:
        rows = located(end, gaps)
        at = rows.column("offset").to_pylist()
        there += at
        end = at[-1] + 1
        if end > cursor.position and not cursor.finished:
            for found in cursor.take_rows(rows, end, 7):
                due += found.column("offset").to_pylist()
            assert cursor.term == 7
    wanted = [at for at in there if at >= start and (stop is None or at < stop)]
    if how in {"time", "id"}:
        wanted = [at for at in wanted if 10 * at >= bound]
    elif how == "until":
        late = [at for at in wanted if 10 * at >= bound]
        wanted = [at for at in wanted if not late or at < late[0]]
    assert due == wanted
    assert all(at < cursor.position for at in due)
