"""What fuzzing has found: each with the smallest input that led to it."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from runnel.consume.delivered import FetchedChunk, ReadState
from runnel.partition.verify import read_findings
from runnel.positions.state import PositionsState
from runnel.records.arrow_schema import arrow_schema, encode_rows
from runnel.records.cursor import Cursor
from runnel.records.schema_resolution import ReadColumns
from runnel.state_log.fold import Entry, StateFold
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import (
    CorruptBatchError,
    ErrorCode,
    NotLeaderError,
    ProtocolError,
    StorageFailedError,
    UnsupportedError,
    error_from,
)
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire.batch import BatchHeader, build, crc32c, set_offset_and_term, verify
from schemas.wire.payload import MAX_DECODED_BYTES, RECORD_SCHEMA, decode_records, encode_records
from schemas.wire.protocol import MAX_SUBSCRIPTION_BYTES, PROTOCOL_VERSION, Api
from schemas.wire.subscription_requests import Grant, SubscribeRequest, SubscriptionEntry
from spu.replication.messages import Reset
from spu.replication.wire import Kind, decode, encode
from spu.server import requests as requests_module
from spu.storage import segment as segment_module
from spu.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from spu.storage.data_dir import DataDir
from spu.storage.journal import Journal, JournalChange, Seen
from spu.storage.log import PartitionLog
from spu.storage.segment import Damage, find_batch, scan, segment_bases
from spu.storage.stopped import describe, open_stopped
from tests.fuzz import repair
from tests.fuzz.batch_targets import payload, typed
from tests.fuzz.connection_targets import serve
from tests.fuzz.law import Rejected, Target
from tests.fuzz.mutations import NUMBERS
from tests.fuzz.seeds import BOOT, STORAGE, record_payload, seeds
from tests.unit.spu.builders import (
    CLUSTER,
    NOW_US,
    STAMP,
    TERM,
    UID,
    batch_of,
    new_log_directory,
    open_log,
    recover,
    settings_of,
)

_TIMESTAMP = RECORD_SCHEMA.field("timestamp").type
_HEADERS = RECORD_SCHEMA.field("headers").type


def batch_with(data: bytes | pa.Buffer, count: int) -> bytearray:
    batch = build(data, record_count=count, first_timestamp_us=0, last_timestamp_us=0)
    set_offset_and_term(batch, 0, TERM)
    return batch


def test_given_offsets_inside_of_a_column_that_lie_then_corrupt() -> None:
    """The process of every consumer ended with a segmentation fault."""
    offsets = pa.py_buffer(struct.pack("<4i", 0, 1 << 30, -5, 3))
    values = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abc")])
    times = pa.array([0, 0, 0], pa.int64()).cast(_TIMESTAMP)
    columns = [times, pa.nulls(3, pa.binary()), values, pa.nulls(3, _HEADERS)]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    with pytest.raises(CorruptBatchError, match="not an Arrow record batch"):
        decode_records(batch_with(encode_records(records), 3))


@pytest.mark.parametrize("target", [payload, typed])
def test_law_any_number_in_a_payload_may_lie(target: Target) -> None:
    """Every number of every valid payload, replaced by those at which sizes and signs go wrong."""
    accepted = 0
    for data in seeds(target.__name__):
        for number in NUMBERS[12:]:
            for at in range(2, len(data) - len(number), len(number)):
                try:
                    target(data[:at] + number + data[at + len(number) :])
                except Rejected:
                    continue
                accepted += 1
    assert accepted


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_given_few_bytes_that_decompress_to_many_then_refused_before_memory_is_taken(
    codec: str,
) -> None:
    """Two kilobytes took sixty-four megabytes, or any number of gigabytes, of a consumer."""
    many = pa.array([bytes(MAX_DECODED_BYTES + 1)], pa.binary())
    times = pa.array([0], pa.int64()).cast(_TIMESTAMP)
    columns = [times, pa.nulls(1, pa.binary()), many, pa.nulls(1, _HEADERS)]
    small = bytes(encode_records(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), codec))
    del many, columns
    assert len(small) < 1 << 20
    before = pa.total_allocated_bytes()
    peak = max(pa.default_memory_pool().max_memory(), before + MAX_DECODED_BYTES)
    with pytest.raises(CorruptBatchError, match="when decompressed; the limit is"):
        decode_records(batch_with(small, 1))
    assert pa.total_allocated_bytes() == before
    assert pa.default_memory_pool().max_memory() <= peak


def test_given_a_length_that_no_memory_holds_then_corrupt() -> None:
    """An error of Arrow's memory pool came out, or the machine's memory was gone."""
    whole = bytearray(record_payload("zstd"))
    wanted = struct.pack("<q", 8 * 3)
    at = whole.index(wanted, len(whole) // 2)
    struct.pack_into("<q", whole, at, 1 << 40)
    with pytest.raises(CorruptBatchError, match="when decompressed"):
        decode_records(batch_with(bytes(whole), 3))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param({"timestamp": None}, "without a timestamp", id="given-no-timestamp"),
        pytest.param({"headers": [None]}, "without a key", id="given-no-header"),
    ],
)
def test_given_nulls_where_none_may_be_then_corrupt(row: dict[str, Any], text: str) -> None:
    """A TypeError came out of a consumer's loop, or a record whose timestamp was None."""
    whole = {"timestamp": 0, "key": None, "value": b"v", "headers": None} | row
    records = pa.RecordBatch.from_pylist([whole], schema=RECORD_SCHEMA)
    with pytest.raises(CorruptBatchError, match=text):
        decode_records(batch_with(encode_records(records), 1))


def test_given_header_keys_that_are_no_text_then_corrupt() -> None:
    """A UnicodeDecodeError came out of a consumer's loop."""
    data = record_payload()
    assert b"trace" in data
    with pytest.raises(CorruptBatchError):
        decode_records(batch_with(data.replace(b"trace", b"\xfftrac"), 3))


def test_given_the_last_offsets_there_are_then_corrupt() -> None:
    """An OverflowError came out of a consumer's loop."""
    batch = build(record_payload(), record_count=3, first_timestamp_us=0, last_timestamp_us=0)
    set_offset_and_term(batch, (1 << 63) - 2, TERM)
    cursor = Cursor("orders", 0, 0)
    with pytest.raises(CorruptBatchError, match="cannot begin at offset 9223372036854775806"):
        cursor.take(memoryview(batch))
    assert cursor.position == 0


def test_given_all_columns_then_valid_records_still_come_out() -> None:
    (rows,) = Cursor("orders", 0, 0).take(memoryview(batch_with(record_payload(), 3)))
    state = ReadState("orders")
    state.open(FetchedChunk(0, [rows], 3))
    assert [record.headers for record in state.records()] == [(), (("trace", b"1"),), ()]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("date32", [0, 1 << 30], id="given-a-date-beyond-all-calendars"),
        pytest.param("timestamp(us)", [0, 1 << 60], id="given-a-time-beyond-all-calendars"),
        pytest.param(
            "map<string, int8>", [[], [("a", 1), ("a", 2)]], id="given-a-map-that-has-a-key-twice"
        ),
    ],
)
def test_given_values_that_python_has_no_form_for_then_nothing_is_stepped_over(
    name: str, values: list[Any]
) -> None:
    """An OverflowError came out of a consumer's loop; asked again, it went on behind the batch."""
    rows = TopicSchema(columns=(Column(name="a", type=name),))
    (field,) = arrow_schema(rows.columns)
    is_number = isinstance(values[0], int)
    width = pa.int32() if name == "date32" else pa.int64()
    array = pa.array(values, width).cast(field.type) if is_number else pa.array(values, field.type)
    records = pa.RecordBatch.from_arrays([array], schema=arrow_schema(rows.columns))
    batch = build(
        encode_rows(records),
        record_count=2,
        first_timestamp_us=0,
        last_timestamp_us=0,
        schema_id=rows.schema_id,
    )
    set_offset_and_term(batch, 7, TERM)
    found = Cursor("orders", 0, 7, columns=ReadColumns(rows)).take(memoryview(batch))
    state = ReadState("orders")
    state.rows = rows
    state.position[0] = 7
    state.open(FetchedChunk(0, found, 9))
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"orders/0: .* 7 to 8 .* with batches\(\)"):
            next(state.records())
        assert (state.position, state.processed()) == ({0: 7}, {0: 7})
    whole = state.rest()
    assert whole is not None
    assert whole.num_rows == 2


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"[" * 2_000, id="given-nesting-without-end"),
        pytest.param(b"[[[],0,[]]]", id="given-a-producer-that-is-a-list"),
        pytest.param(b"[[1.5,0,[]]]", id="given-a-producer-that-is-a-fraction"),
        pytest.param(b"[[1,0,[[-1,0,1]]]]", id="given-a-negative-sequence"),
        pytest.param(b" " * ((1 << 20) + 1), id="given-more-than-any-log-remembers"),
    ],
)
def test_given_producers_that_no_leader_sends_then_refused(tail: bytes) -> None:
    """A RecursionError came out, or the follower's table of producers failed later."""
    fixed = b"".join(bytes(piece) for piece in encode(UID, Reset(TERM, 9, BOOT, 40, TERM)))[16:-2]
    with pytest.raises(ProtocolError, match="producers"):
        decode(Kind.RESET, memoryview(fixed), memoryview(tail))


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(b"RNLJ" + bytes(8), id="given-the-header-then-zeros"),
        pytest.param(b"RNLJ" + bytes(4_000), id="given-the-block-then-zeros"),
    ],
)
def test_given_a_journal_torn_behind_its_magic_then_it_opens(tmp_path: Path, torn: bytes) -> None:
    """Zeros are a frame of no length with the right checksum; the SPU did not start any more."""
    path = tmp_path / "journal"
    journal = Journal.open(path)
    journal.append([JournalChange(seen=Seen(9, STAMP))])
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    again = Journal.open(path)
    again.close()
    assert again.seen == Seen(9, STAMP)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("body", [b"1", b"{", b"[1]", b'[{"uid":1}]', b"[" * 2_000, b"\xff"])
def test_given_a_journal_that_says_what_nobody_writes_then_refused(
    tmp_path: Path, body: bytes
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(repair.journal_frame(body))
    with pytest.raises(StorageFailedError, match=f"{path} holds an entry at byte 0"):
        Journal.open(path)


@pytest.mark.parametrize(
    "body",
    [b"", b"1", b"[]", b"{}", b'{"version":1}', b"[" * 2_000, b"\xff"],
    ids=lambda body: repr(body[:12]),
)
def test_given_a_checkpoint_that_is_none_then_the_log_is_scanned(
    tmp_path: Path, body: bytes
) -> None:
    """Recovery ended with whatever error Python had for it, and the SPU did not start."""
    _write_log(tmp_path)
    (tmp_path / "checkpoint").write_bytes(repair.document(body))
    found = recover(tmp_path, NOW_US)
    assert found.unfit is None
    assert found.leo == 3


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({"scanOffset": 3}, id="given-a-scan-that-skips-records"),
        pytest.param({"logStart": 9}, id="given-a-start-behind-the-end"),
        pytest.param({"durableLeo": "3"}, id="given-text"),
        pytest.param({"durableLeo": 3.0}, id="given-a-fraction"),
        pytest.param({"cutAt": -1}, id="given-a-cut-at-no-byte"),
        pytest.param({"producers": [[[], 0, []]]}, id="given-a-producer-that-is-a-list"),
        pytest.param({"history": [[5, 0], [5, 1]]}, id="given-a-term-twice"),
        pytest.param({"history": [[5, 3]]}, id="given-a-term-behind-the-end"),
    ],
)
def test_given_a_checkpoint_that_cannot_be_then_it_is_not_believed(
    tmp_path: Path, lie: dict[str, Any]
) -> None:
    """The first of these made recovery cut the whole segment, and call it a torn tail."""
    _write_log(tmp_path)
    path = tmp_path / "checkpoint"
    said = json.loads(path.read_bytes()[12:])
    path.write_bytes(repair.document(json.dumps(said | lie).encode()))
    assert read_checkpoint(tmp_path) is None
    found = recover(tmp_path, NOW_US)
    assert found.unfit is None
    assert found.leo == 3


def _write_log(directory: Path) -> PartitionLog:
    opened = open_log(new_log_directory(directory))
    for _ in range(3):
        opened.append(batch_of())
    opened.sync(checkpoint=True)
    opened.crash()
    return opened.log


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}.log", "9" * 20 + ".log", "1.log"])
def test_given_a_file_that_only_looks_like_a_segment_then_it_is_left_alone(
    tmp_path: Path, name: str
) -> None:
    """A ValueError, or a number that fits no file, came out of recovery."""
    write_checkpoint(tmp_path, Checkpoint())
    (tmp_path / name).touch()
    assert segment_bases(tmp_path) == []
    assert recover(tmp_path, NOW_US).unfit is None
    assert (tmp_path / name).exists()


def test_given_a_length_of_gigabytes_then_no_more_is_read_than_a_batch_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged length made recovery read the rest of a segment into memory."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(24) + struct.pack("<I", 4 * MAX_BATCH_BYTES) + bytes(100))
    head = path.read_bytes()
    os.truncate(path, 5 * MAX_BATCH_BYTES)
    wanted: list[int] = []

    def pread(_fd: int, count: int, _position: int) -> bytes:
        wanted.append(count)
        return head

    monkeypatch.setattr(os, "pread", pread)
    with path.open("rb") as file, pytest.raises(Damage, match="does not fit the file"):
        list(scan(file.fileno(), str(path), 0, 0, 0))
    assert max(wanted) <= MAX_BATCH_BYTES


def test_given_a_payload_of_headers_that_claim_the_rest_then_the_search_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recovery of 64 MiB of them would have computed checksums for hours."""
    data = bytearray()
    headers = 300
    for number in range(headers):
        false = batch_of(payload=b"")
        struct.pack_into("<I", false, 24, (headers - number) * len(false))
        set_offset_and_term(false, number, TERM)
        data += false
    summed = 0

    def counted(batch: Any) -> BatchHeader:
        nonlocal summed
        summed += len(batch)
        return verify(batch)

    monkeypatch.setattr(segment_module, "verify", counted)
    found = find_batch(bytes(data))
    assert found is not None
    assert found > 0
    assert summed <= 8 * len(data)


_OPENED: dict[str, Any] = {
    "kind": "opened",
    "name": "billing",
    "topic": "orders",
    "topic_uid": "u",
    "partition_count": 1,
    "session": "s",
    "by": "me",
    "at_us": 1,
    "starts": [[0, 3]],
}
_READING: dict[str, Any] = {
    "name": "billing",
    "topic": "orders",
    "uid": "u",
    "count": 1,
    "session": None,
    "by": "me",
    "since": 1,
    "positions": [[0, 3, 1]],
}


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({"topic": 0}, id="given-a-name-that-is-a-number"),
        pytest.param({"topic": "\ud800"}, id="given-half-a-character"),
        pytest.param({"session": []}, id="given-a-session-that-is-a-list"),
        pytest.param({"partition_count": "1", "count": "1"}, id="given-a-count-that-is-text"),
        pytest.param({"at_us": 1 << 62, "since": 1 << 62}, id="given-a-year-that-no-datetime-has"),
        pytest.param({"starts": [[0, -1]], "positions": [[0, -1, 1]]}, id="given-no-offset"),
        pytest.param(
            {"starts": [[0, 1 << 63]], "positions": [[0, 1 << 63, 1]]}, id="given-too-far"
        ),
        pytest.param(
            {"starts": [[0, 1e400]], "positions": [[0, 1e400, 1]]}, id="given-an-infinite-offset"
        ),
    ],
)
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_given_positions_that_nobody_can_read_from_then_corrupt(
    lie: dict[str, Any], is_snapshot: bool
) -> None:
    """What was folded of it raised a TypeError, an OverflowError, … in every later consumer."""
    whole = _READING if is_snapshot else _OPENED
    told = whole | {name: value for name, value in lie.items() if name in whole}
    data: dict[str, Any] = {"format": 1, "id": "a", "updates": [told]}
    if is_snapshot:
        data = {"format": 1, "id": "a", "snapshot": [told], "recent": [], "recentFrom": 0}
    fold = StateFold(PositionsState())
    fold.restart(int(is_snapshot))
    entry = Entry.unpack(json.dumps(data).encode())
    with pytest.raises(CorruptBatchError, match=f"at offset {int(is_snapshot)} of a state log"):
        fold.take(fold.position, entry, 1)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"[" * 2_000, id="given-nesting-without-end"),
        pytest.param(b'{"format":1,"id":"\\ud800","updates":[]}', id="given-half-a-character"),
        pytest.param(
            b'{"format":1,"id":"a","snapshot":[],"recent":[],"recentFrom":1e400}',
            id="given-an-infinite-offset",
        ),
        pytest.param(
            b'{"format":1,"id":"a","snapshot":[],"recent":[[0,"\\ud800"]],"recentFrom":0}',
            id="given-half-a-character-in-an-older-id",
        ),
    ],
)
def test_given_entries_that_cannot_be_written_again_then_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptBatchError, match="no entry of a state log"):
        Entry.unpack(value)


NO_DOCUMENTS = [b"1", b"[]", b'"a"', b"[" * 2_000, b"\xff"]


@pytest.mark.parametrize("body", NO_DOCUMENTS, ids=lambda body: repr(body[:12]))
def test_given_no_documents_in_a_log_directory_then_it_says_which(
    tmp_path: Path, body: bytes
) -> None:
    """The SPU ended with an AttributeError that named no file."""
    opened = DataDir.open(tmp_path, 1, CLUSTER)
    meta = opened.new_meta(UID, "orders-0", "orders", 0, settings_of())
    opened.create_partitions([meta])
    (tmp_path / "run.json").write_bytes(body)
    assert opened.went_down_uncleanly()
    (opened.partition_path(UID) / "meta.json").write_bytes(body)
    with pytest.raises(StorageFailedError, match=r"meta\.json cannot be read"):
        opened.read_meta(UID)
    json.dumps(describe(open_stopped(opened.partition_path(UID))))
    opened.close()
    (tmp_path / "identity.json").write_bytes(body)
    with pytest.raises(StorageFailedError, match=r"identity\.json .* restore the file"):
        DataDir.open(tmp_path, 1, CLUSTER)


@pytest.mark.parametrize("storage", [0, None, "a", STORAGE.upper()])
def test_given_a_storage_id_that_no_message_can_carry_then_the_meta_is_refused(
    tmp_path: Path, storage: object
) -> None:
    opened = DataDir.open(tmp_path, 1, CLUSTER)
    meta = opened.new_meta(UID, "orders-0", "orders", 0, settings_of())
    opened.create_partitions([meta])
    path = opened.partition_path(UID) / "meta.json"
    path.write_text(json.dumps(meta.to_json() | {"storageId": storage}))
    with pytest.raises(StorageFailedError, match="is not a storage id"):
        opened.read_meta(UID)
    opened.close()


@pytest.mark.parametrize("details", [[1], "text", 7, True])
def test_given_an_error_whose_details_are_none_then_the_error_all_the_same(
    details: object,
) -> None:
    """A ValueError came out of whoever waited for a reply, instead of the error."""
    error = error_from("NOT_LEADER", "elsewhere", details)
    assert (type(error), error.details) == (NotLeaderError, {})


@pytest.mark.parametrize(
    "tail",
    [*NO_DOCUMENTS, b"{}", b'{"problems":[{}]}', b'{"problems":7}'],
    ids=lambda tail: repr(tail[:20]),
)
def test_given_no_findings_then_a_verification_says_so(tail: bytes) -> None:
    """`runnel partition verify` ended with a traceback."""
    with pytest.raises(ProtocolError, match="findings of a verification do not parse"):
        read_findings(memoryview(tail))


def test_given_a_position_that_no_number_is_then_no_finding() -> None:
    row = {"file": "f", "position": 1e400, "reason": "r", "severity": "note"}
    tail = json.dumps({"problems": [row]}).encode()
    with pytest.raises(ProtocolError, match="OverflowError"):
        read_findings(memoryview(tail))


@pytest.mark.parametrize(
    ("api", "fixed", "row"),
    [
        pytest.param(Api.SUBSCRIBE, SubscribeRequest(48).pack(), bytes(48), id="subscribe"),
        pytest.param(Api.CREDIT, b"", bytes(8), id="credit"),
        pytest.param(Api.UNSUBSCRIBE, b"", bytes(4), id="unsubscribe"),
    ],
)
async def test_given_more_rows_than_a_connection_may_have_then_it_ends_before_they_are_read(
    api: Api, fixed: bytes, row: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame of 64 MiB took up to 13 times as much, and the SPU's loop for seconds."""
    monkeypatch.setattr(SubscriptionEntry, "unpack_all", None)
    monkeypatch.setattr(Grant, "unpack_all", None)
    monkeypatch.setattr(requests_module, "unpack_numbers", None)
    tail = row * (MAX_SUBSCRIPTION_BYTES // len(row) + 1)
    transport = await serve([(api, fixed, tail)], PROTOCOL_VERSION, greeted=True)
    statuses = [header.status for header, _fixed, _tail in transport.frames()]
    assert (statuses, transport.closed) == ([ErrorCode.OK, ErrorCode.PROTOCOL], True)


def test_repair_makes_checksums_that_fit() -> None:
    body = b'{"version":1}'
    assert repair.document(body)[8:12] == struct.pack("<I", crc32c(body))
