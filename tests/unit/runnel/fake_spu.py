"""A scripted SPU: partitions in memory, and for every produce or fetch a line of a script.

Without a script it behaves. With one, each request takes the next step: an error to answer
before anything is done, or one of the `Step` mishaps. It pushes only if it is told that it can:
one batch a frame, and each frame takes the next step of its script.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from schemas.daemon.log_ring import LogRing
from schemas.errors import (
    ConflictError,
    DivergedError,
    FencedError,
    NotLeaderError,
    NotReadyError,
    OffsetOutOfRangeError,
    RunnelError,
    SealedError,
    StorageFailedError,
    UnsupportedError,
)
from schemas.wire.batch import BatchHeader, read_header, set_offset_and_term, verify_client_part
from schemas.wire.log_line_requests import ListLogLinesRequest
from schemas.wire.payload import decode_records
from schemas.wire.protocol import PREFIX, Api, HelloResponse, pack_error, pack_frame, unpack_frame
from schemas.wire.record_requests import (
    LATEST,
    NO_OFFSET,
    Acks,
    FetchFlags,
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
    unpack_numbers,
)
from spu.replication.history import History, common_end, diverged_at, extended, term_at
from spu.server.log_lines import list_log_lines
from tests.unit.runnel.fake_sc import CLUSTER_UID


class Step(Enum):
    OK = auto()
    #: Appended, but the answer is an error that leaves the outcome open.
    APPEND_THEN_NOT_READY = auto()
    #: Appended, then the connection breaks.
    APPEND_THEN_DROP = auto()
    #: Not appended, and the connection breaks.
    DROP = auto()
    #: Not appended or read, and not answered.
    SILENCE = auto()


@dataclass
class FakeLog:
    batches: list[bytearray] = field(default_factory=list)
    start: int = 0
    end: int = 0
    sequences: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    #: The last add confirmed where it is not the end: a follower's, or one under way.
    confirmed: int | None = None
    #: Whether it is sealed for producers; readers meet a seal that a test puts into the log.
    refuses: bool = False

    @property
    def lac(self) -> int:
        return self.end - 1 if self.confirmed is None else self.confirmed

    @property
    def values(self) -> list[bytes]:
        """Those of all records, in order."""
        return [
            value
            for batch in self.batches
            for value in decode_records(batch).column("value").to_pylist()
        ]

    def visible(self) -> int:
        """What a fetch ends before."""
        return self.lac + 1

    def lacks(self, offset: int) -> bool:
        """Does a leader refuse to read from this offset?"""
        return not self.start <= offset <= self.end

    def follow(self, leader: FakeLog, batches: int | None = None) -> None:
        """Hold the first batches of a leader's log, and know their producers; all by default."""
        for batch in leader.batches[len(self.batches) : batches]:
            header = read_header(batch)
            if header.producer_id:
                known = self.sequences.setdefault((header.producer_id, header.producer_epoch), {})
                known[header.sequence] = header.base_offset
                self.newest[header.producer_id] = header.producer_epoch
            self.batches.append(bytearray(batch))
            self.end = header.next_offset

    def append(
        self, batch: bytes | bytearray | memoryview, expected_offset: int = NO_OFFSET
    ) -> int:
        """As the leader does: duplicates get their old offset, gaps are refused."""
        header = verify_client_part(batch)
        if expected_offset not in (NO_OFFSET, self.end):
            raise ConflictError(f"the next offset is not {expected_offset}, but {self.end}")
        if header.producer_id:
            known = self.sequences.setdefault((header.producer_id, header.producer_epoch), {})
            if header.sequence in known:
                return known[header.sequence]
            self._require_open()
            if known and header.sequence != max(known) + 1:
                raise NotReadyError(
                    f"sequence {header.sequence} came before {max(known) + 1}",
                    expectedSequence=max(known) + 1,
                    knownEnd=known[max(known)] + 1,
                )
            newest = self.newest.get(header.producer_id, header.producer_epoch)
            if newest > header.producer_epoch:
                raise FencedError("an old epoch")
            if newest < header.producer_epoch and header.sequence:
                before = self.sequences[header.producer_id, newest]
                raise NotReadyError(
                    f"sequence {header.sequence} came before 0",
                    expectedSequence=0,
                    knownEnd=before[max(before)] + 1,
                )
            self.newest[header.producer_id] = header.producer_epoch
            known[header.sequence] = self.end
        self._require_open()
        return self.put(bytearray(batch))

    def _require_open(self) -> None:
        if self.refuses:
            raise SealedError("it is sealed: it takes no more records")

    def go_back(self, batches: int) -> None:
        """Be as after so many batches: an old copy of the disk was put back."""
        kept, self.batches = self.batches[:batches], []
        self.end, self.sequences, self.newest = 0, {}, {}
        self.follow(FakeLog(kept))

    def put(self, batch: bytearray, term: int = 1 << 16) -> int:
        """Append a batch as it is."""
        base = self.end
        set_offset_and_term(batch, base, term)
        self.batches.append(batch)
        self.end += read_header(batch).record_count
        return base

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]

    @property
    def history(self) -> History:
        found: History = ()
        for head in self.headers():
            found = extended(found, head.term, head.base_offset)
        return found

    def require_held(self, offset: int, term: int) -> None:
        """As a leader compares what a reader has read."""
        if not term or offset <= self.start:
            return
        if offset <= self.end:
            place = diverged_at(self.history, offset, term, self.end)
        else:
            place = common_end(self.history, term, self.end)
        if place is not None:
            raise DivergedError(f"it differs from offset {place} on", diverged_at=place)


class FakeSpu:
    def __init__(self) -> None:
        self.logs: dict[str, FakeLog] = defaultdict(FakeLog)
        self.produce_script: deque[Step | RunnelError | Callable[[], RunnelError]] = deque()
        self.fetch_script: deque[Step | RunnelError] = deque()
        self.cluster_uid = CLUSTER_UID
        #: Its own log lines; None as of an earlier version.
        self.log_ring: LogRing | None = LogRing(2)
        #: A follower serves fetches that allow it, and nothing else.
        self.leads = True
        #: A leader that has committed nothing tells no offsets.
        self.commits = True
        #: Whether it finds transaction ids, or takes them for timestamps as earlier versions do.
        self.knows_ids = True
        #: It tells and compares terms where positions are asked for.
        self.knows_terms = True
        self.fetched: list[FetchRequest] = []
        #: Does it refuse to send verified batches? What happens when a reader asks for some.
        self.finds_damage = False
        self.found_damage: Callable[[], None] = lambda: None
        #: Does it know subscriptions?
        self.pushes = False
        self.push_script: deque[Step | RunnelError] = deque()
        #: The entries of each SUBSCRIBE.
        self.subscribed: list[list[SubscriptionEntry]] = []
        self.unsubscribed: list[int] = []
        #: Bytes that a subscription may be sent, the newest connection's.
        self.credits: dict[int, int] = {}
        self.most_credit = 0
        self.pushed = 0
        self._pushing: dict[int, asyncio.Task[None]] = {}
        #: How many requests it did not know.
        self.refused = 0
        #: A frozen SPU takes frames and does nothing, until `thaw`.
        self.frozen = False
        self.unread: list[tuple[memoryview, asyncio.StreamWriter]] = []
        self.produced: list[BatchHeader] = []
        self.fetches = 0
        self.fetches_answered = 0
        self.in_flight = 0
        self.most_in_flight = 0
        #: While cleared, produce requests are not answered.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        #: Until this is set, fetches with `Step.SILENCE` are not answered.
        self.may_speak = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._grown = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while True:
                (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
                frame = memoryview(await reader.readexactly(length))
                if self.frozen:
                    self.unread.append((frame, writer))
                else:
                    self._dispatch(frame, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    def thaw(self) -> None:
        self.frozen = False
        unread, self.unread = self.unread, []
        for frame, writer in unread:
            self._dispatch(frame, writer)

    def unread_fetches(self) -> list[FetchRequest]:
        frames = (unpack_frame(frame) for frame, _ in self.unread)
        return [FetchRequest.unpack(fixed) for head, fixed, _ in frames if head.api == Api.FETCH]

    def _dispatch(self, frame: memoryview, writer: asyncio.StreamWriter) -> None:
        header, fixed, tail = unpack_frame(frame)

        def answer(body: bytes, *data: bytes | bytearray | memoryview) -> None:
            writer.writelines(pack_frame(header.api, header.correlation, body, *data))

        def refuse(error: RunnelError) -> None:
            writer.writelines(pack_error(header.api, header.correlation, error))

        match header.api:
            case Api.HELLO:
                answer(HelloResponse(1, 1, 1 << 27).pack(), self.cluster_uid.encode())
            case Api.PRODUCE:
                request = ProduceRequest.unpack(fixed)
                self._spawn(self._produce(request, tail, answer, refuse, writer))
            case Api.FETCH:
                self._spawn(self._fetch(FetchRequest.unpack(fixed), answer, refuse, writer))
            case Api.LIST_OFFSETS:
                if not self.commits:
                    refuse(NotReadyError("the leader has not committed its first record yet"))
                elif self.leads:
                    self._list(ListOffsetsRequest.unpack(fixed), answer, refuse)
                else:
                    refuse(NotLeaderError("another SPU leads"))
            case Api.SUBSCRIBE if self.pushes:
                entries = SubscriptionEntry.unpack_all(
                    tail, SubscribeRequest.unpack(fixed).entry_bytes
                )
                self.subscribed.append(entries)
                answer(b"")
                for entry in entries:
                    self.credits[entry.number] = entry.credit
                    self._pushing[entry.number] = self._spawn(self._push(entry, writer))
            case Api.CREDIT if self.pushes:
                for grant in Grant.unpack_all(tail):
                    self.credits[grant.number] += grant.credit
                    self.most_credit = max(self.most_credit, self.credits[grant.number])
                self._spawn(self.grown())
            case Api.LIST_LOG_LINES if self.log_ring is not None:
                asked = ListLogLinesRequest.unpack(fixed)
                answer(*list_log_lines(self.log_ring, asked, tail))
            case Api.UNSUBSCRIBE if self.pushes:
                for number in unpack_numbers(tail):
                    self.unsubscribed.append(number)
                    self._pushing[number].cancel()
            case _:
                self.refused += 1
                refuse(UnsupportedError("an SPU of an earlier version"))

    def _spawn(self, work) -> asyncio.Task[None]:  # type: ignore[no-untyped-def]
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def grown(self) -> None:
        """Say that a log or a credit has grown."""
        async with self._grown:
            self._grown.notify_all()

    async def _push(self, entry: SubscriptionEntry, writer: asyncio.StreamWriter) -> None:
        log, number, offset = self.logs[entry.uid], entry.number, entry.offset
        told = False
        while True:
            step = self.push_script.popleft() if self.push_script else self._usual()
            if log.lacks(offset):
                step = OffsetOutOfRangeError(f"offset {offset} is not in the log")
            if step is Step.SILENCE:
                await self.may_speak.wait()
            elif step is Step.DROP:
                writer.transport.abort()
                return
            elif isinstance(step, RunnelError):
                writer.writelines(pack_error(Api.PUSH, number, step))
                return
            async with self._grown:
                while told and not (log.lac >= offset and self.credits[number] > 0):
                    await self._grown.wait()
            found = [
                bytes(batch)
                for batch in log.batches
                if offset < read_header(batch).next_offset <= log.visible()
            ][:1]
            if found:
                offset = read_header(found[0]).next_offset
                self.credits[number] -= len(found[0])
            told = True
            self.pushed += 1
            fixed = PushResponse(log.start, log.lac, offset).pack()
            writer.writelines(pack_frame(Api.PUSH, number, fixed, *found))

    async def _produce(self, request, batch, answer, refuse, writer) -> None:  # type: ignore[no-untyped-def]
        self.produced.append(read_header(batch))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        step = self.produce_script.popleft() if self.produce_script else self._usual()
        if callable(step):
            step = step()
        log = self.logs[request.uid]
        base = -1
        refusal: RunnelError | None = None
        if step in {Step.OK, Step.APPEND_THEN_NOT_READY, Step.APPEND_THEN_DROP}:
            try:
                base = log.append(batch, request.expected_offset)
            except RunnelError as error:
                refusal = error
        await self.may_answer.wait()
        self.in_flight -= 1
        async with self._grown:
            self._grown.notify_all()
        if request.acks is Acks.NONE or step is Step.SILENCE:
            return
        if isinstance(step, RunnelError):
            refuse(step)
        elif step in {Step.DROP, Step.APPEND_THEN_DROP}:
            writer.transport.abort()
        elif step is Step.APPEND_THEN_NOT_READY:
            refuse(NotReadyError("the leader changed"))
        elif refusal is not None:
            refuse(refusal)
        else:
            answer(ProduceResponse(base, log.end - 1).pack())

    async def _fetch(self, request: FetchRequest, answer, refuse, writer) -> None:  # type: ignore[no-untyped-def]
        self.fetches += 1
        self.fetched.append(request)
        allowed = bool(request.flags & FetchFlags.FOLLOWER_OK)
        if FetchFlags.VERIFIED in request.flags:
            self.found_damage()
            if self.finds_damage:
                refuse(StorageFailedError("the replica cannot serve: a checksum does not match"))
                return
        step = self.fetch_script.popleft() if self.fetch_script else self._usual(allowed)
        if isinstance(step, RunnelError):
            refuse(step)
            return
        if step is Step.DROP:
            writer.transport.abort()
            return
        if step is Step.SILENCE:
            await self.may_speak.wait()
        log = self.logs[request.uid]
        if log.lacks(request.offset) and (self.leads or request.offset < log.start):
            refuse(OffsetOutOfRangeError(f"offset {request.offset} is not in the log"))
            return
        try:
            log.require_held(request.offset, request.term)
        except DivergedError as error:
            refuse(error)
            return
        try:
            async with asyncio.timeout(request.max_wait_ms / 1000), self._grown:
                await self._grown.wait_for(lambda: log.lac >= request.offset)
        except TimeoutError:
            pass
        found: list[bytes] = []
        size = 0
        for batch in log.batches:
            head = read_header(batch)
            if head.next_offset <= request.offset:
                continue
            if head.next_offset > log.visible():
                break
            if found and size + len(batch) > request.max_bytes:
                break
            found.append(bytes(batch))
            size += len(batch)
        answer(FetchResponse(log.start, log.lac).pack(), *found)
        self.fetches_answered += 1

    def _usual(self, follower_ok: bool = False) -> Step | RunnelError:
        return Step.OK if self.leads or follower_ok else NotLeaderError("another SPU leads")

    def _list(self, request: ListOffsetsRequest, answer, refuse) -> None:  # type: ignore[no-untyped-def]
        log = self.logs[request.uid]
        seals = (head.base_offset for head in log.headers() if head.is_seal)
        end = next(seals, log.lac + 1)
        if request.position == LATEST:
            offset = end
        elif request.position < 0:
            offset = log.start
        elif request.by is PositionBy.OFFSET:
            assert self.knows_terms, "nobody asks an SPU that does not know this"
            offset = request.position
        else:
            by_id = request.by is PositionBy.TRANSACTION_ID and self.knows_ids
            offset = next(
                (
                    head.base_offset
                    for head in log.headers()
                    if (head.last_transaction_id if by_id else head.last_timestamp_us)
                    >= request.position
                ),
                log.end,
            )
            offset = min(offset, end)
        size = sum(len(batch) for batch in log.batches)
        try:
            if self.knows_terms:
                log.require_held(request.below, request.term)
        except DivergedError as error:
            refuse(error)
            return
        term = term_at(log.history, offset - 1) if offset <= log.lac + 1 else 0
        found = ListOffsetsResponse(offset, log.start, log.lac, size, request.by, term).pack()
        known = len(found) if self.knows_terms else 33
        answer(found[: known if self.knows_ids else 32])
