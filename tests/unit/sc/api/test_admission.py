"""What the API refuses because it could never be carried out, and what counts as placed."""

from __future__ import annotations

from typing import Any

import pytest

from sc.api.admission import admit_change, admit_new
from sc.store.codec import encode_object
from sc.store.local_store import LocalStore
from schemas.columns.topic_schema import Column
from schemas.errors import InvalidRequestError
from schemas.objects.topic import PartitionAssignment, Topic, TopicSpec, TopicStatus
from tests.unit.sc.builders import spu_of, topic_of


def store_of(*spu_ids: int) -> LocalStore:
    store = LocalStore()
    for spu_id in spu_ids:
        store.put(spu_of(spu_id))
    return store


def with_spec(spec: TopicSpec, status: TopicStatus | None = None) -> Topic:
    topic = topic_of("t").model_copy(update={"spec": spec})
    return topic if status is None else topic.with_status(status)


LARGEST = TopicSpec(partitions=100_000, replication_factor=3)


def test_given_a_replica_map_that_no_write_can_hold_then_refused() -> None:
    with pytest.raises(InvalidRequestError, match="too large for the KV store: its object with"):
        admit_new(with_spec(LARGEST), store_of(1, 1_000))


def test_given_a_replica_map_that_just_fits_then_admitted() -> None:
    topic = with_spec(LARGEST)
    admit_new(topic, store_of(1, 999))
    rows = ((997, 998, 999),) * 100_000
    full = topic.with_status(TopicStatus(replica_map=rows))
    assert 1_400_000 < len(encode_object(full, "cause")) < 1_500_000


def test_given_a_topic_that_grows_beyond_one_write_then_refused() -> None:
    old = with_spec(TopicSpec(partitions=10, replication_factor=3))
    with pytest.raises(InvalidRequestError, match="too large for the KV store"):
        admit_change(old, with_spec(LARGEST), store_of(1_000))
    # One that is too large already may still be changed otherwise.
    wide = with_spec(TopicSpec(partitions=100_000, replication_factor=8))
    more = with_spec(wide.spec.model_copy(update={"ignore_rack_assignment": True}))
    admit_change(wide, more, store_of(1_000))


def test_given_settings_of_which_a_write_cannot_hold_two_then_refused() -> None:
    columns = tuple(Column(name=f"c{i}_{'x' * 240}", type="string") for i in range(1_000))
    store = store_of(1)
    admit_new(with_spec(TopicSpec(columns=columns)), store)
    labels = {"many": "y" * 200_000}
    topic = with_spec(TopicSpec(columns=columns))
    small = topic.with_metadata(annotations=labels)
    admit_new(small, store)
    large = topic.with_metadata(annotations={"many": "y" * 1_200_000})
    with pytest.raises(InvalidRequestError, match=r"replicaMap|first of its partitions"):
        admit_new(large, store)


def rows_of(*rows: tuple[int, ...]) -> TopicSpec:
    return TopicSpec(
        assignment=tuple(PartitionAssignment(id=i, replicas=row) for i, row in enumerate(rows))
    )


def test_given_a_row_longer_than_any_factor_then_refused_unless_it_is_there() -> None:
    wide, store = tuple(range(1, 34)), store_of(*range(1, 34))
    admit_new(with_spec(rows_of(wide[:32])), store)
    with pytest.raises(InvalidRequestError, match="row 0 has 33 replicas; at most 32"):
        admit_new(with_spec(rows_of(wide)), store)
    old = with_spec(rows_of(wide))
    admit_change(old, old.with_metadata(labels={"team": "x"}), store)
    # A row that another has replaced no longer excuses the others.
    admit_change(old, with_spec(rows_of(wide[:32])), store)
    with pytest.raises(InvalidRequestError, match="row 1 has 33 replicas"):
        admit_change(old, with_spec(rows_of(wide, wide)), store)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(
            [{0: [1, 2]}, {1: [3, 3]}],
            r"spec.assignment\[1\].replicas: row 1 names SPU 3 twice",
            id="given-an-spu-twice",
        ),
        pytest.param(
            [{0: [1, 2]}, {1: [3]}],
            r"spec.assignment\[1\].replicas: row 1 has 1 replica, row 0 has 2",
            id="given-rows-of-different-lengths",
        ),
        pytest.param(
            [{0: [1]}, {0: [2]}],
            r"spec.assignment\[1\].id: row 0 is there more than once",
            id="given-a-row-twice",
        ),
        pytest.param(
            [{0: [1]}, {2: [2]}],
            r"spec.assignment: row 1 is missing: rows are numbered from 0 without gaps",
            id="given-a-gap",
        ),
    ],
)
def test_given_rows_that_no_spus_could_make_right_then_refused(rows: Any, message: str) -> None:
    wrong, store = with_spec(TopicSpec(assignment=rows)), store_of(1, 2, 3)
    with pytest.raises(InvalidRequestError, match=f"^{message}$"):
        admit_new(wrong, store)
    with pytest.raises(InvalidRequestError, match=f"^{message}$"):
        admit_change(with_spec(rows_of((1,))), wrong, store)
    # An earlier version stored it: its labels change all the same, and it can be set right.
    admit_change(wrong, wrong.with_metadata(labels={"team": "x"}), store)
    admit_change(wrong, with_spec(rows_of((1, 2))), store)


def test_given_spus_that_are_not_registered_then_admitted() -> None:
    admit_new(with_spec(rows_of((8, 9))), store_of())


def test_given_partitions_that_somebody_removed_then_the_topic_counts_as_placed() -> None:
    old = with_spec(
        TopicSpec(partitions=2, replication_factor=1), TopicStatus(replica_map=((1,), (2,)))
    )
    with pytest.raises(InvalidRequestError, match="cannot shrink from 2 to 1"):
        admit_change(old, with_spec(TopicSpec(partitions=1)), store_of(1, 2, 3))
