"""Valid inputs of every target: where fuzzing begins, and what mutations start from."""

from __future__ import annotations

import json
import struct
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from runnel.records.arrow_schema import arrow_schema, encode_rows
from schemas.control.messages import Peer
from schemas.errors import (
    DivergedError,
    ErrorCode,
    NotLeaderError,
    NotReadyError,
    TransactionIdTooLowError,
)
from schemas.wire.batch import (
    TRANSACTION_IDS_FLAG,
    build,
    build_control,
    build_seal,
    set_offset_and_term,
)
from schemas.wire.log_line_requests import ListLogLinesRequest, ListLogLinesResponse
from schemas.wire.log_requests import (
    ListSegmentsRequest,
    ListSegmentsResponse,
    SegmentInfo,
    SegmentState,
    VerifyRequest,
    VerifyResponse,
)
from schemas.wire.payload import RECORD_SCHEMA, TRANSACTION_ID, encode_records
from schemas.wire.protocol import (
    Api,
    HelloRequest,
    HelloResponse,
    pack_error,
    pack_frame,
    unpack_frame,
)
from schemas.wire.record_requests import (
    Acks,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
)
from spu.replication.messages import (
    Append,
    AppendAck,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Message,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.producer_state import with_last_id
from spu.replication.state import HardState, Member
from spu.replication.wire import Greeting, Kind, encode
from spu.storage.journal import JournalEntry
from spu.storage.verification import Problem, Severity
from tests.fuzz.api_seeds import replied, requested, watched
from tests.fuzz.batch_targets import TYPED
from tests.fuzz.document_seeds import DOCUMENTS
from tests.fuzz.manifest_seeds import manifest
from tests.fuzz.targets import FILES
from tests.unit.spu.builders import NOW_US, STAMP, TERM, UID, assignment_of, batch_of, open_log

BOOT: Final = "00ff00ff00ff00ff"
STORAGE: Final = "3f1c1a52-0000-4000-8000-0000000000bb"


def records(count: int = 3) -> pa.RecordBatch:
    """Keys, values and headers, some of them null."""
    rows = [
        {
            "timestamp": number,
            "key": None if number % 3 == 2 else b"k%d" % number,
            "value": b"value %d" % number * number,
            "headers": [{"key": "trace", "value": b"%d" % number}] if number % 2 else None,
        }
        for number in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def record_payload(codec: str = "none", count: int = 3) -> bytes:
    return bytes(encode_records(records(count), codec))


def stored(offset: int, count: int = 3, codec: str = "none") -> bytes:
    """A batch of records that a leader has stamped."""
    batch = build(
        record_payload(codec, count),
        record_count=count,
        first_timestamp_us=0,
        last_timestamp_us=count - 1,
    )
    set_offset_and_term(batch, offset, TERM)
    return bytes(batch)


def _ids() -> pa.Array:
    return pa.array([5, 5, 8], TRANSACTION_ID.type)


def id_payload(codec: str = "none") -> bytes:
    """As `record_payload`; the records have transaction ids from 5 on."""
    return bytes(encode_records(records().append_column(TRANSACTION_ID, _ids()), codec))


def stored_with_ids(offset: int, codec: str = "none") -> bytes:
    """As `stored`, of `id_payload`."""
    batch = build(
        id_payload(codec),
        record_count=3,
        first_timestamp_us=0,
        last_timestamp_us=2,
        flags=TRANSACTION_IDS_FLAG,
        first_transaction_id=5,
        last_transaction_id=8,
    )
    set_offset_and_term(batch, offset, TERM)
    return bytes(batch)


def _seal(offset: int) -> bytes:
    batch = build_seal(0)
    set_offset_and_term(batch, offset, TERM)
    return bytes(batch)


def _control(offset: int) -> bytes:
    batch = build_control("term", 0)
    set_offset_and_term(batch, offset, TERM)
    return bytes(batch)


_ENTRIES = b"".join(
    SubscriptionEntry(number, UID, 4 * number, TERM, 1 << 18).pack() for number in (1, 2)
)


def _frames() -> list[bytes]:
    segments = SegmentInfo(0, 4, 99, SegmentState.COMPLETED, 1, 2).pack()
    verified = VerifyResponse(0, 9, 10, 10, 0, 999, 999, 3, 10, 1, 1, bytes(16), 1)
    problem = Problem("00000000000000000000.index", 0, "is missing", Severity.NOTE, rebuilt=True)
    requests = [
        (Api.HELLO, HelloRequest(1, 1).pack(), b""),
        (Api.PRODUCE, ProduceRequest(UID, Acks.COMMITTED, 9).pack(), b"t" * 20),
        (Api.FETCH, FetchRequest(UID, 1, 2, 3, 4).pack(), b""),
        (Api.FETCH, FetchRequest(UID, 1, 2, 3, 4).pack()[:-1], b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, -2).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, 7, PositionBy.TRANSACTION_ID).pack(), b""),
        (Api.SUBSCRIBE, SubscribeRequest(48).pack(), _ENTRIES),
        (Api.SUBSCRIBE, SubscribeRequest(96).pack(), _ENTRIES),
        (Api.CREDIT, b"", Grant(1, 1 << 20).pack() + Grant(2, 1).pack()),
        (Api.UNSUBSCRIBE, b"", pack_numbers([1, 2, 3])),
        (Api.PUSH, PushResponse(1, 2, 3).pack(), b"t" * 200),
        (Api.LIST_SEGMENTS, ListSegmentsRequest(UID, 1, 2).pack(), b""),
        (Api.LIST_SEGMENTS, ListSegmentsResponse(1, 2, 3).pack(), segments),
        (Api.VERIFY, VerifyRequest(UID, -2, 1, 2, 3).pack(), b""),
        (Api.LIST_LOG_LINES, ListLogLinesRequest(1, 2, 30).pack(), b"api-1"),
        (Api.LIST_LOG_LINES, ListLogLinesResponse(1, 2, 3, 1).pack(), b'{"level": "info"}\n'),
        (Api.VERIFY, verified.pack(), json.dumps({"problems": [problem.to_json()]}).encode()),
        (Api.HELLO, HelloResponse(1, 2, 3).pack(), b"cluster"),
        (Api.PRODUCE, ProduceResponse(1, 2).pack(), b""),
        (Api.FETCH, FetchResponse(1, 2).pack(), b"t" * 200),
        (Api.LIST_OFFSETS, ListOffsetsResponse(1, 2, 3, 4).pack(), b""),
    ]
    made = [b"".join(pack_frame(api, 7, fixed, tail)) for api, fixed, tail in requests]
    errors = [
        NotLeaderError("elsewhere"),
        DivergedError("lost", diverged_at=4),
        TransactionIdTooLowError("below 9", last_transaction_id=9),
        NotReadyError("a batch is missing", expectedSequence=7, knownEnd=9),
    ]
    made += [b"".join(pack_error(api, 7, one)) for api in (Api.FETCH, Api.PUSH) for one in errors]
    return [*(bytes([9]) + one for one in made), bytes([40]) + b"".join(made)]


def _peer_wire() -> list[bytes]:
    batches = tuple(
        Batch(offset, offset + count, TERM, stored(offset, count))
        for offset, count in ((5, 1), (6, 3))
    )
    messages: list[Message] = [
        Attach(TERM, 9),
        Attach(TERM, 9, BOOT),
        LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17, "an fsync failed"),
        LogEnd(TERM, 9, BOOT, STORAGE, TERM - 1, 17, None, 15, TERM - 1, BOOT),
        Outdated(TERM, 9, BOOT, 12),
        Truncate(TERM, 9, BOOT, TERM - 1, 12),
        Reset(TERM, 9, BOOT, 40, TERM - 1, ((7, 1, ((0, 5, 8), (1, 8, 9))), (9, 0, ((3, 1, 2),)))),
        Reset(TERM, 9, BOOT, 40, TERM - 1, with_last_id(((7, 1, ((0, 5, 8),)),), 41)),
        Append(TERM, 9, BOOT, batches, 4, 0),
        CommitUpdate(TERM, 9, BOOT, 41, 3),
        AppendAck(TERM, 9, 12, 11, gap=True),
        Reject(TERM, 9, TERM + 1),
    ]
    pieces = [encode(UID, message) for message in messages]
    pieces.append(Greeting(3, 1, "cluster").frame())
    found = []
    for one in pieces:
        header, fixed, tail = unpack_frame(memoryview(b"".join(one))[4:])
        found.append(bytes([1, header.api, len(fixed)]) + fixed + tail)
    # A client that calls the private port.
    hello = HelloRequest(1, 1).pack()
    found.append(bytes([1, Kind.GREETING, len(hello)]) + hello)
    return found


def _fetched() -> list[bytes]:
    data = stored(0) + _control(3) + stored(4, 2, "zstd") + stored(8, 1, "lz4")
    options = [(1, 0, 9), (9, 0, 0), (3, 2, 9), (5, 1, 1), (1, 5, 9), (41, 0, 0), (41, 0, 2)]
    with_ids = stored(0) + stored_with_ids(3) + _control(6) + stored_with_ids(7, "zstd")
    found = [bytes(one) + with_ids for one in [(1, 0, 10), (17, 0, 8), (25, 4, 6)]]
    # It ends before the one record of its batch that has the id.
    found.append(bytes((26, 0, 8)) + stored_with_ids(7))
    found.append(bytes((9, 0, 0)) + stored(0) + _seal(3) + _control(4))
    return [*(bytes(one) + data for one in options), *found]


def _payload() -> list[bytes]:
    codecs = ("none", "lz4", "zstd")
    found = [bytes([3, n]) + record_payload(codec) for n, codec in enumerate(codecs)]
    ids = [
        bytes([3, choice]) + id_payload(codec)
        for codec, choice in zip(codecs, (64, 96, 71), strict=True)
    ]
    return [*found, bytes([1, 128]) + record_payload(count=1), *ids]


def _typed() -> list[bytes]:
    times = [datetime(2026, 1, day) for day in (1, 2, 3)]  # noqa: DTZ001 - a wall clock
    flat: dict[str, list[Any]] = {
        "id": [1, 2, 3],
        "note": ["a", None, "c"],
        "at": times,
        "day": [None, *(time.date() for time in times[1:])],
        "price": [Decimal("1.50"), None, Decimal(7)],
    }
    places = [{"city": "Bern", "open": True}, None]
    nested = {
        "key": [b"a", b"b", b"c"],
        "tags": [[("x", 1)], None, []],
        "places": [places, None, []],
    }
    found = []
    for number, codec, choice in [
        *((0, "none", 0), (0, "zstd", 8), (1, "none", 0), (0, "none", 96), (2, "none", 128)),
        *((2, "lz4", 4), (3, "none", 0), (3, "none", 64)),
    ]:
        _rows, columns = TYPED[number]
        values = nested if number > 1 else flat
        schema = arrow_schema(columns)
        arrays = [pa.array(values[field.name], field.type) for field in schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if choice & 64:
            rows = rows.append_column(TRANSACTION_ID, _ids())
        found.append(bytes([3, number | choice]) + bytes(encode_rows(rows, codec)))
    return found


@cache
def log_directory() -> dict[str, bytes]:
    """The files of a log of three segments: two completed, a checkpoint, indexes."""
    with TemporaryDirectory() as name:
        opened = open_log(Path(name))
        for number in range(5):
            if number and not number % 2:
                opened.log.roll(NOW_US)
            ids = (number, number) if number < 3 else None
            opened.append(batch_of(1, ids=ids, producer_id=7, sequence=number))
            opened.sync(lac=number - 1, checkpoint=number == 3)
        opened.crash()
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _checkpoint() -> list[bytes]:
    whole = log_directory()["checkpoint"]
    body: dict[str, Any] = json.loads(whole[12:])
    old = {key: value for key, value in body.items() if key not in ("history", "settled")}
    told = (0, 0, ((7, 0, 0),))
    smaller = body | {"logStart": 0, "segment": 0, "durableLeo": 2, "lac": 1}
    smaller |= {"scanOffset": 0, "scanPosition": 0, "history": [[TERM, 0]]}
    bodies = [
        body,
        smaller,
        smaller | {"cutAt": 128, "durableLeo": 1, "lac": 0, "settled": [1, []]},
        old | {"lastTerm": TERM},
        smaller | {"idBeforeStart": 7},
        {k: v for k, v in smaller.items() if k != "idBeforeStart"} | {"producers": [told]},
    ]
    return [bytes([0]) + whole, *(bytes([1]) + json.dumps(one).encode() for one in bodies)]


def _index() -> list[bytes]:
    summary = struct.pack("<qqqqqqq", 0, 2, 256, 1_000, 0, 1, 9)
    entries = struct.pack("<qqqq", 0, 0, -(1 << 63), -1)
    whole = next(content for name, content in log_directory().items() if name.endswith(".index"))
    earlier = bytes([0]) + b"RNLI" + whole[4:]
    found = [bytes([1]) + summary + entries, bytes([3]) + summary + entries, bytes([0]) + whole]
    return [*found, bytes([2]) + whole, earlier]


def _journal() -> list[bytes]:
    hard_state = HardState(
        "s",
        TERM,
        revision=3,
        replicas=(1, 2),
        lrs=(Member(1, "s"),),
        min_in_sync=1,
        pending=(Member(1, "s"), Member(2, "t")),
        leading=True,
    )
    rows: list[list[dict[str, Any]]] = [
        [json.loads(JournalEntry(UID, hard_state, assignment=assignment_of()).to_json())],
        [{"seen": 9, "stamp": STAMP.to_json()}],
        [{"peer": Peer(spu_id=2, host="spu-2", port=9006).to_json()}],
        [json.loads(JournalEntry(UID, hard_state, assigned=False).to_json()), {"removed": UID}],
    ]
    bodies = [json.dumps(one, separators=(",", ":")).encode() for one in rows]
    framed = [struct.pack("<H", len(body)) + body for body in bodies]
    return [
        *(bytes([1]) + one for one in framed),
        bytes([1]) + b"".join(framed) + b"RNLJ",
        bytes([2]) + b"\n".join(bodies),
    ]


def _file(name: str, content: bytes, *, repaired: bool) -> bytes:
    return struct.pack("<BH", FILES.index(name) << 1 | repaired, len(content)) + content


def _directory() -> list[bytes]:
    files = log_directory()
    plain = b"".join(
        _file(name, content, repaired=False) for name, content in files.items() if name in FILES
    )
    repaired = b"".join(
        _file(name, files[name][12:] if name == "checkpoint" else files[name], repaired=True)
        for name in files
        if name in FILES and not name.endswith(".index")
    )
    without = b"".join(
        _file(name, content, repaired=True) for name, content in files.items() if ".log" in name
    )
    odd = b"".join(_file(name, b"", repaired=False) for name in FILES[6:])
    earlier = without + b"".join(
        _file(name, b"RNLI", repaired=False) for name in FILES if name.endswith(".index")
    )
    return [plain, repaired, without, plain + odd, earlier]


def _served() -> list[bytes]:
    entries = _ENTRIES[:-8] + b"\1" + bytes(7)
    produced = batch_of(ids=(3, 4), count=2)
    requests: list[tuple[Api, bytes, bytes | bytearray]] = [
        (Api.PRODUCE, ProduceRequest(UID, Acks.COMMITTED, 9).pack(), produced),
        (Api.FETCH, FetchRequest(UID, 1, 200, 3, 0).pack(), b""),
        (Api.FETCH, FetchRequest(UID, 6, 200, 3, 9, TERM).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, -2).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, 1_003).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, 3, PositionBy.TRANSACTION_ID).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, 3, PositionBy.OFFSET, 2, TERM).pack(), b""),
        (Api.LIST_OFFSETS, ListOffsetsRequest(UID, -1, below=2, term=TERM + 1).pack(), b""),
        (Api.LIST_SEGMENTS, ListSegmentsRequest(UID).pack(), b""),
        (Api.VERIFY, VerifyRequest(UID, -2, 0, 0, 0).pack(), b""),
        (Api.LIST_LOG_LINES, ListLogLinesRequest(0, 9, 10, 1, 0).pack(), b""),
        (Api.SUBSCRIBE, SubscribeRequest(48).pack(), entries),
        (Api.CREDIT, b"", Grant(1, 200).pack() + Grant(2, 1).pack()),
        (Api.UNSUBSCRIBE, b"", pack_numbers([2, 3])),
    ]
    said = []
    for api, fixed, tail in requests:
        piece = bytes([len(fixed)]) + fixed + bytes(tail)
        said.append(struct.pack("<BH", api, len(piece)) + piece)
    subscribed = bytes([0]) + b"".join(said[-3:])
    return [*(bytes([1]) + one for one in said), subscribed, bytes([1]) + b"".join(said)]


def _answered() -> list[bytes]:
    answers = [
        (Api.PRODUCE, 0, 1, ProduceResponse(1, 2).pack(), b""),
        (Api.FETCH, 0, 2, FetchResponse(1, 2).pack(), b"t" * 20),
        (Api.LIST_OFFSETS, 0, 3, ListOffsetsResponse(1, 2, 3, 4).pack(), b""),
        (Api.SUBSCRIBE, 0, 4, b"", b""),
        (Api.PUSH, 0, 1, PushResponse(0, 2, 3).pack(), b"t" * 20),
        (Api.PUSH, 0, 2, PushResponse(0, 5, 5).pack(), b""),
        (Api.PUSH, ErrorCode.DIVERGED, 2, b"\4" + bytes(7), b"lost"),
    ]
    late = (Api.PRODUCE, ErrorCode.TRANSACTION_ID_TOO_LOW, 1, b"\11" + bytes(7), b"below 9")
    return [_said(answers[:-1]), _said(answers), _said([late, *answers[1:4]]), _said(answers[3:6])]


def _said(answers: list[tuple[Api, int, int, bytes, bytes]]) -> bytes:
    found = b""
    for api, status, correlation, fixed, tail in answers:
        piece = struct.pack("<HBB", status, correlation, len(fixed)) + fixed + tail
        found += struct.pack("<BH", api, len(piece)) + piece
    return found


@cache
def seeds(target: str) -> list[bytes]:
    """Inputs that a target accepts, most of them."""
    return {
        "frames": _frames,
        "peer_wire": _peer_wire,
        "fetched": _fetched,
        "payload": _payload,
        "typed": _typed,
        "checkpoint": _checkpoint,
        "index": _index,
        "journal": _journal,
        "directory": _directory,
        "served": _served,
        "answered": _answered,
        **DOCUMENTS,
        "manifest": manifest,
        "requested": requested,
        "replied": replied,
        "watched": watched,
    }[target]()
