"""The latest numbers, their rates, and what a reader has not seen yet."""

from __future__ import annotations

import pytest

from sc.statistics.board import MAX_TOPICS, Board, Changes
from sc.store.local_store import LocalStore
from schemas.control.statistics import ReplicaNumbers, SpuNumbers, Statistics
from schemas.ids import PartitionUid
from schemas.objects.partition import Partition
from tests.unit.sc.builders import partition_of, spu_of, topic_of

LEADER, FOLLOWER = 1, 2


@pytest.fixture
def store() -> LocalStore:
    found = LocalStore()
    for obj in (spu_of(LEADER), spu_of(FOLLOWER), topic_of("orders"), led("orders", 0)):
        found.put(obj)
    return found


def led(topic: str, index: int) -> Partition:
    return partition_of(topic, index, (LEADER, FOLLOWER), leader=LEADER)


def told_of(*ends: tuple[Partition, int]) -> Statistics:
    """Everything up to these ends is committed; a record takes 10 bytes."""
    return Statistics(
        spu=SpuNumbers(),
        replicas=tuple(
            ReplicaNumbers(PartitionUid(partition.uid), 0, end, end, end * 10)
            for partition, end in ends
        ),
    )


def counted(requests: int) -> Statistics:
    return Statistics(spu=SpuNumbers(requests=requests))


def rate(board: Board, topic: str = "orders") -> tuple[float, float]:
    found = board.topic(topic)
    assert found is not None
    return found.records.at(board.second), found.written_bytes.at(board.second)


def test_a_topic_has_the_rates_of_what_its_leaders_committed(store: LocalStore) -> None:
    board = Board(store)
    one, other = led("orders", 0), led("orders", 1)
    store.put(other)
    board.told(LEADER, told_of((one, 100), (other, 0)), 0)
    board.close_second(10)
    assert board.topic("orders") is None, "what was there before the first numbers is no rate"
    board.told(LEADER, told_of((one, 130), (other, 5)), 1_000)
    board.told(FOLLOWER, told_of((one, 90)), 1_000)
    board.told(FOLLOWER, told_of((one, 130)), 1_100)
    board.close_second(11)
    assert rate(board) == (35, 350)
    board.close_second(12)
    assert rate(board) == (0, 0)


def test_given_a_late_second_then_rates_are_still_per_second(store: LocalStore) -> None:
    board = Board(store)
    board.told(LEADER, told_of((led("orders", 0), 0)), 0)
    board.close_second(10)
    board.told(LEADER, told_of((led("orders", 0), 40)), 0)
    board.close_second(14)
    assert rate(board) == (10, 100)
    board.close_second(14)
    assert rate(board) == (10, 100)


def test_given_a_truncated_log_then_no_rate_is_negative(store: LocalStore) -> None:
    board = Board(store)
    for end in (50, 20):
        board.told(LEADER, told_of((led("orders", 0), end)), 0)
        board.close_second(board.second + 1)
    assert rate(board) == (0, 0)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([100], 0, id="given-the-first-numbers-then-no-rate"),
        pytest.param([100, 130], 30, id="given-more-then-the-difference"),
        pytest.param([100, 100], 0, id="given-nothing-new"),
        pytest.param([100, 7], 7, id="given-a-process-that-started-again-then-what-it-counted"),
    ],
)
def test_requests_of_an_spu(store: LocalStore, counts: list[int], expected: float) -> None:
    board = Board(store)
    for second, count in enumerate(counts, 1):
        board.told(LEADER, counted(count), second * 1_000)
        board.close_second(second)
    found = board.spu(LEADER)
    assert found is not None
    assert found.requests.at(board.second) == expected


def test_a_partition_has_the_numbers_of_its_leader_or_of_who_knows_most(store: LocalStore) -> None:
    board = Board(store)
    partition = led("orders", 0)
    assert board.partition(partition) is None
    board.told(FOLLOWER, told_of((partition, 9)), 0)
    board.told(LEADER, told_of((partition, 7)), 0)
    assert found_end(board, partition) == 7
    away = partition.model_copy(
        update={"status": partition.status.model_copy(update={"leader": None})}
    )
    assert found_end(board, away) == 9


def test_where_it_matters_only_the_leader_s_own_numbers_count(store: LocalStore) -> None:
    board = Board(store)
    partition = led("orders", 0)
    board.told(FOLLOWER, told_of((partition, 9)), 0)
    assert board.of_leader(partition) is None
    board.told(LEADER, told_of((partition, 7)), 0)
    assert (found := board.of_leader(partition)) is not None
    assert found.committed_end == 7
    board.opened(FOLLOWER)
    assert board.of_leader(partition) is not None
    # Its disk may have been replaced.
    board.opened(LEADER)
    assert board.of_leader(partition) is None
    assert found_end(board, partition) == 7, "what is shown goes by what was told last"
    board.told(LEADER, told_of((partition, 8)), 0)
    board.forget(partition)
    board.forget(spu_of(FOLLOWER))
    assert not any(board._told_now.values())


def found_end(board: Board, partition: Partition) -> int:
    found = board.partition(partition)
    assert found is not None
    return found.committed_end


def test_a_reader_gets_what_changed_since_its_version(store: LocalStore) -> None:
    board = Board(store)
    partition = led("orders", 0)
    assert board.changes_since(-1).spus is None, "a new reader gets all"
    board.told(LEADER, told_of((partition, 1)), 0)
    board.close_second(1)
    seen = board.changes_since(0)
    assert seen.spus == frozenset({LEADER})
    assert seen.partitions == frozenset({partition.uid})
    board.told(LEADER, told_of((partition, 2)), 0)
    board.close_second(2)
    board.told(FOLLOWER, counted(1), 0)
    board.close_second(3)
    both = board.changes_since(seen.version)
    assert both.spus == frozenset({LEADER, FOLLOWER})
    assert both.topics == frozenset({"orders"})
    assert both.partitions == frozenset({partition.uid})
    nothing = board.changes_since(both.version)
    assert nothing == Changes(both.version, both.version, frozenset(), frozenset(), frozenset())
    for second in range(4, 100):
        board.close_second(second)
    assert board.changes_since(both.version).spus is None, "it is too far behind"


def test_a_topic_that_became_quiet_is_a_change(store: LocalStore) -> None:
    board = Board(store)
    for second in (1, 2):
        board.told(LEADER, told_of((led("orders", 0), second)), 0)
        board.close_second(second)
    version = board.version
    board.close_second(3)
    assert board.changes_since(version).topics == frozenset({"orders"})
    board.close_second(4)
    assert board.changes_since(version + 1).topics == frozenset()


def test_what_is_gone_is_forgotten(store: LocalStore) -> None:
    board = Board(store)
    partition = led("orders", 0)
    for second in (1, 2):
        board.told(LEADER, told_of((partition, second)), 0)
        board.close_second(second)
    for obj in (partition, topic_of("orders"), spu_of(LEADER)):
        store.remove(obj.kind, obj.name)
        board.forget(obj)
    # The SPU did not know yet, and its session has not ended.
    board.told(LEADER, told_of((partition, 3)), 0)
    board.close_second(3)
    assert board.replicas(PartitionUid(partition.uid)) == {}
    assert board.spu(LEADER) is None
    assert board.topic("orders") is None


def test_an_spu_that_is_away_keeps_its_numbers(store: LocalStore) -> None:
    board = Board(store)
    board.told(LEADER, counted(5), 0)
    board.close_second(1)
    version = board.version
    board.away(LEADER)
    board.close_second(2)
    found = board.spu(LEADER)
    assert found is not None
    assert (found.connected, found.numbers.requests) == (False, 5)
    assert board.changes_since(version).spus == frozenset({LEADER})


def test_rates_are_kept_of_a_bounded_number_of_topics(store: LocalStore) -> None:
    board = Board(store)
    partitions = [led(f"t{number}", 0) for number in range(MAX_TOPICS + 1)]
    for partition in partitions:
        store.put(partition)
    for second in (1, 2):
        board.told(LEADER, told_of(*((p, second) for p in partitions)), 0)
        board.close_second(second)
    assert board.topic("t0") is None
    assert rate(board, f"t{MAX_TOPICS}") == (1, 10)
