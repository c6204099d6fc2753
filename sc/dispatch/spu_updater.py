"""The SPU updater: one outbox per SPU, which batches, coalesces and keeps order.

An outbox is bounded: one assignment, one order to lead and one tombstone for each partition, and
one address for each SPU, the newest of each. What is in flight is not sent again, except for
addresses, which the SPU has requested again. Order within a session: the complete list, then
addresses of peers, then assignments, then orders to lead, then deletions. An order to lead waits
for the assignment of its own partition, which goes before those of others, and for two messages
with assignments: where thousands have lost their leader, the first one leads before the last one is
elected. Deletions that an SPU refuses are held back for a while, ever longer, while all else goes
on. When a session ends its outbox is dropped: the next session begins with the complete state, and
an SPU asks for addresses again. Success wakes no controller: the SPU's report does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sc.controllers.actions import SendAssignment, SendComplete, SendDelete, SendLead
from schemas.backoff import Backoff
from schemas.causality import caused_by, current_cause
from schemas.control.messages import (
    Assignment,
    AssignPartitions,
    DeleteReplicas,
    Lead,
    LeadPartitions,
    Message,
    Peer,
    Peers,
    Stamp,
    Tombstone,
)
from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError, StorageFailedError, UnreachableError

RETRY_S = 1.0
#: The longest time for which deletions are held back that an SPU refused again and again.
HOLD_BACK_S: Final = 30.0
#: Partitions in one message, except for the complete list: both ends process such a message in a
#: few turns of their event loops, and long before the timeout of the request.
MESSAGE_PARTS: Final = 500
#: Messages with assignments that go before orders to lead which wait.
IN_A_ROW: Final = 2

log = get_logger(__name__)

PartT = TypeVar("PartT")

Send = Callable[[int, Message], Awaitable[None]]


@dataclass(slots=True)
class Outbox:
    """What the SC still has to send to one SPU. Pure: it decides what the next message is."""

    stamp: Stamp
    cause: str = "-"
    complete: SendComplete | None = None
    assignments: dict[str, Assignment] = field(default_factory=dict)
    leads: dict[str, Lead] = field(default_factory=dict)
    deletes: dict[str, Tombstone] = field(default_factory=dict)
    #: Why the disk of the SPU could not delete replicas, by uid; empty if it is not known that the
    #: disk is the reason. Nothing more is asked for of them for now.
    held_back: dict[str, str] = field(default_factory=dict)
    #: None if the SPU has not asked; an empty answer is an answer, too.
    peers: dict[int, Peer] | None = None
    sending: Message | None = None
    #: Messages with assignments that went before orders to lead which wait.
    _assigned: int = 0
    #: What of each partition is in ``sending``, by uid.
    _in_flight: dict[str, Assignment | Lead | Tombstone] = field(default_factory=dict)

    def add(self, action: SendComplete | SendAssignment | SendLead | SendDelete) -> None:
        """Queue an action unless the same one is in flight."""
        match action:
            case SendComplete():
                if not (isinstance(self.sending, AssignPartitions) and self.sending.complete):
                    self.complete = action
                    self.assignments.clear()
            case SendAssignment(_, assignment):
                # The SPU gets the replica back, which it has deleted: a repeated order to do that
                # must not reach the new one.
                self.deletes.pop(assignment.uid, None)
                if not self._assigning(assignment):
                    self.assignments[assignment.uid] = assignment
            case SendLead(_, lead):
                if self._in_flight.get(lead.uid) != lead:
                    self.leads[lead.uid] = lead
            case SendDelete(_, tombstones):
                self.deletes.update(
                    (t.uid, t)
                    for t in tombstones
                    if t.uid not in self.held_back and self._in_flight.get(t.uid) != t
                )

    def add_peers(self, peers: Sequence[Peer]) -> None:
        """Queue the addresses of the SPUs that were asked for, as far as they are known."""
        self.peers = (self.peers or {}) | {peer.spu_id: peer for peer in peers}

    def next(self) -> Message | None:
        """Take the next message; it is in flight until `sent`."""
        if self.complete is not None:
            assignments, self.complete = self.complete.assignments, None
            self._send(
                AssignPartitions(complete=True, assignments=assignments, stamp=self.stamp),
                assignments,
            )
        elif self.peers is not None:
            found, self.peers = tuple(self.peers.values()), None
            self._send(Peers(peers=found), ())
        elif self.assignments and self._assigned < IN_A_ROW:
            self._assign()
        elif leads := _take(self.leads, behind=self.assignments):
            self._assigned = 0
            self._send(LeadPartitions(leads=leads, stamp=self.stamp), leads)
        elif self.assignments:
            self._assign()
        elif self.deletes:
            graves = _take(self.deletes)
            self._send(DeleteReplicas(tombstones=graves, stamp=self.stamp), graves)
        return self.sending

    def _assign(self) -> None:
        batch = _take(self.assignments, first=self.leads)
        self._assigned = self._assigned + 1 if self.leads else 0
        self._send(AssignPartitions(assignments=batch, stamp=self.stamp), batch)

    def sent(self) -> None:
        self.sending = None
        self._in_flight = {}

    def _send(self, message: Message, parts: Iterable[Assignment | Lead | Tombstone]) -> None:
        self.sending = message
        self._in_flight = {part.uid: part for part in parts}

    def _assigning(self, assignment: Assignment) -> bool:
        sending = self._in_flight.get(assignment.uid)
        return isinstance(sending, Assignment) and sending.revision >= assignment.revision


def _take(
    waiting: dict[str, PartT], behind: Container[str] = (), first: Iterable[str] = ()
) -> tuple[PartT, ...]:
    """As much as one message holds of what waits, without what goes ``behind`` another message: if
    it does not hold all, what is to go ``first``, then the oldest."""
    ordered: Iterable[str] = waiting
    if len(waiting) > MESSAGE_PARTS:
        ordered = dict.fromkeys([*(uid for uid in first if uid in waiting), *waiting])
    free = (uid for uid in ordered if uid not in behind)
    keys = list(itertools.islice(free, MESSAGE_PARTS))
    return tuple(waiting.pop(key) for key in keys)


@dataclass(slots=True)
class _Sender:
    outbox: Outbox
    generation: int
    wakeup: asyncio.Event
    task: asyncio.Task[None]


class SpuUpdater:
    """Sends what controllers ask for to the SPUs that have a session."""

    def __init__(
        self,
        send: Send,
        stamp: Stamp,
        on_complete: Callable[[int, int], None],
        on_refused: Callable[[int], None],
        on_undeleted: Callable[[int, int, Mapping[str, str]], None],
    ) -> None:
        self._send = send
        #: The stamp in messages of sessions that open from now on.
        self.stamp = stamp
        self._on_complete = on_complete
        self._on_refused = on_refused
        self._on_undeleted = on_undeleted
        self._senders: dict[int, _Sender] = {}

    def opened(self, spu_id: int, generation: int) -> None:
        """A session began: its outbox is empty."""
        self._drop(spu_id)
        outbox, wakeup = Outbox(self.stamp), asyncio.Event()
        task = asyncio.create_task(
            self._run(spu_id, generation, outbox, wakeup), name=f"outbox of SPU {spu_id}"
        )
        self._senders[spu_id] = _Sender(outbox, generation, wakeup, task)

    def closed(self, spu_id: int, generation: int) -> None:
        """A session ended; the end of an older one changes nothing."""
        sender = self._senders.get(spu_id)
        if sender is not None and sender.generation == generation:
            self._drop(spu_id)

    def carry_out(self, action: SendComplete | SendAssignment | SendLead | SendDelete) -> None:
        """Queue it; without a session of the SPU, do nothing."""
        sender = self._senders.get(action.spu_id)
        if sender is None:
            return
        if isinstance(action, SendComplete) and action.generation != sender.generation:
            return
        sender.outbox.cause = current_cause()
        sender.outbox.add(action)
        sender.wakeup.set()

    def tell_peers(self, spu_id: int, generation: int, peers: Sequence[Peer]) -> None:
        """Queue the answer to an SPU that asked in its session ``generation``."""
        sender = self._senders.get(spu_id)
        if sender is None or sender.generation != generation:
            return
        sender.outbox.cause = current_cause()
        sender.outbox.add_peers(peers)
        sender.wakeup.set()

    async def close(self) -> None:
        """Stop sending."""
        tasks = [sender.task for sender in self._senders.values()]
        for spu_id in tuple(self._senders):
            self._drop(spu_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, spu_id: int) -> None:
        sender = self._senders.pop(spu_id, None)
        if sender is not None:
            sender.task.cancel()

    async def _run(
        self, spu_id: int, generation: int, outbox: Outbox, wakeup: asyncio.Event
    ) -> None:
        pause = Backoff(RETRY_S * 1_000, HOLD_BACK_S * 1_000, random.random)
        while True:
            await wakeup.wait()
            wakeup.clear()
            while (message := outbox.next()) is not None:
                # A batch has many causes; it carries the newest.
                with caused_by(outbox.cause):
                    try:
                        await self._send(spu_id, message)
                    except Exception as error:
                        # The end of the session cancels this task. While it lives, an SPU that
                        # says UNREACHABLE (of a peer) has refused like any other, and an error
                        # that nobody foresaw is no reason to stop sending for good.
                        _log_refusal(spu_id, message, error)
                        if isinstance(message, DeleteReplicas):
                            # Nobody is to wait for a disk that cannot delete.
                            why = str(error) if isinstance(error, StorageFailedError) else ""
                            self._hold_back(spu_id, outbox, message, why, pause)
                            outbox.sent()
                        else:
                            await asyncio.sleep(RETRY_S)
                            outbox.sent()
                            self._on_refused(spu_id)
                        continue
                outbox.sent()
                if isinstance(message, DeleteReplicas) and not outbox.held_back:
                    pause.reset()
                elif isinstance(message, AssignPartitions) and message.complete:
                    self._on_complete(spu_id, generation)

    def _hold_back(
        self, spu_id: int, outbox: Outbox, refused: DeleteReplicas, why: str, pause: Backoff
    ) -> None:
        """Send nothing more of these replicas until a pause is over."""
        if not outbox.held_back:
            delay_s = pause.next_ms() / 1_000
            asyncio.get_running_loop().call_later(delay_s, self._let_go, spu_id, outbox)
        outbox.held_back.update((tombstone.uid, why) for tombstone in refused.tombstones)

    def _let_go(self, spu_id: int, outbox: Outbox) -> None:
        """The pause is over: controllers decide what is next."""
        undeleted, outbox.held_back = outbox.held_back, {}
        sender = self._senders.get(spu_id)
        if sender is not None and sender.outbox is outbox:
            reasons = {uid: why for uid, why in undeleted.items() if why}
            self._on_undeleted(spu_id, sender.generation, reasons)


def _log_refusal(spu_id: int, message: Message, error: Exception) -> None:
    match error:
        case UnreachableError():
            pass
        case RunnelError():
            log.error("SPU refused", spu=spu_id, message=message.type, why=str(error))
        case _:
            log.error("sending failed", spu=spu_id, message=message.type, exc_info=error)
