"""The topic controller: writes of many partitions and large specs, within what the KV takes."""

from __future__ import annotations

import pytest

from sc.controllers import topic_size
from sc.controllers.actions import CreatePartitions, Key, WriteStatus
from sc.controllers.topic import reconcile
from sc.controllers.topic_size import CREATE_BYTES, CREATE_CHUNK
from sc.kv.interface import MAX_TXN_BYTES, MAX_TXN_OPS
from sc.store.codec import encode_object
from schemas.columns.topic_schema import Column
from schemas.objects.partition import Partition
from schemas.objects.topic import Topic
from tests.unit.sc.builders import partition_of, spu_of, view_of
from tests.unit.sc.controllers.topics import DONE, KEY, NOW, PENDING, becomes, cluster, fresh, made


def chunks_of(topic: Topic, *there: Partition) -> list[list[int | None]]:
    """The indexes that each action of one look creates."""
    actions = reconcile(cluster(topic, *there), KEY, NOW)
    assert all(isinstance(a, CreatePartitions) for a in actions)
    return [
        [p.spec.index for p in a.partitions] for a in actions if isinstance(a, CreatePartitions)
    ]


def test_the_bounds_of_a_transaction_are_those_of_the_kv() -> None:
    assert (topic_size.MAX_TXN_OPS, topic_size.MAX_TXN_BYTES) == (MAX_TXN_OPS, MAX_TXN_BYTES)


def test_given_many_partitions_then_created_in_bounded_chunks_in_order() -> None:
    topic = made(PENDING, partitions=2 * CREATE_CHUNK + 1)
    # The first write changes the topic: what follows is decided anew.
    assert chunks_of(topic) == [list(range(CREATE_CHUNK))]
    there = [fresh(topic, i, (1,)) for i in range(5)]
    assert chunks_of(topic, *there) == [
        list(range(5, CREATE_CHUNK + 5)),
        list(range(CREATE_CHUNK + 5, 2 * CREATE_CHUNK + 1)),
    ]


def test_given_large_settings_then_chunks_are_bounded_by_bytes() -> None:
    columns = tuple(Column(name=f"column_{i:03}_{'x' * 40}", type="string") for i in range(400))
    topic = made(PENDING, partitions=100)
    topic = topic.model_copy(update={"spec": topic.spec.model_copy(update={"columns": columns})})
    first = fresh(topic, 0, (1,))
    there, sizes = [first], []
    for action in reconcile(cluster(topic, first), KEY, NOW):
        assert isinstance(action, CreatePartitions)
        sizes.append(sum(len(encode_object(p, "cause")) for p in action.partitions))
        there += action.partitions
    assert [p.spec.index for p in there] == list(range(100))
    assert max(sizes) <= CREATE_BYTES
    assert max(sizes) > CREATE_BYTES // 2
    (alone,) = reconcile(cluster(topic), KEY, NOW)
    assert isinstance(alone, CreatePartitions)
    together = sum(len(encode_object(p, "cause")) for p in (topic, *alone.partitions))
    assert CREATE_BYTES // 2 < together <= CREATE_BYTES


def test_given_many_spus_then_a_chunk_compares_as_many_as_a_transaction_may() -> None:
    """A chunk of placements on 200 SPUs would compare more keys than one transaction takes."""
    rows = {i: (2 * i + 1, 2 * i + 2) for i in range(100)}
    topic = made(PENDING, rows=rows)
    view = view_of(topic, *(spu_of(i) for i in range(1, 201)))
    (first,) = reconcile(view, KEY, NOW)
    assert isinstance(first, CreatePartitions)
    actions = reconcile(
        view_of(topic, *(spu_of(i) for i in range(1, 201)), *first.partitions), KEY, NOW
    )
    for action in (first, *actions):
        assert isinstance(action, CreatePartitions)
        assert 2 + len(action.spus) + len(action.partitions) <= MAX_TXN_OPS
    assert len(first.partitions) == 42


@pytest.mark.parametrize(
    ("topic", "placed", "reason"),
    [
        pytest.param(
            made(PENDING, partitions=1),
            {0: (1,), 1: (2,)},
            "spec has 1 partitions, but 2 were placed: set it back",
            id="given-more-partitions-than-the-spec-has-then-said",
        ),
    ],
)
def test_given_a_spec_that_contradicts_what_was_placed_then_the_status_says_so(
    topic: Topic, placed: dict[int, tuple[int, ...]], reason: str
) -> None:
    partitions = [
        p.model_copy(update={"spec": p.spec.model_copy(update={"log": topic.spec.log_settings})})
        for p in (partition_of(topic, i, row) for i, row in placed.items())
    ]
    expected = becomes(topic, DONE, reason, tuple(placed.values()))
    assert reconcile(cluster(topic, *partitions), KEY, NOW) == (expected,)


def test_given_a_replica_map_that_no_write_can_hold_then_nothing_is_placed_and_it_says_so() -> None:
    rows = dict.fromkeys(range(40_000), (1_000_000_001, 1_000_000_002, 1_000_000_003))
    topic = made(PENDING, rows=rows)
    (action,) = reconcile(view_of(topic, *map(spu_of, rows[0])), KEY, NOW)
    assert isinstance(action, WriteStatus)
    assert action.status.reason is not None
    assert "the topic is too large for the KV store" in action.status.reason


def test_given_very_many_partitions_then_one_look_creates_some_and_the_next_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sc.controllers.topic.CREATE_AT_ONCE", 3)
    topic = made(PENDING, partitions=7, factor=1)
    there: list[Partition] = []
    for expected in ([0, 1, 2], [3, 4, 5], [6]):
        (action,) = reconcile(cluster(topic, *there), Key("Topic", topic.name), 0)
        assert isinstance(action, CreatePartitions)
        assert [p.spec.index for p in action.partitions] == expected
        there += [p.with_metadata(resource_version="9") for p in action.partitions]
    # Beside those that are there: as even as all at once.
    leaders = sorted(p.spec.preferred_leader for p in there)
    assert leaders == [1, 1, 1, 2, 2, 3, 3]
