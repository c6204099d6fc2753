"""Batches as consumers decode them: headers, payloads of records, payloads of columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from unittest import mock

from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.records.cursor import Cursor
from runnel.records.schema_resolution import ReadColumns
from schemas.columns.topic_schema import Column, TopicSchema, schema_id
from schemas.errors import CorruptBatchError, UnsupportedError
from schemas.wire import payload as wire_payload
from schemas.wire.batch import TRANSACTION_IDS_FLAG, ClientPart, build, set_offset_and_term
from schemas.wire.payload import MAX_DECODED_BYTES
from tests.fuzz import repair
from tests.fuzz.law import Rejected, options
from tests.unit.spu.builders import TERM

#: As many as records with ids have, so that small inputs have more.
_BUFFERS: Final = 19


def _batch(data: bytes, count: int, choice: int, codec: int, version: int = 0) -> bytearray:
    """A batch of so many records; ``choice`` says whether these have transaction ids."""
    says: ClientPart = {
        "codec": codec % 3,
        "schema_id": version,
        "record_count": count or 1,
        "first_timestamp_us": 0,
        "last_timestamp_us": 0,
    }
    if choice & 64:
        says["flags"] = TRANSACTION_IDS_FLAG
        says["first_transaction_id"], says["last_transaction_id"] = 5, 8
    batch = build(data, **says)
    set_offset_and_term(batch, 0, TERM)
    return batch


def fetched(data: bytes) -> None:
    """What a fetch brings: any position, any last add confirmed, any batches."""
    choice, data = options(data)
    position, data = options(data)
    lac, data = options(data)
    if choice & 1:
        data = repair.batches(data)
    cursor = Cursor(
        "orders",
        0,
        position,
        stop=position + 9 if choice & 2 else None,
        not_before_us=lac if choice & 4 else None,
        not_before_id=lac if choice & 16 else None,
        before_us=lac if choice & 32 else None,
    )
    _consume(cursor, data, None if choice & 8 else lac)


def payload(data: bytes) -> None:
    """An Arrow payload that says anything, in a batch that is right. Two bytes: how many records,
    and the codec with three bits for whether there are ids and where reading begins."""
    count, data = options(data)
    choice, data = options(data)
    batch = _batch(data, count, choice, choice)
    not_before_us = 1 if choice & 128 else None
    not_before_id = 6 if choice & 32 else None
    cursor = Cursor("orders", 0, 0, not_before_us=not_before_us, not_before_id=not_before_id)
    with mock.patch.object(wire_payload, "_MAX_BUFFERS", _BUFFERS):
        _consume_narrow(replace(cursor), batch, "value")
        _consume(cursor, batch, None)


_FLAT: Final = (
    Column(name="id", type="int64", nullable=False),
    Column(name="note", type="string"),
    Column(name="at", type="timestamp(ms)", nullable=False),
    Column(name="day", type="date32"),
    Column(name="price", type="decimal(9, 2)"),
)
_NESTED: Final = (
    Column(name="key", type="binary", nullable=False),
    Column(name="tags", type="map<string, int8>"),
    Column(name="places", type="list<struct<city: string, open: bool>>"),
)
#: Topics, each with the columns that batches of it may have.
TYPED: Final = (
    (TopicSchema(columns=_FLAT, key_column="id", timestamp_column="at"), _FLAT),
    (TopicSchema(columns=_FLAT, key_column="id", timestamp_column="at"), _FLAT[:3]),
    (TopicSchema(columns=_NESTED, key_column="key"), _NESTED),
    (TopicSchema(columns=_NESTED), _NESTED[:1]),
)


def typed(data: bytes) -> None:
    """As `payload`, of a typed topic: the second byte also chooses one of `TYPED`, and whether the
    batch says that it is of a version that nobody knows."""
    count, data = options(data)
    choice, data = options(data)
    rows, columns = TYPED[choice % len(TYPED)]
    version = schema_id(columns) + bool(choice & 16)
    batch = _batch(data, count, choice, choice // 4 % 4, version)
    not_before_us = 1 if choice & 128 else None
    not_before_id = 6 if choice & 32 else None
    columns_of = ReadColumns(rows)
    cursor = Cursor(
        "orders", 0, 0, None, not_before_us, columns=columns_of, not_before_id=not_before_id
    )
    _consume_narrow(replace(cursor, columns=ReadColumns(rows)), batch, columns[-1].name)
    _consume(cursor, batch, None, rows)


def _consume_narrow(cursor: Cursor, data: bytes | bytearray, name: str) -> None:
    """One column alone is what it is among all of them; what others hold is not looked at."""
    whole, narrow = replace(cursor), replace(cursor, wanted=frozenset({name}))
    try:
        found = narrow.take(memoryview(data))
        expected = whole.take(memoryview(data))
    except (CorruptBatchError, UnsupportedError):
        return
    assert narrow.position == whole.position
    assert [rows.column(name) for rows in found] == [rows.column(name) for rows in expected]


def _consume(
    cursor: Cursor, data: bytes | bytearray, lac: int | None, typed_rows: TopicSchema | None = None
) -> None:
    """Every record that a consumer gets of ``data``, in every form that it gets them in."""
    before = cursor.position
    try:
        found = cursor.take(memoryview(data), lac)
    except (CorruptBatchError, UnsupportedError) as error:
        assert cursor.position == before
        raise Rejected from error
    assert cursor.position >= before
    for rows in found:
        assert rows.nbytes <= MAX_DECODED_BYTES * 2
        state = ReadState("orders", with_ids=True)
        state.rows = typed_rows
        state.open(FetchedChunk(0, [rows], cursor.position))
        whole = state.rest()
        assert whole is not None
        assert whole.column("transaction_id").null_count in (0, whole.num_rows)
        state = ReadState("orders", with_ids=True)
        state.rows = typed_rows
        state.open(FetchedChunk(0, [rows], cursor.position))
        try:
            records = list(state.records())
        except UnsupportedError as error:
            raise Rejected from error
        assert len(records) == rows.num_rows
        assert all(before <= record.offset < cursor.position for record in records)
        assert all(type(record.timestamp) is int for record in records)
