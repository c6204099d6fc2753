"""When SPUs are told to seal, what the status says of it, and what may not be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from sc.api.admission import admit_change
from sc.controllers.actions import (
    Key,
    RestoreTopic,
    SendAssignment,
    WritePartitionSpec,
    WriteStatus,
)
from sc.controllers.partition import reconcile
from sc.controllers.topic import reconcile as reconcile_topic
from sc.store.local_store import LocalStore
from sc.store.view import SessionState
from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.errors import InvalidRequestError
from schemas.ids import Term
from schemas.objects.partition import DesiredState, Partition, PartitionResolution
from schemas.objects.topic import Topic, TopicResolution, TopicSpec, TopicStatus
from tests.unit.sc.builders import (
    TERM_1,
    live,
    partition_of,
    report_of,
    session_of,
    spu_of,
    topic_of,
    view_of,
)

KEY = Key("Partition", "t-0")
NOW = 1_000
ONLINE, SEALED = PartitionResolution.ONLINE, PartitionResolution.SEALED


def to_seal(sealed_offset: int | None = None, **status: Any) -> Partition:
    """Led by SPU 1 of two replicas, both live."""
    found = partition_of(
        "t",
        0,
        (1, 2),
        resolution=status.pop("resolution", ONLINE),
        leader=1,
        term=TERM_1,
        lrs=(live(1), live(2)),
        **status,
    )
    spec = found.spec.model_copy(update={"desired": DesiredState.SEALED})
    told = found.status.model_copy(update={"sealed_offset": sealed_offset})
    return found.model_copy(update={"spec": spec}).with_status(told)


def leads(partition: Partition, sealed: int | None = None, **more: Any) -> ReplicaReport:
    report = report_of(partition, role=ReplicaRole.LEADER, term=Term(TERM_1), **more)
    return report.model_copy(update={"sealed": sealed})


def sessions(
    partition: Partition, report: ReplicaReport, *, knowing: tuple[int, ...] = (1, 2)
) -> list[SessionState]:
    follows = report_of(partition, 2, role=ReplicaRole.FOLLOWER, term=Term(TERM_1))
    found = [session_of(1, report), session_of(2, follows)]
    for session in found:
        session.seals = session.spu_id in knowing
    return found


def written(partition: Partition, *found: SessionState) -> dict[str, object]:
    """What of the status is written anew."""
    view = view_of(partition, spu_of(1), spu_of(2), sessions=found)
    writes = [one for one in reconcile(view, KEY, NOW) if isinstance(one, WriteStatus)]
    changed: dict[str, object] = {}
    for write in writes:
        after, before = write.status.model_dump(), partition.status.model_dump()
        changed |= {name: value for name, value in after.items() if value != before[name]}
    return changed


def test_given_a_leader_that_has_sealed_then_the_status_says_where_it_ends() -> None:
    partition = to_seal()
    assert written(partition, *sessions(partition, leads(partition))) == {}
    told = written(partition, *sessions(partition, leads(partition, sealed=7)))
    assert told == {"resolution": SEALED, "sealedOffset": 7}
    done = to_seal(7, resolution=SEALED)
    assert written(done, *sessions(done, leads(done, sealed=7))) == {}


def test_given_a_new_leader_that_does_not_know_yet_then_it_stays_sealed() -> None:
    done = to_seal(7, resolution=SEALED)
    assert written(done, *sessions(done, leads(done))) == {}


def test_given_a_leader_that_lost_the_seal_and_sealed_again_then_its_word_counts() -> None:
    done = to_seal(7, resolution=SEALED)
    assert written(done, *sessions(done, leads(done, sealed=5))) == {"sealedOffset": 5}


def test_given_a_partition_nobody_leads_then_offline_and_the_end_is_kept() -> None:
    done = to_seal(7, resolution=SEALED)
    found = written(done)
    assert found["resolution"] == PartitionResolution.OFFLINE
    assert "sealedOffset" not in found


def told(partition: Partition, *found: SessionState) -> list[bool | None]:
    """What SPUs are told that do not know the newest revision."""
    newer = partition.with_metadata(resource_version=str(partition.revision + 1))
    view = view_of(newer, spu_of(1), spu_of(2), sessions=found)
    return [
        one.assignment.sealed
        for one in reconcile(view, KEY, NOW)
        if isinstance(one, SendAssignment)
    ]


def test_given_spus_that_know_how_then_both_are_told() -> None:
    partition = to_seal()
    assert told(partition, *sessions(partition, leads(partition))) == [True, True]


def test_given_a_partition_that_stays_open_then_nobody_is_told() -> None:
    partition = to_seal()
    spec = partition.spec.model_copy(update={"desired": DesiredState.OPEN})
    open_ = partition.model_copy(update={"spec": spec})
    assert told(open_, *sessions(open_, leads(open_))) == [None, None]


@pytest.mark.parametrize(
    ("knowing", "says"),
    [
        pytest.param((1,), "SPU 2 is", id="given-one"),
        pytest.param((), "SPUs 1, 2 are", id="given-both"),
    ],
)
def test_given_an_spu_of_an_earlier_version_then_nobody_is_told_and_the_status_says_why(
    knowing: tuple[int, ...], says: str
) -> None:
    partition = to_seal()
    found = sessions(partition, leads(partition), knowing=knowing)
    reason = f"it is sealed once {says} upgraded to a version that knows how"
    assert written(partition, *found) == {"reason": reason}
    assert told(partition, *found) == [None, None]
    # Once they are upgraded, the status changes, so that its revision is news to every SPU.
    waiting = to_seal(reason=reason)
    assert written(waiting, *sessions(waiting, leads(waiting))) == {"reason": None}
    # What is sealed already stays so, whoever comes.
    done = to_seal(7, resolution=SEALED)
    assert told(done, *sessions(done, leads(done, sealed=7), knowing=knowing)) == [True, True]


def topic(*, sealed: bool | None, partitions: int = 1) -> Topic:
    spec = TopicSpec(partitions=partitions, replication_factor=2, sealed=sealed)
    status = TopicStatus(resolution=TopicResolution.PROVISIONED)
    return topic_of("t").model_copy(update={"spec": spec}).with_status(status)


@pytest.mark.parametrize("sealed", [True, False])
def test_the_partitions_of_a_topic_follow_it(sealed: bool) -> None:
    wanted = topic(sealed=sealed)
    held = partition_of(wanted, 0, (1, 2))
    actions = reconcile_topic(view_of(wanted, held, spu_of(1), spu_of(2)), Key("Topic", "t"), NOW)
    specs = [one.spec.desired for one in actions if isinstance(one, WritePartitionSpec)]
    assert specs == ([DesiredState.SEALED] if sealed else [])


def test_given_a_topic_that_was_removed_by_hand_then_it_is_restored_as_it_was() -> None:
    for sealed in (True, None):
        wanted = topic(sealed=sealed)
        held = partition_of(wanted, 0, (1, 2))
        spec = held.spec.model_copy(
            update={"desired": DesiredState.SEALED if sealed else DesiredState.OPEN}
        )
        (restored,) = reconcile_topic(
            view_of(held.model_copy(update={"spec": spec}), spu_of(1)), Key("Topic", "t"), NOW
        )
        assert isinstance(restored, RestoreTopic)
        assert restored.topic.spec.sealed is sealed


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(topic(sealed=False), topic(sealed=True), None, id="sealing"),
        pytest.param(topic(sealed=True), topic(sealed=True), None, id="no-change"),
        pytest.param(
            topic(sealed=True),
            topic(sealed=False),
            "spec.sealed: topic t is sealed, which is for good",
            id="given-one-that-is-to-be-opened",
        ),
        pytest.param(
            topic(sealed=True),
            topic(sealed=True, partitions=2),
            "spec.partitions: topic t is sealed, so that another partition would stay empty",
            id="given-one-that-is-to-grow",
        ),
    ],
)
def test_admission(old: Topic, new: Topic, says: str | None) -> None:
    store = LocalStore()
    store.put(spu_of(1))
    store.put(spu_of(2))
    if says is None:
        admit_change(old, new, store)
        return
    with pytest.raises(InvalidRequestError, match=says):
        admit_change(old, new, store)


def test_given_sealed_logs_of_a_topic_that_is_not_to_be_then_it_says_so_and_does_not_grow() -> None:
    """So it is after the KV was restored from a backup from before the seal."""
    restored = topic(sealed=None)
    held = partition_of(restored, 0, (1, 2))
    held = held.with_status(held.status.model_copy(update={"sealed_offset": 7}))
    actions = reconcile_topic(view_of(restored, held, spu_of(1), spu_of(2)), Key("Topic", "t"), NOW)
    (write,) = [one for one in actions if isinstance(one, WriteStatus)]
    assert write.status.reason is not None
    assert write.status.reason.endswith("set spec.sealed to true, or write to another topic")
    store = LocalStore()
    for one in (spu_of(1), spu_of(2), held):
        store.put(one)
    with pytest.raises(InvalidRequestError, match="so that another partition would stay empty"):
        admit_change(restored, topic(sealed=None, partitions=2), store)
    admit_change(restored, topic(sealed=True), store)
