"""A cluster folded from the events of one stream."""

from __future__ import annotations

from typing import Any

import pytest

from runnel.status.state import ClusterState
from schemas.errors import RunnelError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic
from tests.unit.sc.builders import partition_of, spu_of, topic_of


def stats(at: int = 1, **numbers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"at": at, "spus": [], "topics": [], "partitions": [], **numbers}


def feed(state: ClusterState, *events: tuple[str, Any, int | None]) -> list[bool]:
    return [
        state.take(name, data.to_json() if isinstance(data, Object) else data, revision)
        for name, data, revision in events
    ]


def whole(*objects: Object) -> list[tuple[str, Any, int | None]]:
    return [*(("added", obj, None) for obj in objects), ("synced", {"revision": "9"}, 9)]


def names(state: ClusterState, cls: type[Object]) -> list[str]:
    return [obj.name for obj in state.objects(cls)]


def test_nothing_is_shown_before_the_whole_state_is_there() -> None:
    state = ClusterState()
    assert state.begin() is None
    assert feed(state, ("added", topic_of("b"), None), ("added", topic_of("a"), None)) == [
        False,
        False,
    ]
    assert (names(state, Topic), state.complete) == ([], False)
    assert feed(state, ("synced", {"revision": "9"}, 9)) == [True]
    assert (names(state, Topic), state.complete) == (["a", "b"], True)
    assert state.revision == 9


def test_changes_after_it_are_shown_and_resumed_from() -> None:
    state = ClusterState()
    state.begin()
    feed(state, *whole(topic_of("a"), spu_of(1)))
    assert feed(state, ("added", topic_of("b"), None), ("added", partition_of("b"), 10)) == [
        True,
        True,
    ]
    assert state.begin() == 10
    assert feed(state, ("deleted", topic_of("a"), 11)) == [True]
    assert (names(state, Topic), names(state, Spu)) == (["b"], ["spu-1"])
    assert state.begin() == 11


def test_given_a_new_beginning_then_what_is_not_there_is_gone_and_the_old_stays_till_then() -> None:
    state = ClusterState()
    state.begin()
    feed(state, *whole(topic_of("a"), topic_of("b")))
    feed(state, ("stats", stats(topics=[{"name": "a"}, {"name": "b"}]), None))
    state.forget_revision()
    assert state.begin() is None
    feed(state, ("added", topic_of("b"), None))
    assert names(state, Topic) == ["a", "b"]
    feed(state, ("synced", {"revision": "20"}, 20))
    assert names(state, Topic) == ["b"]
    assert state.numbers("topics", "a") == {}
    assert state.numbers("topics", "b") == {"name": "b"}


def test_statistics_replace_those_before_and_go_with_their_object() -> None:
    state = ClusterState()
    state.begin()
    feed(state, *whole(topic_of("a")))
    feed(state, ("stats", stats(5, topics=[{"name": "a", "offsets": 1}]), None))
    feed(state, ("stats", stats(6, topics=[{"name": "a", "offsets": 2}]), None))
    feed(state, ("stats", stats(7, spus=[{"name": "spu-1"}]), None))
    assert state.at_ms == 7
    assert state.numbers("topics", "a") == {"name": "a", "offsets": 2}
    feed(state, ("deleted", topic_of("a"), 12))
    assert state.numbers("topics", "a") == {}


def test_objects_of_the_system_only_if_asked_for() -> None:
    state = ClusterState()
    state.begin()
    feed(state, *whole(topic_of("a"), partition_of("_positions")))
    assert names(state, Partition) == []
    assert [p.name for p in state.objects(Partition, system=True)] == ["_positions-0"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("sealed", {}, id="given-an-event-of-a-later-version"),
        pytest.param("added", {"kind": "Gateway"}, id="given-a-kind-of-a-later-version"),
    ],
)
def test_what_a_later_version_adds_is_passed_over(name: str, data: Any) -> None:
    state = ClusterState()
    state.begin()
    feed(state, *whole(), (name, data, None))
    assert state.complete


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("added", {"metadata": {}}),
        ("added", {"kind": "Topic"}),
        ("added", []),
        ("synced", {}),
        ("stats", {"at": 1}),
        ("stats", stats(topics=[{}])),
    ],
)
def test_what_no_sc_sends_is_an_error(name: str, data: Any) -> None:
    state = ClusterState()
    state.begin()
    with pytest.raises(RunnelError, match="does not understand"):
        state.take(name, data, None)
