"""The batches that one replica takes: what appends them, and what their producers wait for.

A batch is appended when the replica leads and nothing is to be said against it. Its producer hears
of it when ``acks`` asks for that: at once, when it is written, or when it is committed. What comes
while the replica takes over waits until it may append (`spu.replica.held_produces`): then it comes
right behind the control record that begins the term, and is committed with that.

Neighbours: `spu.replica.preconditions` and `spu.replica.batch_checks` say what is refused;
`spu.replica.replica` tells how the log goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter

from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    NotEnoughReplicasError,
    NotLeaderError,
    NotReadyError,
    RunnelError,
)
from schemas.wire.batch import BatchHeader
from schemas.wire.record_requests import NO_OFFSET, Acks, ProduceRequest, ProduceResponse
from spu.load.verdict import SegmentLoad
from spu.replica.batch_checks import admit, admit_schema
from spu.replica.context import ReplicaContext
from spu.replica.held_produces import Answer, Cancellable, HeldProduces
from spu.replica.preconditions import Preconditions
from spu.replica.runner import ReplicaRunner
from spu.replica.waiters import MAX_WAIT_MS, OffsetWaiters, Waiter
from spu.replication.state import Leading
from spu.storage.log import NoRoomError


class ReplicaAppends:
    """See the module's docstring. ``written`` is called when a batch was appended."""

    def __init__(
        self,
        context: ReplicaContext,
        runner: ReplicaRunner,
        preconditions: Preconditions,
        load: SegmentLoad,
        written: Callable[[], None],
    ) -> None:
        self._context = context
        self._runner = runner
        self._log = runner.log
        self._preconditions = preconditions
        self._load = load
        self._written = written
        self._commits = OffsetWaiters()
        self._writes = OffsetWaiters()
        self._held = HeldProduces(context.held, self.produce)

    @property
    def _name(self) -> str:
        return self._runner.meta.name

    @property
    def _lac(self) -> int:
        return self._runner.state.lac

    def produce(
        self, request: ProduceRequest, batch: memoryview, answer: Answer
    ) -> Cancellable | None:
        """Append a batch as ``request`` asks; ``answer`` is called once, now or later.

        Returns the waiting request, or None if nothing waits: it was answered, or has ``acks:
        none``. The offset and term are written into ``batch`` itself, which is not kept. Raises
        RunnelError if the batch is refused.
        """
        try:
            leading = self._require_appendable(request.acks)
        except (NotLeaderError, NotReadyError) as refusal:
            if request.acks is Acks.NONE or not self._preconditions.is_taking_over:
                raise
            return self._held.hold(request, batch, answer, refusal)
        header = admit(batch, self._runner.settings.max_record_size, self._name)
        admit_schema(header, self._runner.settings.row_schema, self._name)
        if header.producer_id:
            try:
                duplicate = self._log.producers.check(header)
            except RunnelError as error:
                # What it waits for will not come any more. Any other batch may be in the log, so
                # that its producer must not write it elsewhere.
                absent = isinstance(error, NotReadyError)
                if (seal := self._preconditions.seal) is not None and absent:
                    return self._refuse_sealed(seal, request, answer)
                if self._preconditions.is_serving or request.acks is not Acks.COMMITTED:
                    raise
                # Until it serves, a leader may find out that its log lacks what was committed; the
                # producer may take this for proof that acknowledged batches were lost.
                return self._when_committed(leading.control + 1, request, error, answer)
            if duplicate is not None:
                at, end = duplicate.base_offset, duplicate.next_offset
                if request.acks is Acks.LEADER:
                    return self._when_written(end, request, at, answer)
                return self._when_committed(end, request, at, answer)
        if (seal := self._preconditions.seal) is not None:
            return self._refuse_sealed(seal, request, answer)
        expected = request.expected_offset
        if expected not in (NO_OFFSET, self._log.leo):
            # A record at that offset proves the conflict once it is committed; an offset beyond
            # the log's end is a conflict already.
            return self._when_committed(
                expected + 1 if expected < self._log.leo else 0,
                request,
                ConflictError(
                    f"the next offset of {self._name} is not {expected}, but {self._log.leo}"
                ),
                answer,
            )
        if header.has_transaction_ids and header.first_transaction_id < self._log.last_id:
            return self._when_committed(
                self._log.last_id_end,
                request,
                self._preconditions.transaction_id_too_low(header),
                answer,
            )
        self._context.space.require_room(len(batch))
        base_offset = self._append(batch, header, leading.term)
        next_offset = base_offset + header.record_count
        match request.acks:
            case Acks.COMMITTED:
                return self._when_committed(next_offset, request, base_offset, answer)
            case Acks.LEADER:
                return self._when_written(next_offset, request, base_offset, answer)
            case Acks.NONE:
                pass
        return None

    # How the log goes on

    def synced(self) -> None:
        """More of the log is written."""
        self._writes.release(self._log.syncable_leo)

    def committed(self) -> None:
        """More of the log is committed, and this replica leads."""
        self._commits.release(self._lac + 1)

    def moved(self) -> None:
        """The replica's state may have changed: what was held may be begun, or is in vain."""
        if self._held:
            self._begin_held()

    def fail(self, error: RunnelError) -> None:
        """End all requests that wait."""
        self._held.fail(error)
        for waiters in (self._commits, self._writes):
            waiters.fail(error)

    # How

    def _require_appendable(self, acks: Acks) -> Leading:
        """The leadership, if a batch with these acks may be appended now. Raises RunnelError."""
        leading = self._preconditions.require_proven()
        if acks is Acks.COMMITTED:
            self._preconditions.require_min_in_sync()
        self._preconditions.require_seal()
        return leading

    def _append(self, batch: memoryview, header: BatchHeader, term: int) -> int:
        runner = self._runner
        runner.tell_time()
        began_s = perf_counter()
        try:
            base_offset = self._log.append(batch, header, term, self._context.clock_us())
        except NoRoomError as error:
            # It serves on: nothing was appended, and the log is as it was.
            raise self._context.space.refuse(error) from error
        except OSError as error:
            runner.write_failed(error)
            raise self._preconditions.failure or error from error
        counters = self._context.counters
        counters.append.observe(perf_counter() - began_s)
        counters.appended_records += header.record_count
        counters.appended_bytes += header.length
        self._load.took(header.record_count, header.length)
        self._written()
        runner.appended()
        return base_offset

    def _when_written(
        self, until: int, request: ProduceRequest, base_offset: int, answer: Answer
    ) -> Waiter | None:
        """Answer with a base offset once everything below ``until`` is written."""
        if self._log.syncable_leo >= until:
            answer(ProduceResponse(base_offset, self._lac))
            return None
        on_done = partial(self._answer, base_offset, answer)
        loop = asyncio.get_running_loop()
        return self._writes.add(loop, until, min(request.timeout_ms, MAX_WAIT_MS), on_done)

    def _when_committed(
        self, until: int, request: ProduceRequest, result: int | RunnelError, answer: Answer
    ) -> Waiter | None:
        """Answer with a base offset or an error once everything below ``until`` is committed."""
        on_done = partial(self._answer, result, answer)
        if self._lac + 1 >= until and self._preconditions.is_serving:
            if request.acks is not Acks.NONE:
                on_done(None)
            return None
        if request.acks is Acks.NONE:
            return None
        loop = asyncio.get_running_loop()
        return self._commits.add(loop, until, min(request.timeout_ms, MAX_WAIT_MS), on_done)

    def _refuse_sealed(self, seal: int, request: ProduceRequest, answer: Answer) -> Waiter | None:
        """Refuse a batch that comes after the seal, once that is committed: it may still be lost.

        The producer waits here, and not until its next attempt: whoever scales a stream under it
        should not see it stand still.
        """

        def answered(result: ProduceResponse | RunnelError) -> None:
            late = isinstance(result, NotEnoughReplicasError)
            answer(self._preconditions.being_sealed() if late else result)

        refusal = self._preconditions.sealed(seal)
        if request.acks is Acks.NONE:
            raise refusal
        return self._when_committed(seal + 1, request, refusal, answered)

    def _answer(self, result: int | RunnelError, answer: Answer, error: RunnelError | None) -> None:
        if isinstance(error, DeadlineExceededError) and isinstance(result, RunnelError):
            # The batch was certainly not appended.
            answer(self._preconditions.not_appended())
        elif error is not None:
            answer(error)
        elif isinstance(result, RunnelError):
            answer(result)
        else:
            answer(ProduceResponse(result, self._lac))

    def _begin_held(self) -> None:
        """Carry out the requests that waited until this replica may append, once it may."""
        if self._preconditions.answers_producers:
            self._held.release()
        elif not self._preconditions.is_taking_over:
            self._held.fail(self._preconditions.failure or self._preconditions.not_leading())
