"""How moves begin: the spec, what they need, how many at once, who asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import BeginMove, Key, WakeAt
from sc.controllers.membership.begin import begin, respecified
from sc.controllers.membership.budget import MOST, MOST_IN, MOST_OUT, Budget
from sc.controllers.membership.drain import Draining, drain
from sc.controllers.membership.resize import Resizing, of_topic, resize, settings_for_now
from sc.store.view import View
from schemas.control.session_end import SessionEnd
from schemas.control.statistics import ReplicaNumbers
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic
from tests.unit.sc.builders import (
    TERM_1,
    live,
    partition_of,
    session_of,
    spu_of,
    tombstone_of,
    topic_of,
    view_of,
)

NOW = 1_000


def led(
    index: int, replicas: tuple[int, ...], lrs: tuple[int, ...] | None = None, **more: Any
) -> Partition:
    members = replicas if lrs is None else lrs
    return partition_of(
        more.pop("topic", "t"),
        index,
        replicas,
        resolution=PartitionResolution.ONLINE,
        leader=members[0],
        term=TERM_1,
        lrs=tuple(map(live, members)),
        **more,
    )


def drained(spu_id: int) -> Spu:
    spu = spu_of(spu_id)
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain": True})})


def of_stream(partition: Partition) -> Partition:
    """The same as a segment of stream s/a."""
    owner = partition.spec.owner.model_copy(update={"kind": "Stream", "name": "s/a"})
    return partition.model_copy(update={"spec": partition.spec.model_copy(update={"owner": owner})})


def seen(*objects: Any, online: tuple[int, ...], **more: Any) -> View:
    return view_of(*objects, sessions=[session_of(i) for i in online], **more)


@pytest.mark.parametrize(
    ("partition", "replicas", "joining", "leaving"),
    [
        pytest.param(led(0, (1,)), (1, 2), (2,), None, id="given-more-then-they-join"),
        pytest.param(led(0, (1, 2)), (1,), None, (2,), id="given-fewer-then-they-leave"),
        pytest.param(led(0, (1, 2)), (3, 2), (3,), (1,), id="given-another-then-both"),
        pytest.param(led(0, (1, 2)), (2, 1), None, None, id="given-another-order-then-neither"),
        pytest.param(
            led(0, (1, 2), (1,)), (1, 2, 3), (3,), None, id="given-one-that-lags-then-not-new"
        ),
        pytest.param(
            led(0, (1, 3), (1, 2), joining=(3,), leaving=(2,)),
            (1, 2),
            None,
            (3,),
            id="given-back-in-the-middle-then-the-newcomer-leaves",
        ),
        pytest.param(
            led(0, (1, 3), (1, 2), joining=(3,), leaving=(2,)),
            (1, 3, 4),
            (3, 4),
            (2,),
            id="given-another-wish-in-the-middle-then-both-go-on",
        ),
        pytest.param(
            led(0, (1, 3), (1,), joining=(3,), leaving=(2,)),
            (1, 2),
            (2,),
            (3,),
            id="given-back-after-it-left-then-it-joins-again",
        ),
    ],
)
def test_respecified(
    partition: Partition,
    replicas: tuple[int, ...],
    joining: tuple[int, ...] | None,
    leaving: tuple[int, ...] | None,
) -> None:
    spec = respecified(partition, replicas)
    assert (spec.replicas, spec.joining, spec.leaving) == (replicas, joining, leaving)
    assert spec.preferred_leader == replicas[0]


@pytest.mark.parametrize(
    ("more", "online", "why"),
    [
        pytest.param({}, (1, 2), None, id="given-all-is-there-then-it-begins"),
        pytest.param({}, (1,), "is not connected", id="given-it-is-offline-then-not"),
        pytest.param(
            {"tombstones": [tombstone_of(partition_of("t", 0), 2)]},
            (1, 2),
            "is still deleting",
            id="given-it-has-yet-to-delete-its-former-one-then-not",
        ),
    ],
)
def test_begin(more: dict[str, Any], online: tuple[int, ...], why: str | None) -> None:
    partition, two = led(0, (1,)), spu_of(2)
    view = seen(partition, spu_of(1), two, online=online, **more)
    spec = respecified(partition, (1, 2))
    found = begin(view, partition, spec, Budget(view))
    if why is None:
        assert found == BeginMove(partition, spec, (two,))
    else:
        assert isinstance(found, str)
        assert why in found


def test_given_an_spu_that_is_not_registered_then_it_is_named() -> None:
    partition = led(0, (1,))
    view = seen(partition, spu_of(1), online=(1,))
    found = begin(view, partition, respecified(partition, (9,)), Budget(view))
    assert found == "SPU 9 is not registered"


SETTLED = led(0, (1,))


def takes(
    budget: Budget,
    joining: tuple[int, ...],
    leaving: tuple[int, ...] = (),
    instead_of: Partition = SETTLED,
) -> bool:
    """Whether a partition may get these SPUs in the place of those."""
    spec = led(0, joining or (1,), joining=joining or None, leaving=leaving or None).spec
    added = [i for i in joining if i not in instead_of.spec.holders]
    return budget.take(added, spec, instead_of=instead_of.spec)


def test_budget() -> None:
    moving = [led(i, (1, 2), (1,), joining=(2,)) for i in range(MOST_IN - 1)]
    budget = Budget(view_of(*moving))
    assert takes(budget, (2,))
    assert not takes(budget, (2,))
    assert takes(budget, (), (2,)), "what only leaves costs nothing"
    for i in range(MOST - MOST_IN):
        assert takes(budget, (10 + i,))
    assert not takes(budget, (99,))


def test_given_a_move_instead_of_another_then_the_other_one_counts_no_more() -> None:
    moving = [led(i, (2, 5), (1,), joining=(2, 5), leaving=(1,)) for i in range(MOST_OUT)]
    budget = Budget(view_of(*moving))
    assert not takes(budget, (4,), (1, 2))
    assert takes(budget, (4, 5), (1, 2), moving[0])
    assert not takes(budget, (4,), (1, 2)), "it takes the place of the other one"
    assert not takes(budget, (5,)), "a newcomer of both goes on coming"
    for _ in range(MOST_IN - 1):
        assert takes(budget, (4,))
    assert not takes(budget, (4,), (1, 2), moving[1])
    assert not takes(budget, (6,), (1,)), "what was refused goes on as it was"


@pytest.mark.parametrize(
    ("replicas", "lrs", "leaving", "expected"),
    [
        pytest.param((2, 1), (3, 1), (3,), (4, 1), id="given-a-newcomer-then-another-one"),
        pytest.param((2, 1), (3, 1, 2), (3,), None, id="given-a-live-newcomer-then-waits"),
        pytest.param((1, 2), (1, 3), (3,), (1, 4), id="given-a-lost-one-that-was-to-stay-then-too"),
        pytest.param((1, 4), (1, 2), (2,), None, id="given-it-leaves-already-then-waits"),
    ],
)
def test_given_a_move_that_an_spu_holds_up_then_a_drain_of_it_moves_on(
    replicas: tuple[int, ...],
    lrs: tuple[int, ...],
    leaving: tuple[int, ...],
    expected: tuple[int, ...] | None,
) -> None:
    joining = tuple(i for i in replicas if i not in (1, *lrs)) or None
    partition = led(0, replicas, lrs, joining=joining, leaving=leaving)
    view = seen(partition, drained(2), drained(3), *map(spu_of, (1, 4)), online=(1, 3, 4))
    view.suspicions.ended(2, SessionEnd.LOST, 0, 0)
    found = [a.spec for a in drain(view, drained(2), NOW).actions if isinstance(a, BeginMove)]
    assert [one.replicas for one in found] == ([] if expected is None else [expected])
    assert all(one.leaving == (2, *leaving) or one.leaving == (*leaving, 2) for one in found)


def test_given_an_spu_drains_then_its_replicas_go_where_fewest_are() -> None:
    mine = [led(i, (2, 1)) for i in range(4)]
    other = led(9, (3, 1), topic="u")
    view = seen(
        *mine,
        other,
        drained(2),
        *map(spu_of, (1, 3, 4)),
        online=(1, 2, 3, 4),
    )
    found = drain(view, drained(2), NOW)
    assert found.left == 4
    targets = [a.spec.replicas for a in found.actions if isinstance(a, BeginMove)]
    assert targets == [(4, 1), (3, 1), (4, 1), (3, 1)]
    assert all(a.spec.leaving == (2,) for a in found.actions if isinstance(a, BeginMove))


DRAINS = [
    pytest.param((), {}, Draining((), 0), id="given-nothing-on-it-then-drained"),
    pytest.param(
        (led(0, (2,)),),
        {},
        Draining((), 1, "t-0 needs 1 SPU, and no other is online: add SPUs"),
        id="given-nobody-else-then-said",
    ),
    pytest.param(
        (partition_of("t", 0, (2,)), spu_of(1)),
        {"online": (1, 2)},
        Draining((), 1, "t-0 has no leader"),
        id="given-no-leader-then-said",
    ),
    pytest.param(
        (led(0, (1,), (2, 1), joining=(1,), leaving=(2,)), spu_of(1)),
        {"online": (1, 2)},
        Draining((), 1),
        id="given-it-moves-then-waits",
    ),
    pytest.param(
        (topic_of("t", rows={0: (2,)}), led(0, (2,)), spu_of(1)),
        {"online": (1, 2)},
        Draining((), 1, "topic t names its SPUs in spec.assignment: give other rows there"),
        id="given-rows-of-the-user-then-said",
    ),
    pytest.param(
        (),
        {"tombstones": [tombstone_of(partition_of("t", 0), 2)]},
        Draining((), 0, deleting=1),
        id="given-tombstones-then-not-drained-yet",
    ),
    pytest.param(
        (),
        {"tombstones": [tombstone_of(partition_of("t", 0), 2)], "online": ()},
        Draining((), 0, deleting=1, is_there=False),
        id="given-tombstones-of-one-that-is-away-then-drained",
    ),
    pytest.param(
        (led(0, (2, 1, 3)), spu_of(1), spu_of(3)),
        {"online": (1, 2, 3)},
        Draining(
            (),
            1,
            "t-0 needs 3 SPUs, and 2 others are online: add SPUs, or have fewer replicas: runnel"
            " scale topic t --replication-factor 2",
        ),
        id="given-as-many-spus-as-replicas-then-said-how-to-go-on",
    ),
    pytest.param(
        (led(0, (2,)), drained(1)),
        {"online": (1, 2)},
        Draining((), 1, "t-0 needs 1 SPU, and no other is online and not draining: add SPUs"),
        id="given-others-that-drain-too-then-said",
    ),
    pytest.param(
        (of_stream(led(0, (2, 1, 3))), spu_of(1), spu_of(3)),
        {"online": (1, 2, 3)},
        Draining(
            (),
            1,
            "a segment of stream s/a needs 3 SPUs, and 2 others are online: add SPUs, or have fewer"
            " replicas: runnel scale stream s/a --replication-factor 2",
        ),
        id="given-a-segment-then-its-stream-is-named",
    ),
]


@pytest.mark.parametrize(("objects", "more", "expected"), DRAINS)
def test_drain(objects: tuple[Any, ...], more: dict[str, Any], expected: Draining) -> None:
    online = more.get("online", (2,))
    others = {key: value for key, value in more.items() if key != "online"}
    view = seen(drained(2), *objects, online=online, **others)
    found = drain(view, drained(2), NOW)
    assert found == expected
    assert found.is_done == (not found.left and (not found.deleting or 2 not in online))
    assert found.reason.startswith("drained: " if found.is_done else "drains: ")


def test_given_it_cannot_delete_what_is_left_then_said_why() -> None:
    gone = partition_of("t", 0)
    sessions = [session_of(2, undeleted={gone.uid: "/disk: Input/output error; repair it"})]
    view = view_of(drained(2), sessions=sessions, tombstones=[tombstone_of(gone, 2)])
    found = drain(view, drained(2), NOW)
    assert not found.is_done
    assert found.reason == (
        "drains: all replicas are elsewhere; it deletes what is left of 1 replica, but cannot:"
        " /disk: Input/output error; repair it; or stop the SPU: nobody waits for it then"
    )


def replaced(spu_id: int, *by: int) -> Spu:
    """An SPU that drains to others."""
    spu = drained(spu_id)
    return spu.model_copy(update={"spec": spu.spec.model_copy(update={"drain_to": by})})


@pytest.mark.parametrize(
    ("rows", "by", "expected"),
    [
        pytest.param([(2, 1), (1, 2)], (3,), [(3, 1), (1, 3)], id="given-one-then-all-go-there"),
        pytest.param([(2, 3)], (3,), [(1, 3)], id="given-it-has-a-replica-then-any-other"),
        pytest.param([(2, 3), (2, 3)], (3, 4), [(4, 3)] * 2, id="given-several-then-one-without"),
        pytest.param([(2,)], (9,), "SPU 9, which is not registered", id="given-nobody-then-said"),
        pytest.param([(2,)], (5,), "SPU 5, which is not online", id="given-one-away-then-said"),
        pytest.param(
            [(2,)], (6,), "SPU 6, which drains itself", id="given-a-drained-one-then-said"
        ),
        pytest.param([(2,)], (7,), "SPU 7, which has no room", id="given-a-full-one-then-said"),
    ],
)
def test_replacing(
    rows: list[tuple[int, ...]], by: tuple[int, ...], expected: list[tuple[int, ...]] | str
) -> None:
    spu = replaced(2, *by)
    sessions = [*map(session_of, (1, 2, 3, 4, 6)), session_of(7, free_bytes=10)]
    held = [led(i, row) for i, row in enumerate(rows)]
    view = view_of(*held, spu, drained(6), *map(spu_of, (1, 3, 4, 5, 7)), sessions=sessions)
    found = drain(view, spu, NOW)
    if isinstance(expected, str):
        assert found.actions == ()
        assert expected in (found.obstacle or "")
    else:
        targets = [a.spec.replicas for a in found.actions if isinstance(a, BeginMove)]
        assert targets == expected


def test_given_a_replacement_with_a_tombstone_of_it_then_waits() -> None:
    partition, spu = led(0, (2,)), replaced(2, 3)
    view = seen(partition, spu, spu_of(3), online=(2, 3), tombstones=[tombstone_of(partition, 3)])
    assert "SPU 3, which still deletes an earlier replica" in (drain(view, spu, NOW).obstacle or "")


def test_given_full_disks_then_room_is_what_is_missing() -> None:
    sessions = [session_of(1, free_bytes=10), session_of(2)]
    view = view_of(led(0, (2,)), drained(2), spu_of(1), sessions=sessions)
    found = drain(view, drained(2), NOW)
    assert found.obstacle == "t-0 needs 1 SPU, and no other SPU that is online has room for it"


def test_given_a_log_that_is_larger_than_a_disk_then_another_spu_gets_it() -> None:
    gib = 1 << 30
    sessions = [session_of(1, free_bytes=5 * gib), session_of(2), session_of(3, free_bytes=7 * gib)]
    view = view_of(led(0, (2,)), drained(2), spu_of(1), spu_of(3), sessions=sessions)
    view.size = lambda partition: ReplicaNumbers(PartitionUid(partition.uid), 0, 9, 9, 6 * gib)
    (action,) = drain(view, drained(2), NOW).actions
    assert isinstance(action, BeginMove)
    assert action.spec.replicas == (3,)


def test_given_an_spu_that_may_come_back_then_the_drain_waits_for_it() -> None:
    view = seen(led(0, (2,)), drained(2), spu_of(1), spu_of(3), online=(1, 2), grace_until_ms=5_000)
    found = drain(view, drained(2), NOW)
    assert found.actions == (WakeAt(Key("Spu", "spu-2"), 5_000),)
    assert "waiting for spu-3" in found.reason


def test_given_a_lost_spu_drains_then_its_replicas_are_made_anew() -> None:
    partition = led(0, (1, 2), (1,))
    view = seen(partition, drained(2), spu_of(1), spu_of(3), online=(1, 3))
    view.suspicions.ended(2, SessionEnd.LOST, 0, 0)
    (action,) = drain(view, drained(2), NOW).actions
    assert isinstance(action, BeginMove)
    assert action.spec.replicas == (1, 3)


def resized(topic: Topic, *partitions: Partition, online: tuple[int, ...]) -> Resizing:
    view = seen(topic, *partitions, *map(spu_of, (1, 2, 3)), online=online)
    return resize(view, of_topic(topic.spec), list(partitions), {}, NOW)


def test_given_a_higher_factor_then_each_partition_gets_all_its_newcomers() -> None:
    topic = topic_of("t", partitions=2, factor=3)
    found = resized(topic, led(0, (1,)), led(1, (2,)), online=(1, 2, 3))
    assert {i: a.spec.replicas for i, a in found.begun.items()} == {
        "t-0": (1, 3, 2),
        "t-1": (2, 1, 3),
    }
    assert found.reason == "its replicas are being moved: 0 % done"


def test_given_a_lower_factor_then_the_leader_stays_and_the_lost_one_goes() -> None:
    topic = topic_of("t", partitions=1, factor=2)
    partition = led(0, (2, 3, 1), (1, 3))
    found = resized(topic, partition, online=(1, 3))
    assert found.begun["t-0"].spec.replicas == (3, 1)


def test_given_a_lower_factor_then_one_that_drains_goes_before_others() -> None:
    topic = topic_of("t", partitions=1, factor=2)
    partition = led(0, (1, 2, 3), (1, 3), joining=(2, 3))
    view = seen(topic, partition, spu_of(1), drained(2), spu_of(3), online=(1, 2, 3))
    found = resize(view, of_topic(topic.spec), [partition], {}, NOW)
    assert found.begun["t-0"].spec.replicas == (1, 3)


def test_given_a_newcomer_that_is_offline_then_topic_and_drain_name_it() -> None:
    topic = topic_of("t", partitions=1, factor=3)
    partition = led(0, (1, 2, 3), (1, 2), joining=(2, 3))
    said = "some are to come to SPU 3, which is offline"
    found = resized(topic, partition, online=(1, 2))
    assert found.reason == f"its replicas are being moved: 0 % done; {said}"
    view = seen(topic, partition, drained(1), spu_of(2), spu_of(3), online=(1, 2))
    assert drain(view, drained(1), NOW) == Draining((), 1, said)


def test_given_other_rows_then_the_partitions_go_there() -> None:
    topic = topic_of("t", rows={0: (3, 2), 1: (1, 2)})
    found = resized(topic, led(0, (1, 2)), led(1, (1, 2)), online=(1, 2, 3))
    assert {i: a.spec.replicas for i, a in found.begun.items()} == {"t-0": (3, 2)}
    assert found.reason == "its replicas are being moved: 50 % done"


def test_given_all_is_as_wanted_then_nothing() -> None:
    topic = topic_of("t", partitions=1, factor=2)
    assert resized(topic, led(0, (1, 2)), online=(1, 2)) == Resizing({}, None)


def test_given_too_few_spus_then_said() -> None:
    topic = topic_of("t", partitions=1, factor=3)
    found = resized(topic, led(0, (1,)), online=(1, 2))
    assert not found.begun
    assert "replicationFactor 3 needs 3 SPUs, and 2 that are online have room" in str(found.reason)


@pytest.mark.parametrize(
    ("factor", "partition", "minimum"),
    [
        pytest.param(3, led(0, (1,)), 1, id="given-it-has-yet-to-grow-then-the-former-one"),
        pytest.param(
            3,
            led(0, (1, 2, 3), (1,), joining=(2, 3), minimum=1),
            1,
            id="given-it-grows-then-the-former-one",
        ),
        pytest.param(
            3,
            led(0, (1, 2, 3), (1, 2), joining=(2, 3), minimum=1),
            1,
            id="given-just-as-many-have-joined-then-the-former-one",
        ),
        pytest.param(
            3,
            led(0, (1, 2, 3), joining=(2, 3), minimum=1),
            2,
            id="given-one-more-has-joined-then-the-new-one",
        ),
        pytest.param(
            4,
            led(0, (1, 2, 3), minimum=2),
            2,
            id="given-as-many-as-before-then-the-former-one",
        ),
        pytest.param(
            4,
            led(0, (1, 2, 3, 4), joining=(4,), minimum=2),
            3,
            id="given-all-have-joined-then-the-new-one",
        ),
        pytest.param(
            3,
            led(0, (1, 2, 3), (1,), minimum=1),
            2,
            id="given-nothing-moves-then-the-new-one-whoever-is-away",
        ),
        pytest.param(
            1, led(0, (1, 2, 3), minimum=2), 1, id="given-it-shrinks-then-the-new-one-at-once"
        ),
    ],
)
def test_minimum_rises_last_and_falls_first(
    factor: int, partition: Partition, minimum: int
) -> None:
    topic = topic_of("t", partitions=1, factor=factor).spec
    found = settings_for_now(of_topic(topic), partition, topic.log_settings)
    assert found.min_in_sync_replicas == minimum


def test_given_a_minimum_of_all_replicas_then_it_rises_when_all_have_joined() -> None:
    topic = topic_of("t", partitions=1, factor=3).spec
    wanted = topic.log_settings.model_copy(update={"min_in_sync_replicas": 3})
    joining = led(0, (1, 2, 3), joining=(2, 3), minimum=1)
    found = settings_for_now(of_topic(topic), joining, wanted)
    assert found.min_in_sync_replicas == 3
