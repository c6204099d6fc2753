"""What is fuzzed: functions of bytes, each with its law, called by every fuzzer alike.

A target returns, or raises `Rejected` for input that was refused as documented. Any other
exception is a finding, and so is memory beyond what `tests.fuzz.bounds` allows. The first bytes
of an input say how the rest is used; with a set lowest bit of the first one, checksums are made
right (`tests.fuzz.repair`), so that lies get behind them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

from runnel.partition.stored_batches import read_segments, segment_files
from runnel.partition.verify import read_findings
from schemas.errors import (
    CorruptBatchError,
    ProtocolError,
    RunnelError,
    StorageFailedError,
)
from schemas.wire import framing
from schemas.wire.batch import read_header, set_offset_and_term, split_batches, verify
from schemas.wire.frame_budget import Claim, FrameBudget
from schemas.wire.log_line_requests import ListLogLinesRequest, ListLogLinesResponse
from schemas.wire.log_requests import (
    ListSegmentsRequest,
    ListSegmentsResponse,
    SegmentInfo,
    VerifyRequest,
    VerifyResponse,
)
from schemas.wire.protocol import Api, HelloRequest, HelloResponse, raise_for_status, unpack_frame
from schemas.wire.record_requests import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
    unpack_numbers,
)
from spu.replication.messages import Reset
from spu.replication.producer_state import ProducerTable
from spu.replication.wire import Greeting, Kind, damaged, decode, encode
from spu.storage import segment
from spu.storage.checkpoint import read_checkpoint, write_checkpoint
from spu.storage.index import read_index, read_summary
from spu.storage.journal import Journal, JournalChange, Seen
from spu.storage.recovery import RecoveredLog
from spu.storage.segment import Damage
from spu.storage.stopped import as_json, describe, open_stopped, verify_stopped
from tests.fuzz import repair
from tests.fuzz.api_targets import requested
from tests.fuzz.batch_targets import fetched, payload, typed
from tests.fuzz.client_targets import replied, watched
from tests.fuzz.connection_targets import answered, served
from tests.fuzz.document_targets import data_dir, events, session, stored
from tests.fuzz.law import Rejected, Target, empty_directory, named_pieces, options
from tests.fuzz.manifest_targets import manifest
from tests.fuzz.state_targets import positions
from tests.unit.spu.builders import NOW_US, STAMP, TERM, batch_of, open_log, recover

#: Buffers and limits as small as the inputs, so that these reach every branch.
SMALL_BUFFER: Final = 64
FRAME_LIMIT: Final = 4_000
SMALL_SCAN: Final = 128

_REQUESTS: Final = {
    Api.HELLO: HelloRequest,
    Api.PRODUCE: ProduceRequest,
    Api.FETCH: FetchRequest,
    Api.LIST_OFFSETS: ListOffsetsRequest,
    Api.LIST_SEGMENTS: ListSegmentsRequest,
    Api.VERIFY: VerifyRequest,
    Api.LIST_LOG_LINES: ListLogLinesRequest,
    Api.SUBSCRIBE: SubscribeRequest,
}
_RESPONSES: Final = {
    Api.HELLO: HelloResponse,
    Api.PRODUCE: ProduceResponse,
    Api.FETCH: FetchResponse,
    Api.LIST_OFFSETS: ListOffsetsResponse,
    Api.LIST_SEGMENTS: ListSegmentsResponse,
    Api.VERIFY: VerifyResponse,
    Api.LIST_LOG_LINES: ListLogLinesResponse,
    Api.PUSH: PushResponse,
}


def frames(data: bytes) -> None:
    """A stream of frames, in pieces of any size, to the reader of an SPU and that of a client.

    Both find the same frames, whole and in order, and refuse the same stream; so does that of an
    SPU with a budget of memory, which it returns.
    """
    step, stream = options(data)
    found, refusal = _frames_of(stream, step + 1, owned=False)
    claim = FrameBudget(SMALL_BUFFER).claim(lambda: None)
    claimed, spu_refusal = _frames_of(stream, step + 1, owned=False, claim=claim)
    assert claimed == found
    assert (refusal is None) == (spu_refusal is None)
    claim.release()
    assert claim._budget.used_bytes == 0
    mirrored, client_refusal = _frames_of(stream, step + 1, owned=True)
    assert mirrored == found
    assert (refusal is None) == (client_refusal is None)
    assert sum(map(len, found)) + 4 * len(found) <= len(stream)
    for frame in found:
        _request(frame)
        _response(frame)
    if refusal is not None:
        raise Rejected from refusal


def _frames_of(
    stream: bytes, step: int, *, owned: bool, claim: Claim | None = None
) -> tuple[list[bytes], ProtocolError | None]:
    found: list[memoryview | bytes] = []
    refusal: ProtocolError | None = None
    with mock.patch.object(framing, "_KEEP_BYTES", 2 * SMALL_BUFFER):
        reader = framing.FrameReader(
            FRAME_LIMIT, owned=owned, receive_bytes=SMALL_BUFFER, claim=claim
        )
        try:
            while stream:
                room = reader.buffer()
                count = min(len(room), step, len(stream))
                assert count
                room[:count] = stream[:count]
                stream = stream[count:]
                reader.received(count)
                while (frame := reader.next_frame()) is not None:
                    # An owned frame keeps its bytes, a lent one only until the next `buffer`.
                    found.append(frame if owned else bytes(frame))
        except ProtocolError as error:
            refusal = error
    return [bytes(frame) for frame in found], refusal


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
        if header.api == Api.LIST_SEGMENTS:
            segments = SegmentInfo.unpack_all(tail)
            assert SegmentInfo.unpack_all(b"".join(one.pack() for one in segments)) == segments
        elif header.api == Api.VERIFY:
            read_findings(tail)
    except RunnelError:
        pass


def peer_wire(data: bytes) -> None:
    """A message between SPUs: kind, length of the fixed part, fixed part, tail.

    What is understood says the same when it is sent on; producers fit into a table and a
    checkpoint.
    """
    choice, data = options(data)
    kind, data = options(data)
    length, data = options(data)
    fixed, tail = data[:length], data[length:]
    if choice & 1:
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


def checkpoint(data: bytes) -> None:
    """A checkpoint file beside a log. What is read can be written, and reads back the same."""
    choice, data = options(data)
    with empty_directory() as directory:
        log = b"".join(_stored(offset) for offset in range(3))
        (directory / f"{0:020d}.log").write_bytes(log)
        path = directory / "checkpoint"
        path.write_bytes(repair.document(data) if choice & 1 else data)
        found = read_checkpoint(directory)
        if found is not None and found.history_known:
            write_checkpoint(directory, found)
            assert read_checkpoint(directory) == found
        _recovered(directory)
        if found is None:
            raise Rejected


def index(data: bytes) -> None:
    """An index file of a completed segment and of the last one."""
    choice, data = options(data)
    with empty_directory() as directory:
        opened = open_log(directory)
        for _ in range(2):
            opened.append(batch_of())
        opened.log.roll(NOW_US)
        opened.append(batch_of())
        opened.sync(checkpoint=True)
        opened.crash()
        name = directory / f"{2 if choice & 2 else 0:020d}.index"
        name.write_bytes(repair.index(data) if choice & 1 else data)
        found = read_index(name)
        assert found is None or read_summary(name) == found[0]
        _recovered(directory)
        if found is None:
            raise Rejected


def journal(data: bytes) -> None:
    """A journal: of frames whose lengths or lines say how long they are, or as it is. What opens
    goes on."""
    choice, data = options(data)
    with empty_directory() as directory:
        path = directory / "journal"
        if choice & 2:
            data = b"".join(map(repair.journal_frame, data.splitlines()))
        path.write_bytes(_framed(data) if choice & 1 else data)
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
    "00000000000000000000-00000000000000000002-9.truncated",
    "meta.json",
)


def directory(data: bytes) -> None:
    """A log directory that holds anything: files of a name, a length of two bytes and content."""
    with empty_directory() as path:
        for name, content in _files(data):
            (path / name).write_bytes(content)
        _looked_at(path)
        found = _recovered(path)
        if found.unfit is not None:
            raise Rejected


def _looked_at(path: Path) -> None:
    """What is printed of a directory that no SPU has open, damaged as it may be."""
    log = open_stopped(path)
    with mock.patch.object(segment, "_SCAN_BYTES", SMALL_SCAN):
        json.dumps([describe(log), as_json(log, verify_stopped(log, lambda done, total: None))])
    for batch in read_segments(segment_files(path), 1):
        assert batch.problem is not None or verify(batch.data) == batch.header


def _files(data: bytes) -> Iterator[tuple[str, bytes]]:
    for code, content in named_pieces(data):
        name = FILES[(code >> 1) % len(FILES)]
        yield name, _repaired(name, content) if code & 1 else content


def _repaired(name: str, content: bytes) -> bytes:
    if name.endswith(".log"):
        return repair.batches(content)
    return repair.index(content) if name.endswith(".index") else repair.document(content)


def _recovered(path: Path) -> RecoveredLog:
    """Recover what is in ``path``: always an answer, and the same one when asked again."""
    with mock.patch.object(segment, "_SCAN_BYTES", SMALL_SCAN):
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
    set_offset_and_term(batch, offset, TERM)
    return bytes(batch)


TARGETS: Final[dict[str, Target]] = {
    "frames": frames,
    "peer_wire": peer_wire,
    "fetched": fetched,
    "payload": payload,
    "typed": typed,
    "checkpoint": checkpoint,
    "index": index,
    "journal": journal,
    "directory": directory,
    "positions": positions,
    "served": served,
    "answered": answered,
    "data_dir": data_dir,
    "session": session,
    "stored": stored,
    "events": events,
    "manifest": manifest,
    "requested": requested,
    "replied": replied,
    "watched": watched,
}
