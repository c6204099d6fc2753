"""What a client takes over from what another one knew of a topic."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest

from runnel.net import metadata
from runnel.net.known_assignment import BEHIND_S
from runnel.net.metadata import LeaderCache, patience_s
from schemas.control.assignments import Assignments, PartitionLeader, TopicAssignment
from schemas.errors import NotFoundError, UnreachableError


def topic(uid: str, *terms: int | None) -> TopicAssignment:
    """A topic whose partitions are led in these terms; None leaves one out."""
    partitions = [
        {"index": index, "uid": f"{index:032x}", "resolution": "online", "leader": 0, "term": term}
        for index, term in enumerate(terms)
        if term is not None
    ]
    return TopicAssignment.model_validate(
        {
            "name": "orders",
            "uid": uid,
            "resolution": "provisioned",
            "partitionCount": len(terms),
            "replicationFactor": 1,
            "compression": "none",
            "durability": "fsync",
            "maxRecordSize": 1,
            "partitions": partitions,
        }
    )


class InOneLook(tuple[PartitionLeader, ...]):
    """Partitions that nobody may go through one by one: there may be very many."""

    def __iter__(self) -> Iterator[PartitionLeader]:
        raise AssertionError("all partitions were gone through")


def in_one_look(found: TopicAssignment) -> TopicAssignment:
    return found.model_copy(update={"partitions": InOneLook(found.partitions)})


class Source:
    """An SC that is asked as seldom as possible."""

    def __init__(self, *answers: tuple[int, TopicAssignment | None]) -> None:
        self.asked = 0
        self.answers = [*answers] or [(1, topic("u", 9, 9))]
        self.is_silent = self.is_away = False

    async def assignments(self, name: str) -> Assignments:
        self.asked += 1
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_away:
            raise UnreachableError("nobody is there")
        revision, found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        topics = () if found is None else (found,)
        return Assignments(cluster="c", cluster_uid="c", revision=revision, topics=topics)

    async def call(self, *_: Any, **__: Any) -> dict[str, object]:
        raise UnreachableError("nothing else is asked")


async def terms(cache: LeaderCache) -> list[int]:
    return [one.term for one in (await cache.topic("orders")).partitions]


async def test_what_was_learned_is_used_without_a_question() -> None:
    source = Source()
    cache = LeaderCache(source, lambda: 1.0)
    cache.learn(topic("u", 3, None))
    cache.learn(topic("u", None, 4))
    assert await terms(cache) == [3, 4]
    assert source.asked == 0
    await cache.topic("orders", newer_than=2.0)
    assert source.asked == 1


async def test_leaders_of_lower_terms_are_not_taken_over() -> None:
    source = Source()
    cache = LeaderCache(source, lambda: 1.0)
    assert await terms(cache) == [9, 9]
    cache.learn(topic("u", 3, 12))
    assert await terms(cache) == [9, 12]


async def test_given_nothing_new_then_what_is_known_is_not_gone_through() -> None:
    cache = LeaderCache(Source(), lambda: 1.0)
    cache.learn(in_one_look(topic("u", 3, 3, None)))
    cache.learn(topic("u", None, 2, None))
    with pytest.raises(AssertionError, match="all partitions"):
        cache.learn(topic("u", None, None, 1))


async def test_given_another_topic_of_the_name_then_the_sc_says_which_is_there() -> None:
    source = Source()
    cache = LeaderCache(source, lambda: 1.0)
    cache.learn(topic("old", 3, 3))
    cache.learn(topic("new", 1, 1))
    assert (await cache.topic("orders")).uid == "u"
    assert source.asked == 1


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


async def asked_again(cache: LeaderCache) -> list[int]:
    found = await cache.topic("orders", newer_than=math.inf)
    return [one.term for one in found.partitions]


async def test_given_an_sc_that_is_behind_then_each_partition_keeps_the_newest_leader() -> None:
    clock = Clock()
    stale = topic("u", 5, 7)
    source = Source((8, topic("u", 6, 6)), (3, stale), (9, topic("u", 6, 8)), (3, stale))
    cache = LeaderCache(source, clock)
    assert [await asked_again(cache) for _ in range(4)] == [[6, 6], [6, 7], [6, 8], [6, 8]]
    # The KV and all disks may have been put back.
    clock.now_s += BEHIND_S
    assert await asked_again(cache) == [5, 7]


async def test_given_an_sc_that_does_not_know_the_topic_yet_then_it_is_not_gone() -> None:
    clock = Clock()
    cache = LeaderCache(Source((8, topic("u", 6)), (3, None)), clock)
    assert [await asked_again(cache) for _ in range(3)] == [[6], [6], [6]]
    clock.now_s += BEHIND_S
    with pytest.raises(NotFoundError):
        await asked_again(cache)
    gone = LeaderCache(Source((8, topic("u", 6)), (9, None)), clock)
    await asked_again(gone)
    with pytest.raises(NotFoundError):
        await asked_again(gone)


async def test_given_another_topic_of_the_name_from_the_sc_then_its_terms_count() -> None:
    clock = Clock()
    old = (8, topic("u", 6))
    cache = LeaderCache(Source(old, (9, topic("v", 1)), old), clock)
    assert [await asked_again(cache) for _ in range(3)] == [[6], [1], [1]]
    clock.now_s += BEHIND_S
    assert await asked_again(cache) == [6]


async def test_given_an_sc_that_does_not_know_new_partitions_then_they_are_there() -> None:
    one, two = topic("u", 6), topic("u", 6, 1)
    cache = LeaderCache(Source((8, two), (7, one), (9, one)), Clock())
    assert [await asked_again(cache) for _ in range(3)] == [[6, 1], [6, 1], [6]]


async def test_given_somebody_who_asks_rarely_then_an_sc_that_is_behind_is_believed_some_time() -> (
    None
):
    clock = Clock()
    cache = LeaderCache(Source((8, topic("u", 6)), (3, topic("v", 1))), clock)
    found = []
    for _ in range(4):
        found.append(await asked_again(cache))
        clock.now_s += 10 * BEHIND_S
    assert found == [[6], [6], [6], [1]]


async def test_an_answer_of_an_sc_that_is_behind_or_none_is_not_an_answer() -> None:
    clock = Clock()
    source = Source((8, topic("u", 6)), (3, None), (9, topic("u", 6)))
    cache = LeaderCache(source, clock)
    told = []
    for _ in range(3):
        await asked_again(cache)
        told.append(cache.answered_at("orders"))
    assert told[0] == told[1] < told[2]
    source.is_away = True
    await asked_again(cache)
    assert cache.answered_at("orders") == told[2]


async def test_given_an_sc_that_was_behind_long_ago_then_it_is_not_believed_sooner() -> None:
    clock = Clock()
    cache = LeaderCache(Source((8, topic("u", 6)), (3, None)), clock)
    assert [await asked_again(cache) for _ in range(2)] == [[6], [6]]
    clock.now_s += 10 * BEHIND_S
    assert await asked_again(cache) == [6]
    clock.now_s += BEHIND_S
    with pytest.raises(NotFoundError):
        await asked_again(cache)


async def test_given_an_sc_that_stands_still_then_what_is_known_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "ASK_AGAIN_S", 0.01)
    source = Source()
    cache = LeaderCache(source, Clock())
    await asked_again(cache)
    source.is_silent = True
    assert await asked_again(cache) == [9, 9]


@pytest.mark.parametrize(
    ("partitions", "silences", "waits_s"),
    [
        pytest.param(1, 0, 2.001, id="given-the-first-question-then-soon-without-it"),
        pytest.param(1, 1, 4.002, id="given-no-answer-then-twice-as-long"),
        pytest.param(1, 3, 10.0, id="given-many-then-the-most"),
        pytest.param(1, 10_000, 10.0, id="given-very-many-then-the-most"),
        pytest.param(5_000, 0, 7.0, id="given-thousands-of-partitions-then-longer-at-once"),
    ],
)
def test_how_long_the_sc_is_waited_for(partitions: int, silences: int, waits_s: float) -> None:
    assert patience_s(partitions, silences) == pytest.approx(waits_s)


async def test_given_no_answers_then_each_is_waited_for_longer_until_one_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list[tuple[int, int]]()

    def noted(partitions: int, silences: int) -> float:
        found.append((partitions, silences))
        return 0.001 if source.is_silent else 10.0

    monkeypatch.setattr(metadata, "patience_s", noted)
    source = Source()
    clock = Clock()
    cache = LeaderCache(source, clock)
    await asked_again(cache)
    for is_silent in (True, True, False, True):
        source.is_silent = is_silent
        await asked_again(cache)
    assert found == [(2, 0), (2, 1), (2, 2), (2, 0)]
    # Much later it is another failure that asks.
    clock.now_s += 60
    await asked_again(cache)
    assert found[-1] == (2, 0)
