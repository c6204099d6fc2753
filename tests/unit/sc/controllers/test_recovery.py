"""A cluster that recovers from a restored KV: who leads, who is waited for, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers import reconcile
from sc.controllers.actions import (
    Action,
    CreatePartitions,
    EndSpu,
    Key,
    RemoveObject,
    RemovePartition,
    RemoveSpu,
    RemoveTombstone,
    SendAssignment,
    SendComplete,
    SendDelete,
    SendLead,
    WakeAt,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.partition import assignment_for, assignment_of
from sc.controllers.recovery import RESTORED
from sc.store.view import Provisioned, View
from schemas.ids import StorageId, Term, make_term
from schemas.objects.partition import Partition, PartitionResolution, PartitionStatus
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import (
    group_of,
    live,
    member_of,
    partition_of,
    report_of,
    session_of,
    spu_of,
    tombstone_of,
    topic_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
INCARNATION = 2
#: As the backup has it: SPU 1 leads, and SPUs 1 and 2 are live.
OLD = make_term(1, 7)
LED = partition_of(
    "t",
    0,
    (1, 2, 3),
    resolution=PartitionResolution.ONLINE,
    leader=1,
    term=OLD,
    lrs=(live(1), live(2)),
    minimum=2,
)
UNLED = partition_of("t", 0, (1, 2, 3))
NEXT = make_term(INCARNATION, 1)


def answered(partition: Partition, spu_id: int, **more: Any) -> Any:
    """The session of an SPU that has answered, unless ``incarnation`` is an earlier one."""
    return session_of(spu_id, report_of(partition, spu_id, **{"incarnation": 2, **more}))


def recovering(
    partition: Partition, *sessions: Any, more: tuple[Any, ...] = (), **others: Any
) -> View:
    spus = [spu_of(i) for i in (1, 2, 3)]
    return view_of(partition, *spus, *more, sessions=sessions, recovering=INCARNATION, **others)


def status_of(view: View) -> PartitionStatus:
    """What the partition becomes."""
    writes = [a for a in reconcile(view, KEY, NOW) if isinstance(a, WriteStatus)]
    if not writes:
        found = view.store.get(Partition, "t-0")
        assert found is not None
        return found.status
    (write,) = writes
    assert isinstance(write.status, PartitionStatus)
    return write.status


ALL = {1: {"leo": 5, "last_term": 1}, 2: {"leo": 5, "last_term": 1}, 3: {"leo": 5, "last_term": 1}}


@pytest.mark.parametrize("partition", [LED, UNLED], ids=["led", "never-led"])
@pytest.mark.parametrize(
    ("reports", "leader"),
    [
        pytest.param(ALL, 1, id="given-equal-logs-then-the-preferred-leads"),
        pytest.param(
            {**ALL, 3: {"leo": 6, "last_term": 1}}, 3, id="given-a-longer-log-then-it-leads"
        ),
        pytest.param(
            {**ALL, 3: {"leo": 1, "last_term": 2}},
            3,
            id="given-a-later-last-term-then-it-leads-however-short",
        ),
        pytest.param(
            {**ALL, 2: {"leo": 9, "last_term": 1, "fit": False, "unclean_boot": True}},
            2,
            id="given-unclean-boot-alone-then-it-leads-if-it-has-most",
        ),
        pytest.param(
            {**ALL, 1: {"leo": 5, "last_term": 1, "fit": False, "unclean_boot": True}},
            2,
            id="given-unclean-boot-and-no-more-than-others-then-a-fit-one",
        ),
    ],
)
def test_given_all_have_answered_then_the_one_that_holds_most_leads_alone(
    partition: Partition, reports: dict[int, dict[str, Any]], leader: int
) -> None:
    view = recovering(partition, *(answered(partition, i, **r) for i, r in reports.items()))
    status = status_of(view)
    assert (status.leader, status.term, status.unclean_term) == (leader, NEXT, NEXT)
    assert status.lrs == (live(leader),)
    assert status.resolution is PartitionResolution.OFFLINE


@pytest.mark.parametrize(
    ("forgot", "unclean"), [(True, True), (False, False)], ids=["its-memory", "nothing"]
)
def test_given_a_lost_object_and_a_replica_that_forgot_then_the_election_is_unclean(
    forgot: bool, unclean: bool
) -> None:
    """It may have been the only live one, and have held what is nowhere now."""
    one = {"fit": False, "unclean_boot": True} if forgot else {}
    sessions = [
        answered(UNLED, 1, term=OLD, leo=5, incarnation=0, **one),
        *(answered(UNLED, i, term=OLD, leo=6, incarnation=0) for i in (2, 3)),
    ]
    status = status_of(view_of(UNLED, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions))
    assert status.leader == 2
    assert (status.unclean_term == status.term) is unclean


@pytest.mark.parametrize("forgot", [False, True], ids=["clean", "unclean"])
def test_given_a_lost_object_then_replicas_say_which_election_was_unclean(forgot: bool) -> None:
    """A replica that was away then would take the log of the others for that of an old disk."""
    one = {"fit": False, "unclean_boot": True} if forgot else {}
    told = make_term(0, 2)
    sessions = [
        answered(UNLED, 1, term=OLD, incarnation=0, **one),
        answered(UNLED, 2, term=OLD, incarnation=0, unclean_term=told),
        answered(UNLED, 3, term=OLD, incarnation=0, unclean_term=make_term(0, 1)),
    ]
    status = status_of(view_of(UNLED, *(spu_of(i) for i in (1, 2, 3)), sessions=sessions))
    assert status.term > told
    assert status.unclean_term == (status.term if forgot else told)


BRING = "bring them back"
ADVICE = ", or elect one that is online: runnel partition elect t-0 --unclean"


@pytest.mark.parametrize("partition", [LED, UNLED], ids=["led", "never-led"])
@pytest.mark.parametrize(
    ("last", "why"),
    [
        pytest.param(
            None, f"SPU 3 is offline; {BRING}{ADVICE}", id="given-one-away-then-waited-for"
        ),
        pytest.param(
            {"incarnation": 1, "revision": 9_000},
            "the SC is asking SPU 1, SPU 2, SPU 3",
            id="given-one-that-may-still-lead-then-waited-for",
        ),
        pytest.param(
            {"fit": False, "reason": "damaged"},
            f"SPU 3 cannot lead: damaged; {BRING}{ADVICE}",
            id="given-one-unfit-then-waited-for",
        ),
    ],
)
def test_given_not_all_have_answered_then_nobody_leads_and_the_reason_says_who_and_how(
    partition: Partition, last: dict[str, Any] | None, why: str
) -> None:
    sessions = [answered(partition, 1, leo=9), answered(partition, 2)]
    if last is not None:
        sessions.append(answered(partition, 3, **last))
    status = status_of(recovering(partition, *sessions))
    before = partition.status
    assert status == before.model_copy(
        update={
            "resolution": PartitionResolution.OFFLINE,
            "reason": f"the KV was restored from a backup, all replicas are needed: {why}",
        }
    )


@pytest.mark.parametrize("storage", [None, "new"], ids=["its-storage-is-there", "it-is-not"])
@pytest.mark.parametrize("partition", [LED, UNLED], ids=["led", "never-led"])
def test_given_an_spu_that_may_be_about_to_connect_then_nobody_is_told_to_do_without_it(
    partition: Partition, storage: str | None
) -> None:
    """It may have all that was acknowledged, and be there a moment later."""
    for there in ((1, 2), (1, 2, 3)):
        sessions = [answered(partition, i, storage=storage, fit=i != 2) for i in there]
        view = recovering(partition, *sessions, more=(spu_of(4),), grace_until_ms=NOW + 1)
        actions = reconcile(view, KEY, NOW)
        (status,) = [a.status for a in actions if isinstance(a, WriteStatus)]
        assert "SPU 2 cannot lead" in str(status.reason)
        assert ("SPU 3 is unknown" in str(status.reason)) is (3 not in there)
        assert "elect" not in str(status.reason)
        # Nothing comes any more, unless somebody brings it back.
        (status,) = [a.status for a in reconcile(view, KEY, NOW + 1) if isinstance(a, WriteStatus)]
        assert str(status.reason).endswith(f"{BRING}{ADVICE}")


def test_given_a_replica_that_the_backup_does_not_know_then_it_is_a_holder_and_is_asked() -> None:
    """It has moved since the backup: its data must not be given up for empty replicas."""
    view = recovering(LED, *(answered(LED, i) for i in (1, 2, 3, 4)), more=(spu_of(4),))
    *_, written = reconcile(view, KEY, NOW)
    spec = LED.spec.model_copy(update={"leaving": (4,)})
    assert written == WritePartitionSpec(LED, spec)
    known = LED.model_copy(update={"spec": spec})
    sessions = [answered(known, i) for i in (1, 2, 3)]
    ahead = answered(known, 4, leo=9, last_term=1)
    view = recovering(known, *sessions, ahead, more=(spu_of(4),))
    assert status_of(view).leader == 4


def test_given_a_replica_that_is_to_be_deleted_then_it_is_none_that_has_moved() -> None:
    grave = tombstone_of(LED, 4).model_copy(update={"storage_id": "storage-4"})
    sessions = [answered(LED, i) for i in (1, 2, 3, 4)]
    view = recovering(LED, *sessions, more=(spu_of(4),), tombstones=[grave])
    assert not any(isinstance(a, WritePartitionSpec) for a in reconcile(view, KEY, NOW))
    # It has got the partition back since the tombstone was written, and holds another storage.
    again = [*sessions[:3], answered(LED, 4, storage="later")]
    view = recovering(LED, *again, more=(spu_of(4),), tombstones=[grave])
    assert any(isinstance(a, WritePartitionSpec) for a in reconcile(view, KEY, NOW))


def test_given_nothing_of_the_backup_is_left_then_every_spu_is_needed() -> None:
    sessions = [answered(LED, i, storage=f"new-{i}") for i in (1, 2, 3)]
    found = status_of(recovering(LED, *sessions, more=(spu_of(4),)))
    assert found.leader == LED.status.leader
    assert "SPU 4 is away" in (found.reason or "")
    sessions[0] = answered(LED, 1)
    assert status_of(recovering(LED, *sessions, more=(spu_of(4),))).term == NEXT


def test_given_nothing_of_the_backup_is_left_and_all_is_empty_then_nobody_leads() -> None:
    """It has moved to SPUs that the backup does not know."""
    empty = [answered(LED, i, storage=f"new-{i}", leo=0, last_term=0) for i in (1, 2, 3)]
    found = status_of(recovering(LED, *empty))
    assert found.resolution is PartitionResolution.OFFLINE
    assert found.leader == LED.status.leader
    assert "its live replicas are gone, and those that are there are empty" in str(found.reason)
    # Whoever has answered: each write makes all answer again.
    late = [
        answered(LED, i, storage=f"new-{i}", leo=0, last_term=0, incarnation=1) for i in (1, 2, 3)
    ]
    assert status_of(recovering(LED, *late)).reason == found.reason
    # What has a record may be all that there ever was.
    some = [*empty[:2], answered(LED, 3, storage="new-3", leo=1, last_term=1)]
    assert status_of(recovering(LED, *some)).leader == 3
    # An empty log that was live is what there was.
    assert status_of(recovering(LED, answered(LED, 1), *empty[1:])).term == NEXT


LATER = "SPUs that may hold it since the backup have not connected yet"


@pytest.mark.parametrize("partition", [LED, UNLED], ids=["led", "never-led"])
@pytest.mark.parametrize("moment", [NOW, NOW + 1], ids=["in-the-grace", "after-it"])
def test_given_another_spu_that_may_be_about_to_connect_then_it_is_waited_for(
    partition: Partition, moment: int
) -> None:
    """The partition may have moved there since, and all of the backup be far behind."""
    sessions = [answered(partition, i) for i in (1, 2, 3)]
    view = recovering(partition, *sessions, more=(spu_of(4),), grace_until_ms=NOW + 1)
    actions = reconcile(view, KEY, moment)
    (status,) = [a.status for a in actions if isinstance(a, WriteStatus)]
    assert isinstance(status, PartitionStatus)
    if moment > NOW:
        assert status.term == NEXT
        return
    assert status.leader == partition.status.leader
    assert LATER in str(status.reason)
    assert WakeAt(KEY, NOW + 1) in actions
    # It holds nothing of it.
    view = recovering(partition, *sessions, session_of(4), more=(spu_of(4),), grace_until_ms=NOW)
    assert status_of(view).term == NEXT


def test_given_a_lost_object_alone_then_only_its_holders_are_waited_for() -> None:
    restored = UNLED.with_metadata(annotations={RESTORED: "asked"})
    sessions = [session_of(i, report_of(restored, i)) for i in (1, 2, 3)]
    spus = [spu_of(i) for i in (1, 2, 3, 4)]
    view = view_of(restored, *spus, sessions=sessions, grace_until_ms=NOW + 1)
    assert status_of(view).leader == 1


@pytest.mark.parametrize("storage", [None, "new"], ids=["its-storage-is-there", "it-is-not"])
def test_given_an_spu_that_is_away_then_the_reason_is_the_same_whoever_has_answered(
    storage: str | None,
) -> None:
    """Each write makes all answer again: a reason that changes with the answers never ends."""
    reasons = set()
    for many in range(3):
        sessions = [
            answered(LED, i, storage=storage, incarnation=INCARNATION if i <= many else 1)
            for i in (1, 2, 3)
        ]
        reasons.add(status_of(recovering(LED, *sessions, more=(spu_of(4),))).reason)
    assert len(reasons) == 1


def test_given_one_that_leads_on_in_an_earlier_term_then_assigned_without_a_leader() -> None:
    leads = session_of(1, report_of(LED, 1, revision=9_000, term=OLD + 3))
    actions = reconcile(recovering(LED, leads), KEY, NOW)
    (sent,) = [a for a in actions if isinstance(a, SendAssignment)]
    assert (sent.assignment.leader, sent.assignment.lrs) == (None, ())
    assert (sent.assignment.term, sent.assignment.revision) == (OLD, LED.revision)
    assert not [a for a in actions if isinstance(a, SendLead)]
    complete = recovering(LED, session_of(1, complete=False))
    (told,) = [
        a for a in reconcile(complete, Key("Spu", "spu-1"), NOW) if isinstance(a, SendComplete)
    ]
    assert told.assignments == (sent.assignment,)


def test_given_elected_in_this_incarnation_then_all_is_as_ever() -> None:
    done = LED.with_status(LED.status.model_copy(update={"term": NEXT, "lrs": (live(1),)}))
    view = recovering(done, answered(done, 1))
    assert assignment_for(view, done) == assignment_of(done)
    assert any(isinstance(a, SendLead) for a in reconcile(view, KEY, NOW))


def test_given_elections_after_a_recovery_then_of_its_incarnation_at_least() -> None:
    """Of a partition that an operator's election kept in an earlier one, say."""
    view = recovering(LED, answered(LED, 2))
    view.recovering = False
    assert status_of(view).term == NEXT
    unled = recovering(UNLED, answered(UNLED, 1))
    unled.recovering = False
    assert status_of(unled).term == NEXT


def test_given_topic_placed_then_its_partitions_are_of_the_incarnation() -> None:
    topic = topic_of("u", TopicResolution.PENDING, partitions=1)
    view = view_of(topic, spu_of(1), sessions=[session_of(1)], recovering=INCARNATION)
    (create,) = [
        a for a in reconcile(view, Key("Topic", "u"), NOW) if isinstance(a, CreatePartitions)
    ]
    (made,) = create.partitions
    assert made.status.term == make_term(INCARNATION, 0)
    assert made.status.leader is None


DELETED = partition_of("t", 0, (1,), deleting=True)
GONE_TOPIC = topic_of("t", TopicResolution.DELETING, deleting=True)
GROUP = group_of(replicas=1)
REMOVALS = (RemovePartition, RemoveObject, RemoveSpu, SendDelete, EndSpu)


@pytest.mark.parametrize(
    ("objects", "key", "more"),
    [
        pytest.param((DELETED,), KEY, {}, id="partition"),
        pytest.param((GONE_TOPIC,), Key("Topic", "t"), {}, id="topic"),
        pytest.param(
            (group_of(deleting=True),), Key("SpuGroup", "g"), {"provisioned": {}}, id="group"
        ),
        pytest.param(
            (GROUP, member_of(GROUP, 1), member_of(GROUP, 2)),
            Key("SpuGroup", "g"),
            {"provisioned": {}},
            id="spu-outside-its-group",
        ),
        pytest.param(
            (spu_of(1),),
            Key("Spu", "spu-1"),
            {"tombstones": [tombstone_of(DELETED, 1)], "sessions": [session_of(1)]},
            id="tombstone",
        ),
        pytest.param(
            (),
            Key("Spu", "g-9"),
            {"provisioned": {"g-9": Provisioned(member_of(GROUP, 9).spec)}, "registered": {}},
            id="process-without-an-object",
        ),
    ],
)
def test_given_recovery_then_nothing_is_deleted_until_it_is_over(
    objects: tuple[Any, ...], key: Key, more: dict[str, Any]
) -> None:
    def removals(actions: tuple[Action, ...]) -> list[Action]:
        return [action for action in actions if isinstance(action, REMOVALS)]

    view = view_of(*objects, recovering=INCARNATION, **more)
    assert removals(reconcile(view, key, NOW)) == []
    view.recovering = False
    assert removals(reconcile(view, key, NOW)) != []


def test_given_deletion_that_waits_then_said_once() -> None:
    view = view_of(DELETED, recovering=INCARNATION)
    (write,) = reconcile(view, KEY, NOW)
    assert isinstance(write, WriteStatus)
    assert write.status.reason == "it is deleted when the recovery of the cluster is over"
    again = view_of(DELETED.with_status(write.status), recovering=INCARNATION)
    assert reconcile(again, KEY, NOW) == ()


def test_given_deletion_that_was_confirmed_before_then_its_tombstone_goes() -> None:
    grave = tombstone_of(DELETED, 1)
    session = session_of(1, deleted=[grave])
    view = view_of(spu_of(1), tombstones=[grave], sessions=[session], recovering=INCARNATION)
    assert reconcile(view, Key("Spu", "spu-1"), NOW) == (RemoveTombstone(grave),)


def test_given_object_lost_alone_then_what_was_led_before_is_no_unclean_election() -> None:
    partition = partition_of("t", 0, (1, 2))
    reports = [session_of(i, report_of(partition, i, term=Term(OLD))) for i in (1, 2)]
    view = view_of(partition, spu_of(1), spu_of(2), sessions=reports)
    status = status_of(view)
    assert (status.leader, status.unclean_term) == (1, None)


@pytest.mark.parametrize("named", [None, StorageId("s1")])
def test_given_a_replica_that_may_be_later_than_a_restored_tombstone_then_it_stays(
    named: StorageId | None,
) -> None:
    """It was away through the recovery, and may have got the partition back after the backup."""
    partition = partition_of("t", 0, (2,))
    grave = tombstone_of(partition, 1).model_copy(update={"storage_id": named})

    def told(**report: Any) -> Action:
        session = session_of(1, report_of(partition, 1, **report))
        view = view_of(partition, spu_of(1), spu_of(2), sessions=[session], tombstones=[grave])
        view.incarnation = INCARNATION
        (found,) = (
            action
            for action in reconcile(view, Key("Spu", "spu-1"), NOW)
            if not isinstance(action, WriteStatus)
        )
        return found

    assert told(storage="s2", incarnation=INCARNATION - 1) == RemoveTombstone(grave)
    # A replica that knows of the recovery has been left by a move since then.
    assert told(storage="s2", incarnation=INCARNATION) == SendDelete(1, (grave,))
    if named is not None:
        assert told(storage=named, incarnation=INCARNATION - 1) == SendDelete(1, (grave,))
