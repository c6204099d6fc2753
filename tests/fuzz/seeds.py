"""Valid inputs of every target: where fuzzing begins, and what mutations start from."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from schemas.batch import (
    RECORD_SCHEMA,
    TRANSACTION_ID,
    TRANSACTION_IDS_FLAG,
    build,
    build_control,
    encode_records,
    stamp,
)
from schemas.errors import DivergedError, NotLeaderError, TransactionIdTooLowError
from schemas.messages import Peer
from schemas.protocol import Api, HelloRequest, HelloResponse, pack_error, pack_frame, unpack_frame
from schemas.record_requests import (
    Acks,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PositionBy,
    ProduceRequest,
    ProduceResponse,
)
from schemas.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
)
from spu.producers import with_last_id
from spu.replication.messages import (
    Ack,
    Append,
    Attach,
    Batch,
    Confirm,
    Cut,
    Message,
    Position,
    Refuse,
    Reset,
)
from spu.replication.state import Member, Promise
from spu.replication.wire import Greeting, encode
from spu.storage.journal import JournalEntry
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
    stamp(batch, offset, TERM)
    return bytes(batch)


def stored_with_ids(offset: int, codec: str = "none") -> bytes:
    """As `stored`; the records have transaction ids from 5 on."""
    ids = pa.array([5, 5, 8], TRANSACTION_ID.type)
    batch = build(
        encode_records(records().append_column(TRANSACTION_ID, ids), codec),
        record_count=3,
        first_timestamp_us=0,
        last_timestamp_us=2,
        flags=TRANSACTION_IDS_FLAG,
        first_transaction_id=5,
        last_transaction_id=8,
    )
    stamp(batch, offset, TERM)
    return bytes(batch)


def _control(offset: int) -> bytes:
    batch = build_control("term", 0)
    stamp(batch, offset, TERM)
    return bytes(batch)


_ENTRIES = b"".join(
    SubscriptionEntry(number, UID, 4 * number, TERM, 1 << 18).pack() for number in (1, 2)
)


def _frames() -> list[bytes]:
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
        Position(TERM, 9, BOOT, STORAGE, TERM - 1, 17, "an fsync failed"),
        Cut(TERM, 9, BOOT, TERM - 1, 12),
        Reset(TERM, 9, BOOT, 40, TERM - 1, ((7, 1, ((0, 5, 8), (1, 8, 9))), (9, 0, ((3, 1, 2),)))),
        Reset(TERM, 9, BOOT, 40, TERM - 1, with_last_id(((7, 1, ((0, 5, 8),)),), 41)),
        Append(TERM, 9, BOOT, batches, 4, 0),
        Confirm(TERM, 9, BOOT, 41, 3),
        Ack(TERM, 9, 12, 11, gap=True),
        Refuse(TERM, 9, TERM + 1),
    ]
    pieces = [encode(UID, message) for message in messages]
    pieces.append(Greeting(3, 1, "cluster").frame())
    found = []
    for one in pieces:
        header, fixed, tail = unpack_frame(memoryview(b"".join(one))[4:])
        found.append(bytes([1, header.api, len(fixed)]) + fixed + tail)
    return found


def _fetched() -> list[bytes]:
    data = stored(0) + _control(3) + stored(4, 2, "zstd") + stored(8, 1, "lz4")
    options = [(1, 0, 9), (9, 0, 0), (3, 2, 9), (5, 1, 1), (1, 5, 9)]
    with_ids = stored(0) + stored_with_ids(3) + _control(6) + stored_with_ids(7, "zstd")
    found = [bytes(one) + with_ids for one in [(1, 0, 10), (17, 0, 8), (25, 4, 6)]]
    return [*(bytes(one) + data for one in options), *found]


def _payload() -> list[bytes]:
    codecs = ("none", "lz4", "zstd")
    found = [bytes([3, n]) + record_payload(codec) for n, codec in enumerate(codecs)]
    return [*found, bytes([1, 128]) + record_payload(count=1)]


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
    smaller = body | {"logStart": 0, "segment": 0, "durableLeo": 2, "lac": 1}
    smaller |= {"scanOffset": 0, "scanPosition": 0, "history": [[TERM, 0]]}
    bodies = [
        body,
        smaller,
        smaller | {"cutAt": 128, "durableLeo": 1, "lac": 0, "settled": [1, []]},
        old | {"lastTerm": TERM},
    ]
    return [bytes([0]) + whole, *(bytes([1]) + json.dumps(one).encode() for one in bodies)]


def _index() -> list[bytes]:
    summary = struct.pack("<qqqqqqq", 0, 2, 256, 1_000, 0, 1, 9)
    entries = struct.pack("<qqqq", 0, 0, -(1 << 63), -1)
    whole = next(content for name, content in log_directory().items() if name.endswith(".index"))
    return [bytes([1]) + summary + entries, bytes([3]) + summary + entries, bytes([0]) + whole]


def _journal() -> list[bytes]:
    promise = Promise(
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
        [json.loads(JournalEntry(UID, promise, assignment=assignment_of()).to_json())],
        [{"seen": 9, "stamp": STAMP.to_json()}],
        [{"peer": Peer(spu_id=2, host="spu-2", port=9006).to_json()}],
        [json.loads(JournalEntry(UID, promise, assigned=False).to_json()), {"removed": UID}],
    ]
    bodies = [json.dumps(one, separators=(",", ":")).encode() for one in rows]
    framed = [struct.pack("<H", len(body)) + body for body in bodies]
    return [
        *(bytes([1]) + one for one in framed),
        bytes([1]) + b"".join(framed) + b"RNLJ",
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
    return [plain, repaired, without, plain + odd]


@cache
def seeds(target: str) -> list[bytes]:
    """Inputs that a target accepts, most of them."""
    return {
        "frames": _frames,
        "peer_wire": _peer_wire,
        "fetched": _fetched,
        "payload": _payload,
        "checkpoint": _checkpoint,
        "index": _index,
        "journal": _journal,
        "directory": _directory,
    }[target]()
