"""The SPU updater: what waits in an outbox, in which order it goes, and what failures do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from sc.controllers.actions import SendAssignment, SendComplete, SendDelete, SendLead
from sc.controllers.partition import assignment_of
from sc.dispatch import spu_updater as spu_updater_module
from sc.dispatch.spu_updater import Outbox, SpuUpdater
from schemas.backoff import Backoff
from schemas.causality import caused_by, current_cause
from schemas.control.messages import (
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
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    NotFoundError,
    StorageFailedError,
    UnreachableError,
)
from schemas.ids import PartitionUid
from tests.polling import eventually
from tests.unit.sc.builders import TERM_1, TERM_2, live, partition_of, tombstone_of

STAMP = Stamp(revision=3, office="office")
P0, P1, P2, P3 = (partition_of("t", i) for i in range(4))
A0, A1, A2 = assignment_of(P0), assignment_of(P1), assignment_of(P2)
A0_NEWER = A0.model_copy(update={"revision": A0.revision + 1})
Send = SendComplete | SendAssignment | SendLead | SendDelete


def lead(index: int = 0, term: int = TERM_1) -> Lead:
    partition = (P0, P1, P2)[index]
    return Lead(uid=PartitionUid(partition.uid), term=term, lrs=(live(1),), revision=5)


def grave(index: int = 0) -> Tombstone:
    return tombstone_of((P0, P1, P2, P3)[index], 1)


def assign(*assignments: object, complete: bool = False) -> AssignPartitions:
    return AssignPartitions(complete=complete, assignments=assignments, stamp=STAMP)


def leads(*wanted: Lead) -> LeadPartitions:
    return LeadPartitions(leads=wanted, stamp=STAMP)


def deletes(*graves: Tombstone) -> DeleteReplicas:
    return DeleteReplicas(tombstones=graves, stamp=STAMP)


def drain(outbox: Outbox) -> list[Message]:
    found = []
    while (message := outbox.next()) is not None:
        found.append(message)
        outbox.sent()
    return found


@pytest.mark.parametrize(
    ("actions", "messages"),
    [
        pytest.param([], [], id="given-nothing-then-nothing"),
        pytest.param(
            [
                SendDelete(1, (grave(2),)),
                SendLead(1, lead()),
                SendComplete(1, 1, (A0,)),
                SendAssignment(1, A1),
            ],
            [assign(A0, complete=True), assign(A1), leads(lead()), deletes(grave(2))],
            id="given-all-kinds-then-complete-assign-lead-delete",
        ),
        pytest.param(
            [
                SendAssignment(1, A0),
                SendLead(1, lead()),
                SendLead(1, lead(1)),
                SendDelete(1, (grave(2),)),
            ],
            [assign(A0), leads(lead(), lead(1)), deletes(grave(2))],
            id="given-few-then-assignments-before-leads",
        ),
        pytest.param(
            [SendAssignment(1, A0), SendAssignment(1, A1), SendAssignment(1, A0_NEWER)],
            [assign(A0_NEWER, A1)],
            id="given-assignments-then-one-message-with-the-newest-of-each",
        ),
        pytest.param(
            [SendLead(1, lead()), SendLead(1, lead(1)), SendLead(1, lead(term=TERM_2))],
            [leads(lead(term=TERM_2), lead(1))],
            id="given-leads-then-one-message-with-the-newest-of-each",
        ),
        pytest.param(
            [SendDelete(1, (grave(),)), SendDelete(1, (grave(), grave(1)))],
            [deletes(grave(), grave(1))],
            id="given-deletions-then-one-message-each-once",
        ),
        pytest.param(
            [SendAssignment(1, A1), SendComplete(1, 1, (A0, A1))],
            [assign(A0, A1, complete=True)],
            id="given-complete-list-then-single-assignments-before-it-are-dropped",
        ),
        pytest.param(
            [SendComplete(1, 1, (A0,)), SendComplete(1, 1, (A1,))],
            [assign(A1, complete=True)],
            id="given-two-complete-lists-then-the-newest",
        ),
    ],
)
def test_outbox(actions: list[Send], messages: list[Message]) -> None:
    outbox = Outbox(STAMP)
    for action in actions:
        outbox.add(action)
    assert drain(outbox) == messages


def test_given_very_many_then_messages_are_bounded_and_the_oldest_orders_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spu_updater_module, "MESSAGE_PARTS", 1)
    outbox = Outbox(STAMP)
    for action in (
        SendDelete(1, (grave(2), grave(3))),
        SendLead(1, lead(1)),
        SendLead(1, lead()),
        SendAssignment(1, A0),
        SendAssignment(1, A1),
        SendAssignment(1, A0_NEWER),
    ):
        outbox.add(action)
    assert drain(outbox) == [
        assign(A1),
        assign(A0_NEWER),
        leads(lead(1)),
        leads(lead()),
        deletes(grave(2)),
        deletes(grave(3)),
    ]


def test_given_more_assignments_all_the_time_then_orders_to_lead_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spu_updater_module, "MESSAGE_PARTS", 1)
    outbox = Outbox(STAMP)
    sent: list[Message | None] = []
    for _ in range(6):
        # As when an order is refused again and again, while others are elected.
        outbox.add(SendAssignment(1, A0))
        outbox.add(SendLead(1, lead(1)))
        sent.append(outbox.next())
        outbox.sent()
    assert sent == [assign(A0), assign(A0), leads(lead(1))] * 2


def test_given_a_backlog_then_the_assignment_that_an_order_to_lead_waits_for_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spu_updater_module, "MESSAGE_PARTS", 1)
    outbox = Outbox(STAMP)
    for waiting in (A0, A1, A2):
        outbox.add(SendAssignment(1, waiting))
    outbox.add(SendLead(1, lead(2)))
    assert drain(outbox) == [assign(A2), assign(A0), leads(lead(2)), assign(A1)]


def test_given_a_replica_comes_back_then_no_order_to_delete_its_predecessor_follows() -> None:
    outbox = Outbox(STAMP)
    outbox.add(SendDelete(1, (grave(), grave(1))))
    outbox.add(SendAssignment(1, A0))
    assert drain(outbox) == [assign(A0), deletes(grave(1))]


def test_given_a_part_is_on_its_way_then_what_waits_behind_it_is_still_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spu_updater_module, "MESSAGE_PARTS", 1)
    outbox = Outbox(STAMP)
    outbox.add(SendAssignment(1, A0))
    outbox.add(SendAssignment(1, A1))
    assert outbox.next() == assign(A0)
    outbox.add(SendAssignment(1, A0))
    outbox.sent()
    assert drain(outbox) == [assign(A1)]


@pytest.mark.parametrize(
    ("first", "again", "messages"),
    [
        pytest.param(
            SendComplete(1, 1, (A0,)),
            SendComplete(1, 1, (A0,)),
            [],
            id="given-complete-on-its-way-then-not-sent-twice",
        ),
        pytest.param(
            SendComplete(1, 1, (A0,)),
            SendAssignment(1, A0),
            [],
            id="given-assignment-within-the-complete-list-then-not-sent-twice",
        ),
        pytest.param(
            SendAssignment(1, A0),
            SendAssignment(1, A0),
            [],
            id="given-assignment-on-its-way-then-not-sent-twice",
        ),
        pytest.param(
            SendAssignment(1, A0_NEWER),
            SendAssignment(1, A0),
            [],
            id="given-newer-assignment-on-its-way-then-older-one-not-sent",
        ),
        pytest.param(
            SendAssignment(1, A0),
            SendAssignment(1, A0_NEWER),
            [assign(A0_NEWER)],
            id="given-older-assignment-on-its-way-then-newer-one-sent",
        ),
        pytest.param(
            SendAssignment(1, A0),
            SendComplete(1, 1, (A0,)),
            [assign(A0, complete=True)],
            id="given-single-assignment-on-its-way-then-complete-list-still-sent",
        ),
        pytest.param(
            SendLead(1, lead()), SendLead(1, lead()), [], id="given-lead-on-its-way-then-not-twice"
        ),
        pytest.param(
            SendLead(1, lead()),
            SendLead(1, lead(term=TERM_2)),
            [leads(lead(term=TERM_2))],
            id="given-lead-on-its-way-then-later-term-sent",
        ),
        pytest.param(
            SendDelete(1, (grave(),)),
            SendDelete(1, (grave(), grave(1))),
            [deletes(grave(1))],
            id="given-deletion-on-its-way-then-only-the-other-sent",
        ),
    ],
)
def test_outbox_while_sending(first: Send, again: Send, messages: list[Message]) -> None:
    outbox = Outbox(STAMP)
    outbox.add(first)
    assert outbox.next() is not None
    outbox.add(again)
    outbox.sent()
    assert drain(outbox) == messages


def peer(spu_id: int, port: int = 9006) -> Peer:
    return Peer(spu_id=spu_id, host="localhost", port=port)


@pytest.mark.parametrize(
    ("answers", "messages"),
    [
        pytest.param(
            [(peer(2), peer(3)), (peer(3, 9),)],
            [Peers(peers=(peer(2), peer(3, 9)))],
            id="given-several-answers-then-one-message-with-the-newest-of-each",
        ),
        pytest.param([()], [Peers(peers=())], id="given-nobody-found-then-that-is-said"),
    ],
)
def test_outbox_of_peers(answers: list[tuple[Peer, ...]], messages: list[Message]) -> None:
    outbox = Outbox(STAMP)
    for answer in answers:
        outbox.add_peers(answer)
    assert drain(outbox) == messages


def test_given_all_kinds_then_peers_come_after_the_complete_list() -> None:
    outbox = Outbox(STAMP)
    outbox.add(SendComplete(1, 1, (A0,)))
    outbox.add(SendAssignment(1, A1))
    outbox.add_peers((peer(2),))
    assert drain(outbox) == [assign(A0, complete=True), Peers(peers=(peer(2),)), assign(A1)]


def test_given_peers_on_their_way_then_those_asked_for_again_are_sent_again() -> None:
    outbox = Outbox(STAMP)
    for _ in range(2):
        outbox.add_peers((peer(2),))
        assert outbox.next() == Peers(peers=(peer(2),))
    outbox.sent()
    assert drain(outbox) == []


def test_given_sent_then_the_same_can_be_sent_again() -> None:
    outbox = Outbox(STAMP)
    for _ in range(2):
        outbox.add(SendAssignment(1, A0))
        assert drain(outbox) == [assign(A0)]


class Script:
    """Answers the updater's messages as a test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.causes: list[str] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.completed: list[tuple[int, int]] = []
        self.refused: list[int] = []
        self.deletes_fail = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.undeleted: list[tuple[int, int, Mapping[str, str]]] = []
        self.updater = SpuUpdater(
            self.send,
            STAMP,
            lambda *a: self.completed.append(a),
            self.refused.append,
            lambda *a: self.undeleted.append(a),
        )

    async def send(self, spu_id: int, message: Message) -> None:
        self.sent.append((spu_id, message))
        self.causes.append(current_cause())
        await self.gate.wait()
        self.meanwhile()
        if self.failures:
            raise self.failures.pop(0)
        if self.deletes_fail and isinstance(message, DeleteReplicas):
            raise StorageFailedError("a bad disk")

    async def until_sent(self, count: int) -> list[Message]:
        await eventually(lambda: len(self.sent) >= count)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(self.sent) == count
        return [message for _, message in self.sent]


@pytest.fixture
async def script(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Script]:
    monkeypatch.setattr("sc.dispatch.spu_updater.RETRY_S", 0.001)
    made = Script()
    yield made
    await made.updater.close()


async def test_given_no_session_then_void(script: Script) -> None:
    script.updater.carry_out(SendAssignment(1, A0))
    script.updater.opened(1, 1)
    assert await script.until_sent(0) == []


async def test_given_session_then_sent_with_the_cause_of_the_action(script: Script) -> None:
    script.updater.opened(1, 1)
    with caused_by("api-3"):
        script.updater.carry_out(SendAssignment(1, A0))
    assert await script.until_sent(1) == [assign(A0)]
    assert script.causes == ["api-3"]


async def test_given_actions_while_sending_then_batched_into_the_next_message(
    script: Script,
) -> None:
    script.gate.clear()
    script.updater.opened(1, 1)
    script.updater.carry_out(SendComplete(1, 1, (A0,)))
    await script.until_sent(1)
    script.updater.carry_out(SendLead(1, lead()))
    script.updater.carry_out(SendLead(1, lead(1)))
    script.updater.carry_out(SendAssignment(1, A0))
    assert script.completed == []
    script.gate.set()
    assert await script.until_sent(2) == [assign(A0, complete=True), leads(lead(), lead(1))]
    assert script.completed == [(1, 1)]


async def test_given_complete_list_of_an_older_session_then_void(script: Script) -> None:
    script.updater.opened(1, 2)
    script.updater.carry_out(SendComplete(1, 1, ()))
    assert await script.until_sent(0) == []


async def test_given_peers_asked_for_in_an_older_session_then_void(script: Script) -> None:
    script.updater.tell_peers(1, 1, (peer(2),))
    script.updater.opened(1, 2)
    script.updater.tell_peers(1, 1, (peer(2),))
    assert await script.until_sent(0) == []
    script.updater.tell_peers(1, 2, (peer(3),))
    assert await script.until_sent(1) == [Peers(peers=(peer(3),))]


async def test_given_late_close_of_an_older_session_then_the_newer_goes_on(script: Script) -> None:
    script.updater.opened(1, 1)
    script.updater.opened(1, 2)
    script.updater.closed(1, 1)
    script.updater.carry_out(SendAssignment(1, A0))
    assert await script.until_sent(1) == [assign(A0)]


async def test_given_session_closed_then_its_outbox_is_dropped(script: Script) -> None:
    script.gate.clear()
    script.updater.opened(1, 1)
    script.updater.carry_out(SendComplete(1, 1, (A0,)))
    await script.until_sent(1)
    script.updater.carry_out(SendLead(1, lead()))
    script.updater.closed(1, 1)
    script.gate.set()
    script.updater.opened(1, 2)
    await script.until_sent(1)
    assert script.completed == []


async def test_given_slow_spu_then_others_are_not_kept_waiting(script: Script) -> None:
    script.gate.clear()
    for spu_id in (1, 2):
        script.updater.opened(spu_id, 1)
        script.updater.carry_out(SendAssignment(spu_id, A0))
    await script.until_sent(2)
    assert {spu_id for spu_id, _ in script.sent} == {1, 2}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConflictError("older term"), id="given-refusal-then-looked-at-again"),
        pytest.param(NotFoundError("no such replica"), id="given-terminal-then-looked-at-again"),
        pytest.param(DeadlineExceededError("late"), id="given-no-answer-then-looked-at-again"),
        pytest.param(UnreachableError("a peer"), id="given-unreachable-then-looked-at-again"),
        pytest.param(ValueError("unforeseen"), id="given-unforeseen-then-looked-at-again"),
    ],
)
async def test_failure(script: Script, error: Exception) -> None:
    """The session may live on, so its outbox does, and the controllers decide what is next."""
    script.failures = [error]
    script.updater.opened(1, 1)
    script.updater.carry_out(SendComplete(1, 1, (A0,)))
    await eventually(lambda: script.refused == [1])
    assert script.completed == []
    script.updater.carry_out(SendComplete(1, 1, (A0,)))
    assert await script.until_sent(2) == [assign(A0, complete=True)] * 2
    assert script.completed == [(1, 1)]


async def test_given_failure_then_what_queued_up_behind_it_is_still_sent(script: Script) -> None:
    script.failures = [ConflictError("no")]
    script.updater.opened(1, 1)
    script.updater.carry_out(SendAssignment(1, A0))
    script.updater.carry_out(SendLead(1, lead()))
    assert await script.until_sent(2) == [assign(A0), leads(lead())]


async def test_given_deletions_are_refused_then_all_else_is_sent_at_once(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spu_updater_module, "RETRY_S", 3_600.0)
    script.deletes_fail = True
    script.updater.opened(1, 1)
    script.updater.carry_out(SendDelete(1, (grave(),)))
    await script.until_sent(1)
    script.updater.carry_out(SendLead(1, lead()))
    assert await script.until_sent(2) == [deletes(grave()), leads(lead())]
    # Whatever has its controller look at the SPU again does not repeat what was refused.
    script.updater.carry_out(SendDelete(1, (grave(), grave(1))))
    assert (await script.until_sent(3))[-1] == deletes(grave(1))
    assert (script.refused, script.undeleted) == ([], [])


async def test_given_deletions_are_refused_again_then_the_pauses_grow_until_one_succeeds(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = list[int]()

    class NoPause(Backoff):
        def next_ms(self) -> float:
            attempts.append(self.attempts)
            return super().next_ms() * 0

    monkeypatch.setattr(spu_updater_module, "Backoff", NoPause)
    script.updater.opened(1, 7)
    for number, fails in enumerate((True, True, True, False, True), 1):
        script.deletes_fail = fails
        script.updater.carry_out(SendDelete(1, (grave(),)))
        await script.until_sent(number)
        await eventually(lambda: len(script.undeleted) == len(attempts))
    assert attempts == [0, 1, 2, 0]
    assert script.undeleted == [(1, 7, {P0.uid: "a bad disk"})] * 4
    assert script.refused == []


async def test_given_deletions_that_are_not_answered_then_the_disk_is_not_said_to_refuse(
    script: Script,
) -> None:
    script.updater.opened(1, 7)
    script.failures = [DeadlineExceededError("no answer within 30 s")]
    script.updater.carry_out(SendDelete(1, (grave(),)))
    await eventually(lambda: script.undeleted == [(1, 7, {})])


async def test_given_another_session_then_nobody_looks_again_for_the_earlier_one(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first pause ends first.
    monkeypatch.setattr("random.random", lambda: 0.0)
    script.deletes_fail = True
    script.meanwhile = lambda: script.updater.opened(1, 2)
    for spu_id in (1, 2):
        script.updater.opened(spu_id, 1)
        script.updater.carry_out(SendDelete(spu_id, (grave(),)))
        await script.until_sent(spu_id)
    refused = (2, 1, {P0.uid: "a bad disk"})
    await eventually(lambda: refused in script.undeleted)
    assert script.undeleted == [refused]


async def test_given_close_then_nothing_is_left_running(script: Script) -> None:
    script.gate.clear()
    before = len(asyncio.all_tasks())
    for spu_id in (1, 2, 3):
        script.updater.opened(spu_id, 1)
    script.updater.carry_out(SendAssignment(2, A0))
    await script.until_sent(1)
    await script.updater.close()
    assert len(asyncio.all_tasks()) == before
