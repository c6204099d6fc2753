"""What a client takes over from what another one knew of a topic."""

from __future__ import annotations

from typing import Any

from runnel.net.metadata import LeaderCache
from schemas.control.assignments import Assignments, TopicAssignment


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


class Source:
    """An SC that is asked as seldom as possible."""

    def __init__(self) -> None:
        self.asked = 0

    async def assignments(self, name: str) -> Assignments:
        self.asked += 1
        found = topic("u", 9, 9)
        return Assignments(cluster="c", cluster_uid="c", revision=1, topics=(found,))

    async def call(self, *_: Any, **__: Any) -> dict[str, object]:
        raise AssertionError("nothing else is asked")


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


async def test_given_another_topic_of_the_name_then_the_sc_says_which_is_there() -> None:
    source = Source()
    cache = LeaderCache(source, lambda: 1.0)
    cache.learn(topic("old", 3, 3))
    cache.learn(topic("new", 1, 1))
    assert (await cache.topic("orders")).uid == "u"
    assert source.asked == 1
