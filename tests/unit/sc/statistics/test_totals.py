"""Sums of topics that are kept up, against sums that are made anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sc.statistics.board import Board
from sc.statistics.totals import Total, Totals
from sc.store.local_store import LocalStore
from schemas.control.statistics import ReplicaNumbers, SpuNumbers, Statistics
from schemas.ids import PartitionUid
from tests.unit.sc.builders import partition_of, spu_of, topic_of

A, B = PartitionUid("a"), PartitionUid("b")
TOPICS = ("orders", "clicks")
uids = st.sampled_from([PartitionUid(str(number)) for number in range(4)])
counts = st.tuples(uids, st.sampled_from(TOPICS), st.integers(0, 99), st.integers(0, 99))


@given(st.lists(counts | uids))
def test_the_sums_are_those_of_what_was_counted_last(
    steps: list[tuple[PartitionUid, str, int, int] | PartitionUid],
) -> None:
    totals, expected = Totals(), dict[PartitionUid, tuple[str, int, int]]()
    for step in steps:
        if isinstance(step, tuple):
            totals.count(*step)
            expected[step[0]] = step[1:]
        else:
            totals.forget(step)
            expected.pop(step, None)
    for topic in TOPICS:
        found = [numbers for numbers in expected.values() if numbers[0] == topic]
        assert totals.of(topic) == Total(
            len(found), sum(one[1] for one in found), sum(one[2] for one in found)
        )


def numbers(uid: str, end: int) -> Statistics:
    row = ReplicaNumbers(PartitionUid(uid), 0, end, end, end * 10)
    return Statistics(spu=SpuNumbers(), replicas=(row,))


def test_a_board_counts_the_leader_of_now_and_no_deleted_partition() -> None:
    store = LocalStore()
    first, other = (partition_of("orders", index, (1, 2), leader=1) for index in range(2))
    for obj in (spu_of(1), spu_of(2), topic_of("orders"), first, other):
        store.put(obj)
    board = Board(store)
    for uid, ends in ((first.uid, (9, 7)), (other.uid, (5, 5))):
        for spu, end in enumerate(ends, start=1):
            board.told(spu, numbers(uid, end), 0)
    assert board.total("orders") == Total(2, 14, 140)
    elected = first.model_copy(
        update={
            "status": first.status.model_copy(update={"leader": 2}),
            "metadata": first.metadata.model_copy(update={"resource_version": "99"}),
        }
    )
    store.put(elected)
    board.changed(elected)
    assert board.total("orders") == Total(2, 12, 120)
    store.remove(other.kind, other.name)
    board.forget(other)
    assert board.total("orders") == Total(1, 7, 70)
