"""What is fuzzed: functions of bytes, each with its law, called by every fuzzer alike.

A target returns, or raises `Rejected` for input that was refused as documented. Any other
exception is a finding, and so is memory beyond what `tests.fuzz.bounds` allows. The first bytes
of an input say how the rest is used; with a set lowest bit of the first one, checksums are made
right (`tests.fuzz.repair`), so that lies get behind them.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from runnel.cursor import Cursor
from runnel.frames import FrameAssembler
from runnel.read_state import Chunk, ReadState
from schemas.batch import MAX_DECODED_BYTES, build, read_header, split_batches, stamp, verify
from schemas.errors import (
    CorruptBatchError,
    ProtocolError,
    RunnelError,
    StorageFailedError,
    UnsupportedError,
)
from schemas.protocol import Api, HelloRequest, HelloResponse, raise_for_status, unpack_frame
from schemas.record_requests import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from schemas.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
    unpack_numbers,
)
from spu import frames as spu_frames
from spu.producers import ProducerTable
from spu.replication.messages import Reset
from spu.replication.wire import Greeting, Kind, damaged, decode, encode
from spu.storage.checkpoint import read_checkpoint, write_checkpoint
from spu.storage.index import read_index, read_summary
from spu.storage.journal import Journal, JournalChange, Seen
from spu.storage.recovery import RecoveredLog, recover
from spu.storage.segment import Damage
from tests.fuzz import repair
from tests.unit.spu.builders import NOW_US, STAMP, TERM, batch_of, open_log

Target = Callable[[bytes], None]


class Rejected(Exception):  # noqa: N818 - an answer, not an error
    """The input was refused by an error that is documented."""


#: Buffers and limits as small as the inputs, so that these reach every branch.
SMALL_BUFFER: Final = 64
FRAME_LIMIT: Final = 4_000

_REQUESTS: Final = {
    Api.HELLO: HelloRequest,
    Api.PRODUCE: ProduceRequest,
    Api.FETCH: FetchRequest,
    Api.LIST_OFFSETS: ListOffsetsRequest,
    Api.SUBSCRIBE: SubscribeRequest,
}
_RESPONSES: Final = {
    Api.HELLO: HelloResponse,
    Api.PRODUCE: ProduceResponse,
    Api.FETCH: FetchResponse,
    Api.LIST_OFFSETS: ListOffsetsResponse,
    Api.PUSH: PushResponse,
}


def frames(data: bytes) -> None:
    """A stream of frames, in pieces of any size, to the reader of an SPU and that of a client.

    Both find the same frames, whole and in order, and refuse the same stream.
    """
    step, stream = _options(data)
    found, refusal = _frames_of_spu(stream, step + 1)
    mirrored, client_refusal = _frames_of_client(stream, step + 1)
    if refusal is None:
        assert mirrored == found
    assert (refusal is None) == (client_refusal is None)
    assert sum(map(len, found)) + 4 * len(found) <= len(stream)
    for frame in found:
        _request(frame)
        _response(frame)
    if refusal is not None:
        raise Rejected from refusal


def _frames_of_spu(stream: bytes, step: int) -> tuple[list[bytes], ProtocolError | None]:
    found: list[bytes] = []
    with mock.patch.multiple(spu_frames, RECEIVE_BYTES=SMALL_BUFFER, _KEEP_BYTES=2 * SMALL_BUFFER):
        reader = spu_frames.FrameReader(FRAME_LIMIT)
        try:
            while stream:
                room = reader.buffer()
                count = min(len(room), step, len(stream))
                assert count
                room[:count] = stream[:count]
                stream = stream[count:]
                reader.received(count)
                while (frame := reader.next_frame()) is not None:
                    found.append(bytes(frame))
        except ProtocolError as error:
            return found, error
    return found, None


def _frames_of_client(stream: bytes, step: int) -> tuple[list[bytes], ProtocolError | None]:
    found: list[bytes] = []
    assembler = FrameAssembler(FRAME_LIMIT, SMALL_BUFFER)
    try:
        while stream:
            room = assembler.buffer()
            count = min(len(room), step, len(stream))
            assert count
            room[:count] = stream[:count]
            stream = stream[count:]
            found += [bytes(frame) for frame in assembler.received(count)]
    except ProtocolError as error:
        return found, error
    return found, None


def _request(frame: bytes) -> None:
    """What a client sends, as an SPU reads it: a request, or a ProtocolError."""
    try:
        header, fixed, tail = unpack_frame(memoryview(frame))
        layout = _REQUESTS.get(header.api)  # type: ignore[call-overload]
        if layout is not None:
            request = layout.unpack(fixed)
            assert layout.unpack(request.pack()) == request
        _rows(header.api, fixed, tail)
    except ProtocolError:
        pass


def _rows(api: int, fixed: memoryview, tail: memoryview) -> None:
    """The rows of a request's tail."""
    match api:
        case Api.SUBSCRIBE:
            length = SubscribeRequest.unpack(fixed).entry_bytes
            entries = SubscriptionEntry.unpack_all(tail, length)
            packed = b"".join(entry.pack() for entry in entries)
            assert SubscriptionEntry.unpack_all(packed, SubscriptionEntry.LAYOUT.size) == entries
        case Api.CREDIT:
            assert b"".join(grant.pack() for grant in Grant.unpack_all(tail)) == tail
        case Api.UNSUBSCRIBE:
            assert pack_numbers(unpack_numbers(tail)) == tail


def _response(frame: bytes) -> None:
    """What an SPU answers, as a client reads it: any error of the tree may be the answer."""
    try:
        header, fixed, tail = unpack_frame(memoryview(frame))
        raise_for_status(header, tail, fixed)
        layout = _RESPONSES.get(header.api)  # type: ignore[call-overload]
        if layout is not None:
            response = layout.unpack(fixed)
            assert layout.unpack(response.pack()) == response
    except RunnelError:
        pass


def peer_wire(data: bytes) -> None:
    """A message between SPUs: kind, length of the fixed part, fixed part, tail.

    What is understood says the same when it is sent on; producers fit into a table and a
    checkpoint.
    """
    options, data = _options(data)
    kind, data = _options(data)
    length, data = _options(data)
    fixed, tail = data[:length], data[length:]
    if options & 1:
        tail = repair.batches(tail)
    try:
        if kind == Kind.GREETING:
            Greeting.unpack(memoryview(fixed), memoryview(tail)).frame()
            return
        uid, message = decode(kind, memoryview(fixed), memoryview(tail))
    except ProtocolError as error:
        raise Rejected from error
    except CorruptBatchError as error:
        damaged(memoryview(fixed))
        raise Rejected from error
    header, *parts = unpack_frame(memoryview(b"".join(encode(uid, message)))[4:])
    assert decode(header.api, *parts) == (uid, message)
    if isinstance(message, Reset):
        table = ProducerTable(message.producers)
        for batch in (batch_of(producer_id=7, sequence=1), batch_of(producer_id=8)):
            table.record(read_header(batch), 0)
        table.dump_before(4)


def fetched(data: bytes) -> None:
    """What a fetch brings: any position, any last add confirmed, any batches."""
    options, data = _options(data)
    position, data = _options(data)
    lac, data = _options(data)
    if options & 1:
        data = repair.batches(data)
    cursor = Cursor(
        "orders",
        0,
        position,
        stop=position + 9 if options & 2 else None,
        not_before_us=lac if options & 4 else None,
        not_before_id=lac if options & 16 else None,
    )
    _consume(cursor, data, None if options & 8 else lac)


def payload(data: bytes) -> None:
    """An Arrow payload that says anything, in a batch that is right. Two bytes: records, codec."""
    count, data = _options(data)
    codec, data = _options(data)
    batch = build(
        data,
        record_count=count or 1,
        first_timestamp_us=0,
        last_timestamp_us=0,
        codec=codec % 3,
    )
    stamp(batch, 0, TERM)
    _consume(Cursor("orders", 0, 0, not_before_us=1 if codec & 128 else None), batch, None)


def _consume(cursor: Cursor, data: bytes | bytearray, lac: int | None) -> None:
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
        state = ReadState("orders")
        state.open(Chunk(0, [rows], cursor.position))
        records = list(state.records())
        assert len(records) == rows.num_rows
        assert all(before <= record.offset < cursor.position for record in records)
        assert all(type(record.timestamp) is int for record in records)


def checkpoint(data: bytes) -> None:
    """A checkpoint file beside a log. What is read can be written, and reads back the same."""
    options, data = _options(data)
    with _directory() as directory:
        log = b"".join(_stored(offset) for offset in range(3))
        (directory / f"{0:020d}.log").write_bytes(log)
        path = directory / "checkpoint"
        path.write_bytes(repair.document(data) if options & 1 else data)
        found = read_checkpoint(directory)
        if found is not None and found.history_known:
            write_checkpoint(directory, found)
            assert read_checkpoint(directory) == found
        _recovered(directory)
        if found is None:
            raise Rejected


def index(data: bytes) -> None:
    """An index file of a completed segment and of the last one."""
    options, data = _options(data)
    with _directory() as directory:
        opened = open_log(directory)
        for _ in range(2):
            opened.append(batch_of())
        opened.log.roll(NOW_US)
        opened.append(batch_of())
        opened.sync(checkpoint=True)
        opened.crash()
        name = directory / f"{2 if options & 2 else 0:020d}.index"
        name.write_bytes(repair.index(data) if options & 1 else data)
        found = read_index(name)
        assert found is None or read_summary(name) == found[0]
        _recovered(directory)
        if found is None:
            raise Rejected


def journal(data: bytes) -> None:
    """A journal, of frames of at most 255 bytes or as it is. What opens goes on."""
    options, data = _options(data)
    with _directory() as directory:
        path = directory / "journal"
        path.write_bytes(_framed(data) if options & 1 else data)
        before = path.read_bytes()
        try:
            opened = Journal.open(path)
        except StorageFailedError as error:
            assert path.read_bytes() == before
            raise Rejected from error
        assert before.startswith(path.read_bytes())
        entries, peers = opened.entries, opened.peers
        opened.append([JournalChange(seen=Seen(9, STAMP))])
        opened.close()
        again = Journal.open(path)
        again.close()
        assert (again.entries, again.peers, again.seen) == (entries, peers, Seen(9, STAMP))


def _framed(data: bytes) -> bytes:
    """Frames of a journal: each a length of two bytes and its body; what is left is a tail."""
    found = b""
    while len(data) >= 2:
        (length,) = struct.unpack_from("<H", data)
        if len(data) - 2 < length:
            break
        found += repair.journal_frame(data[2 : 2 + length])
        data = data[2 + length :]
    return found + data


#: File names that a log directory may hold, and some that it never should.
FILES: Final = (
    "00000000000000000000.log",
    "00000000000000000002.log",
    "00000000000000000004.log",
    "00000000000000000000.index",
    "00000000000000000002.index",
    "checkpoint",
    "checkpoint.unfinished",
    "99999999999999999999.log",
    "2.log",
    "\N{SUPERSCRIPT TWO}.log",
    "cut-1-1",
    "00000000000000000002.log.unfinished",
)


def directory(data: bytes) -> None:
    """A log directory that holds anything: files of a name, a length of two bytes and content."""
    with _directory() as path:
        for name, content in _files(data):
            (path / name).write_bytes(content)
        found = _recovered(path)
        if found.unfit is not None:
            raise Rejected


def _files(data: bytes) -> Iterator[tuple[str, bytes]]:
    while len(data) >= 3:
        code, length = struct.unpack_from("<BH", data)
        content, data = data[3 : 3 + length], data[3 + length :]
        name = FILES[(code >> 1) % len(FILES)]
        if code & 1:
            content = _repaired(name, content)
        yield name, content


def _repaired(name: str, content: bytes) -> bytes:
    if name.endswith(".log"):
        return repair.batches(content)
    return repair.index(content) if name.endswith(".index") else repair.document(content)


def _recovered(path: Path) -> RecoveredLog:
    """Recover what is in ``path``: always an answer, and the same one when asked again."""
    found = recover(path, NOW_US)
    if found.unfit is not None:
        assert str(path) in found.unfit
        return found
    opened = open_log(path)
    try:
        again = opened.found
        assert again.unfit is None
        assert (again.leo, again.log_start, again.lac) == (found.leo, found.log_start, found.lac)
        assert not again.cut_bytes
        offset = opened.log.log_start
        while offset < opened.log.leo:
            result = opened.log.read(offset, 200, opened.log.leo, wait=True)
            for header, batch in split_batches(result.data):
                verify(batch)
                assert header.base_offset <= offset < header.next_offset
                offset = header.next_offset
    except (Damage, CorruptBatchError, OSError):
        # Damage in a completed segment is found by who reads there.
        pass
    finally:
        opened.crash()
    return found


def _stored(offset: int, count: int = 1) -> bytes:
    batch = batch_of(count)
    stamp(batch, offset, TERM)
    return bytes(batch)


def _options(data: bytes) -> tuple[int, bytes]:
    """The first byte and the rest."""
    return (data[0], data[1:]) if data else (0, b"")


@contextmanager
def _directory() -> Iterator[Path]:
    """An empty directory in memory, if that is possible; nothing waits for a disk."""
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="runnel-fuzz-", dir=place))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, path)
        stack.enter_context(
            mock.patch.multiple(os, fsync=lambda fd: None, fdatasync=lambda fd: None)
        )
        yield path


TARGETS: Final[dict[str, Target]] = {
    "frames": frames,
    "peer_wire": peer_wire,
    "fetched": fetched,
    "payload": payload,
    "checkpoint": checkpoint,
    "index": index,
    "journal": journal,
    "directory": directory,
}
