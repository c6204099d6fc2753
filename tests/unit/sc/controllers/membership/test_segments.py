"""Replicas of the segments of a stream that wants another number of them."""

from __future__ import annotations

from typing import Any

import pytest

from sc.controllers.actions import Action, BeginMove, Key, TellMoves, WritePartitionSpec
from sc.controllers.membership.resize import BEGINNING
from sc.controllers.membership.segments import KIND, reconcile
from schemas.objects.metadata import OwnerReference
from schemas.objects.partition import DesiredState, Partition
from schemas.objects.stream import Stream
from tests.unit.sc.builders import session_of, spu_of, view_of
from tests.unit.sc.controllers.membership.test_begin import led
from tests.unit.sc.streams.world import stream_of

NOW = 1_000


def segment(
    index: int,
    replicas: tuple[int, ...],
    lrs: tuple[int, ...] | None = None,
    *,
    sealed: bool = False,
    uid: str = "",
    **more: Any,
) -> Partition:
    """A segment that is led, by the first live replica."""
    stream, found = stream_of(), led(index, replicas, lrs, **more)
    owner = OwnerReference(kind="Stream", name=stream.name, uid=uid or stream.uid)
    desired = DesiredState.SEALED if sealed else DesiredState.OPEN
    spec = found.spec.model_copy(update={"owner": owner, "desired": desired})
    return found.model_copy(update={"spec": spec})


def looked(factor: int, *segments: Partition, moves: str | None = None) -> list[Action]:
    stream = stream_of(replication_factor=factor)
    stream = stream.with_status(stream.status.model_copy(update={"moves": moves}))
    return reconciled(stream, *segments)


def reconciled(stream: Stream, *segments: Partition) -> list[Action]:
    spus = [spu_of(i) for i in (1, 2, 3)]
    view = view_of(stream, *segments, *spus, sessions=[session_of(i) for i in (1, 2, 3)])
    return list(reconcile(view, Key(KIND, stream.name), NOW))


def begun(actions: list[Action]) -> dict[str, tuple[int, ...]]:
    return {a.partition.name: a.spec.replicas for a in actions if isinstance(a, BeginMove)}


def told(actions: list[Action]) -> list[str | None]:
    return [a.moves for a in actions if isinstance(a, TellMoves)]


def minimums(actions: list[Action]) -> dict[str, int]:
    """What the segments get that do not move now."""
    return {
        a.partition.name: a.spec.log.min_in_sync_replicas
        for a in actions
        if isinstance(a, WritePartitionSpec)
    }


def test_given_more_replicas_then_all_segments_get_them_also_sealed_ones() -> None:
    actions = looked(3, segment(0, (1,), sealed=True), segment(1, (2,)))
    assert begun(actions) == {"t-0": (1, 3, 2), "t-1": (2, 1, 3)}
    assert told(actions) == [BEGINNING]
    # Two of three are to be live, and only one is yet.
    moves = [a.spec.log.min_in_sync_replicas for a in actions if isinstance(a, BeginMove)]
    assert moves == [1, 1]
    assert minimums(actions) == {}


def test_given_enough_newcomers_have_joined_then_the_minimum_rises() -> None:
    moving: dict[str, Any] = {"joining": (2, 3), "minimum": 1}
    some = [
        segment(0, (1, 2, 3), **moving),
        segment(1, (1, 2, 3), (1, 2), **moving),
        segment(2, (1, 2, 3), sealed=True, **moving),
    ]
    actions = looked(3, *some, moves=BEGINNING)
    assert (minimums(actions), told(actions)) == ({"t-0": 2, "t-2": 2}, [])


@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_given_fewer_replicas_then_the_minimum_falls_with_them(sealed: bool) -> None:
    (move, _told) = looked(1, segment(0, (1, 2, 3), minimum=2, sealed=sealed))
    assert isinstance(move, BeginMove)
    assert (move.spec.replicas, move.spec.leaving) == ((1,), (2, 3))
    assert move.spec.log.min_in_sync_replicas == 1


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        pytest.param([segment(0, (1, 2), joining=(2,))], [], id="given-some-move-then-not-yet"),
        pytest.param([segment(0, (1, 2))], [None], id="given-all-have-moved-then-told"),
        pytest.param(
            [segment(0, (1,), uid="another")], [None], id="given-those-of-another-then-no-matter"
        ),
        pytest.param(
            [segment(0, (1,), deleting=True)], [None], id="given-one-to-delete-then-no-matter"
        ),
    ],
)
def test_end(segments: list[Partition], expected: list[str | None]) -> None:
    assert told(looked(2, *segments, moves=BEGINNING)) == expected


def test_given_a_segment_that_moves_with_too_high_a_minimum_then_it_falls() -> None:
    moving = segment(0, (1,), (1, 2, 3), leaving=(2, 3), minimum=2, sealed=True)
    assert minimums(looked(1, moving, moves=BEGINNING)) == {"t-0": 1}


def test_given_too_few_spus_then_said() -> None:
    (found,) = looked(4, segment(0, (1,)))
    assert isinstance(found, TellMoves)
    assert "replicationFactor 4 needs 4 SPUs, and 3 that are online have room" in str(found.moves)


def test_given_nothing_to_do_or_nobody_there_then_nothing() -> None:
    assert looked(1, segment(0, (1,))) == []
    deleted = stream_of(replication_factor=3).with_metadata(deletion_timestamp="2026-01-01T00:00Z")
    assert reconciled(deleted, segment(0, (1,))) == []
    assert reconcile(view_of(), Key(KIND, "s/gone"), NOW) == ()
