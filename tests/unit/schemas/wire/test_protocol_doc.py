"""The protocol reference says what the code does: tables, numbers, vectors and bytes."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import ErrorCode, NotLeaderError, RetryableError, error_from
from schemas.ids import PartitionUid
from schemas.objects.topic import MAX_BATCH_BYTES
from schemas.wire import (
    located_batches,
    log_line_requests,
    log_requests,
    protocol,
    record_requests,
    subscription_requests,
)
from schemas.wire.batch import (
    CODECS,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    build,
    crc32c,
    set_offset_and_term,
    verify_client_part,
)
from schemas.wire.payload import RECORD_SCHEMA, decode_records, encode_records, record_schema_json
from schemas.wire.protocol import (
    FRAME_HEADER,
    HELLO_MAGIC,
    MAX_FETCH_BYTES,
    MAX_FRAME_BYTES,
    MAX_SUBSCRIPTION_BYTES,
    PREFIX,
    PROTOCOL_VERSION,
    Api,
    FrameHeader,
    HelloRequest,
    pack_frame,
    raise_for_status,
    unpack_frame,
)
from schemas.wire.record_requests import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    Acks,
    AnswerFlags,
    FetchFlags,
    ProduceRequest,
    ProduceResponse,
)
from spu.replica.waiters import MAX_WAIT_MS
from spu.replication.producer_state import REMEMBERED_BATCHES
from spu.server.connection import HELLO_TIMEOUT_S, MAX_IN_FLIGHT
from spu.server.subscriptions import COLD_BYTES, MAX_SUBSCRIPTIONS, QUANTUM_BYTES
from tests.unit.schemas.wire.test_partitioner import VECTORS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "protocol.md"
TEXT = PAGE.read_text(encoding="utf-8")
FLAT = " ".join(TEXT.split())

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the page. ``layout`` is the struct format its comment claims, if any."""

    layout: str
    rows: tuple[tuple[str, ...], ...]


def _tables() -> dict[str, Table]:
    found = {}
    for match in re.finditer(r"<!-- table: (\w+)(?: (\S+))? -->\n((?:\|.*\n)+)", TEXT):
        lines = match[3].strip().split("\n")
        rows = tuple(
            tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]
        )
        found[match[1]] = Table(match[2] or "", rows)
    return found


TABLES = _tables()
BLOCKS = {
    match[1]: bytes.fromhex(
        "".join(line.partition("#")[0] for line in match[2].split("\n")).replace(" ", "")
    )
    for match in re.finditer(r"```hex ([\w-]+)\n(.*?)```", TEXT, re.DOTALL)
}

#: The fixed parts, and the rows of tails.
PARTS: dict[str, Any] = {
    name: cls
    for module in (
        protocol,
        record_requests,
        subscription_requests,
        log_requests,
        log_line_requests,
        located_batches,
    )
    for name, cls in vars(module).items()
    if isinstance(cls, type) and hasattr(cls, "LAYOUT")
}
LAYOUTS: dict[str, struct.Struct] = {name: cls.LAYOUT for name, cls in PARTS.items()} | {
    "frame": struct.Struct(PREFIX.format + FRAME_HEADER.format.lstrip("<")),
    "batch": HEADER,
}


def code(kind: str) -> str:
    """The struct code of a type as the page writes it."""
    if kind in _CODES:
        return _CODES[kind]
    match = re.fullmatch(r"(bytes|pad)\[(\d+)\]", kind)
    assert match, kind
    return f"{match[2]}{'s' if match[1] == 'bytes' else 'x'}"


def test_every_layout_has_a_table_and_no_other() -> None:
    assert {name for name, table in TABLES.items() if table.layout} == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_types_and_offsets_make_the_layout(name: str) -> None:
    table, layout = TABLES[name], LAYOUTS[name]
    assert "<" + "".join(code(row[1]) for row in table.rows) == layout.format == table.layout
    at = 0
    for offset, kind, *_ in table.rows:
        assert int(offset) == at
        at += struct.calcsize("<" + code(kind))
    assert at == layout.size


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"frame", "batch"}))
def test_fields_and_sizes_are_named(name: str) -> None:
    named = [row[2] for row in TABLES[name].rows if row[2] not in {"", "magic"}]
    assert named == [field.name for field in fields(PARTS[name])]
    if (message := re.fullmatch(r"(\w+?)(Request|Response)", name)) is None:
        # A row of an answer's tail, or its beginning.
        assert re.search(f" {LAYOUTS[name].size} bytes( each:|, then)", TEXT)
        return
    api, part = message.groups()
    title = f"{re.sub('(?<=[a-z])(?=[A-Z])', '_', api).upper()} {part.lower()}"
    section = TEXT.split(f"### {title}\n")[1].split("###")[0]
    assert f"\n{LAYOUTS[name].size} bytes." in section


def test_fields_of_the_two_headers_are_named() -> None:
    frame = [row[2] for row in TABLES["frame"].rows]
    assert frame == ["length", *(field.name for field in fields(FrameHeader))]
    batch = {row[2] for row in TABLES["batch"].rows} - {"magic", "zero"}
    assert batch == {*BatchHeader._fields}
    assert f"The fixed part follows at {PREFIX.size + FRAME_HEADER.size} " in FLAT
    assert f"a header of {HEADER_SIZE} bytes" in FLAT


@pytest.mark.parametrize(
    ("name", "members"),
    [("apis", Api), ("acks", Acks), ("flags", FetchFlags), ("answer_flags", AnswerFlags)],
    ids=["apis", "acks", "flags", "answer flags"],
)
def test_numbers_of_apis_acks_and_flags(name: str, members: Any) -> None:
    told = {row[1]: int(row[0]) for row in TABLES[name].rows}
    assert told == {member.name: member.value for member in members}


def test_error_codes() -> None:
    told = {int(row[0]): (row[1], row[2] == "yes") for row in TABLES["errors"].rows}
    assert told == {
        error.value: (error.name, isinstance(error_from(error, ""), RetryableError))
        for error in ErrorCode
    }


def test_vectors_of_the_key_hash() -> None:
    told = [
        (bytes.fromhex(key.strip("`").replace("empty", "")), int(hashed, 16), int(partition))
        for key, hashed, partition in TABLES["vectors"].rows
    ]
    assert told == VECTORS


def test_the_record_schema() -> None:
    told = [{"name": name, "type": kind} for name, kind, _ in TABLES["schema"].rows]
    assert told == record_schema_json()


def test_limits() -> None:
    assert [int(size) for _, size in TABLES["limits"].rows] == [
        MAX_FRAME_BYTES,
        MAX_BATCH_BYTES,
        MAX_FETCH_BYTES,
        4_096,
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        f"of the protocol: {PROTOCOL_VERSION}",
        f"`{HELLO_MAGIC.decode()}`",
        f"{EARLIEST}: earliest; {LATEST}: latest",
        f"{NO_OFFSET}: at any",
        f"{MAGIC:#06x}: the letters `{MAGIC.to_bytes(2, 'little').decode()}`",
        ", ".join(f"{number} {name}" for name, number in CODECS.items()),
        f"the CRC of `123456789` in ASCII is {crc32c(b'123456789'):#x}",
        f"within {HELLO_TIMEOUT_S:.0f} seconds",
        f"After {MAX_IN_FLIGHT} unanswered requests",
        f"longest wait for the commit; at most {MAX_WAIT_MS} counts",
        f"turns of at most {QUANTUM_BYTES} bytes",
        f"one at a time has a turn, of at most {COLD_BYTES} bytes",
        f"At most {MAX_SUBSCRIPTIONS} subscriptions a connection",
        f"SUBSCRIBE, UNSUBSCRIBE and CREDIT have at most {MAX_SUBSCRIPTION_BYTES} bytes",
        f"the last {REMEMBERED_BATCHES} batches of each producer",
    ],
)
def test_numbers_in_sentences(sentence: str) -> None:
    assert sentence in FLAT


# The payload


def flat_counts(kind: pa.DataType) -> tuple[int, int]:
    """Field nodes and buffers of a type, depth first."""
    if pa.types.is_list(kind):
        nodes, buffers = flat_counts(kind.value_type)
        return nodes + 1, buffers + 2
    if pa.types.is_struct(kind):
        inner = [flat_counts(kind.field(i).type) for i in range(kind.num_fields)]
        return 1 + sum(n for n, _ in inner), 1 + sum(b for _, b in inner)
    return 1, 2 if pa.types.is_timestamp(kind) else 3


def test_counts_of_nodes_and_buffers() -> None:
    counts = [flat_counts(field.type) for field in RECORD_SCHEMA]
    nodes, buffers = sum(n for n, _ in counts), sum(b for _, b in counts)
    assert f"makes {nodes} field nodes" in FLAT
    assert f"and {buffers} buffers" in FLAT
    batch = BLOCKS["produce-request"][PREFIX.size + FRAME_HEADER.size + 32 :]
    message = pa.ipc.read_message(batch[HEADER_SIZE:])
    assert (message.type, message.metadata_version) == ("record batch", 4), "V5 is number 4"


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_an_arrow_library_makes_the_payload_as_told(codec: str) -> None:
    """A stream without the schema in front and the eight bytes at the end."""
    records = pa.RecordBatch.from_pylist(
        [{"timestamp": 1, "key": b"k", "value": b"v" * 500, "headers": None}], RECORD_SCHEMA
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    with pa.ipc.new_stream(sink, RECORD_SCHEMA, options=options) as stream:
        stream.write_batch(records)
    whole = sink.getvalue().to_pybytes()
    schema = RECORD_SCHEMA.serialize().to_pybytes()
    assert whole.startswith(schema)
    assert whole[len(schema) : -8] == bytes(encode_records(records, codec))


# The worked example


def frame(name: str) -> tuple[FrameHeader, bytes, memoryview]:
    data = BLOCKS[name]
    (length,) = PREFIX.unpack_from(data)
    assert length == len(data) - PREFIX.size
    header, fixed, tail = unpack_frame(memoryview(data)[PREFIX.size :])
    assert header.version == PROTOCOL_VERSION
    return header, bytes(fixed), tail


def test_the_hello_of_the_example() -> None:
    header, fixed, tail = frame("hello-request")
    assert (header.api, header.correlation, len(tail)) == (Api.HELLO, 1, 0)
    assert HelloRequest.unpack(fixed) == HelloRequest(1, 1)


def test_the_produce_request_of_the_example() -> None:
    header, fixed, tail = frame("produce-request")
    assert (header.api, header.correlation, header.status) == (Api.PRODUCE, 2, 0)
    assert ProduceRequest.unpack(fixed) == ProduceRequest(
        PartitionUid("3f1c1a52-0000-4000-8000-0000000000aa"), Acks.COMMITTED, 30_000
    )
    told = verify_client_part(tail)
    assert (told.record_count, told.producer_id) == (1, 0x1122334455667788)
    assert (
        decode_records(tail).to_pylist()
        == pa.RecordBatch.from_pylist(
            [{"timestamp": 1_700_000_000_000_000, "key": b"k", "value": b"hello", "headers": []}],
            RECORD_SCHEMA,
        ).to_pylist()
    )
    again = build(
        tail[HEADER_SIZE:],
        record_count=1,
        first_timestamp_us=told.first_timestamp_us,
        last_timestamp_us=told.last_timestamp_us,
        producer_id=told.producer_id,
    )
    assert bytes(again) == bytes(tail)
    set_offset_and_term(again, 1, 65_536)
    assert again[24:] == bytes(tail)[24:]
    sent = pack_frame(Api.PRODUCE, 2, fixed, tail)
    assert b"".join(bytes(piece) for piece in sent) == BLOCKS["produce-request"]


def test_comments_of_the_example_stand_beside_what_they_say() -> None:
    block = TEXT.split("```hex produce-request\n")[1].split("```")[0]
    sizes = {
        match[1]: len(bytes.fromhex(line.partition("#")[0].replace(" ", "")))
        for line in block.split("\n")
        if (match := re.search(r"# (.*)", line))
    }
    batch = len(frame("produce-request")[2])
    assert sizes["uid"] == 16
    assert sizes[f"client CRC of bytes 24 to {batch}"] == 4
    assert sizes[f"length {batch}"] == 4
    assert sizes[f"length: {len(BLOCKS['produce-request']) - 4} bytes follow"] == 4


def test_the_answers_of_the_example() -> None:
    header, fixed, _ = frame("produce-response")
    assert (header.api, header.correlation) == (Api.PRODUCE, 2)
    assert ProduceResponse.unpack(fixed) == ProduceResponse(1, 1)
    header, _, tail = frame("produce-refusal")
    with pytest.raises(NotLeaderError, match="SPU 1 does not lead orders-0"):
        raise_for_status(header, tail)
