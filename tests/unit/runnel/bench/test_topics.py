"""The topic of a measurement: made, and gone whatever happens."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from runnel.admin.manifests import parse_object
from runnel.bench.settings import Mode, Settings
from runnel.bench.topics import PREFIX, topic_for
from runnel.blocking import Cluster
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.metadata import Metadata, Object
from schemas.objects.spu import Spu, SpuResolution, SpuSpec, SpuStatus
from schemas.objects.topic import Topic, TopicSpec


@dataclass
class World:
    """Objects in a dict, behind those calls of a cluster that are needed."""

    topics: dict[str, Topic] = field(default_factory=dict)
    online: int = 1
    refuses: dict[str, RunnelError] = field(default_factory=dict)

    def list(self, _kind: str) -> list[Object]:
        status = SpuStatus(resolution=SpuResolution.ONLINE, observed_generation=1)
        return [
            Spu(metadata=Metadata(name=f"spu-{i}"), spec=SpuSpec(spu_id=i), status=status)
            for i in range(self.online)
        ]

    def get(self, _kind: str, name: str) -> Object:
        if name not in self.topics:
            raise NotFoundError(f"topic {name!r} does not exist")
        return self.topics[name]

    def create(self, manifest: dict[str, Any]) -> Object:
        self._maybe_refuse("create")
        topic = parse_object(manifest)
        assert isinstance(topic, Topic)
        self.topics[topic.name] = topic
        return topic

    def wait(self, kind: str, _name: str, resolution: str, _timeout: float) -> None:
        self._maybe_refuse(f"{kind} {resolution}")

    def delete(self, kind: str, name: str) -> None:
        # Ctrl-C must not keep it from that.
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        self._maybe_refuse("delete")
        self.get(kind, name)
        del self.topics[name]

    def _maybe_refuse(self, what: str) -> None:
        if what in self.refuses:
            raise self.refuses[what]


def enter(world: World, settings: Settings, said: list[str], body: BaseException | None) -> str:
    """Use the topic, and end as ``body`` does. Gives its name."""
    with topic_for(cast(Cluster, world), settings, said.append) as (name, _):
        assert name in world.topics
        if body is not None:
            raise body
    return name


ENDS = {
    "given-success": None,
    "given-a-failure": UnreachableError("the SPU is gone"),
    "given-ctrl-c": KeyboardInterrupt(),
}


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
def test_its_own_topic_is_gone_and_any_other_stays(body: BaseException | None) -> None:
    world, said = World({"orders": topic("orders")}), list[str]()
    before = signal.getsignal(signal.SIGINT)
    if body is None:
        enter(world, Settings(mode=Mode.PRODUCE), said, None)
    else:
        with pytest.raises(type(body)):
            enter(world, Settings(mode=Mode.PRODUCE), said, body)
    assert (list(world.topics), said) == (["orders"], [])
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
def test_a_topic_of_the_user_stays(body: BaseException | None) -> None:
    world = World({"orders": topic("orders")})
    settings = Settings(mode=Mode.PRODUCE, topic="orders")
    if body is None:
        assert enter(world, settings, [], None) == "orders"
    else:
        with pytest.raises(type(body)):
            enter(world, settings, [], body)
    assert list(world.topics) == ["orders"]


@pytest.mark.parametrize("step", ["create", "topic provisioned", "partition online"])
def test_given_a_topic_that_never_serves_then_it_is_gone(step: str) -> None:
    world = World(refuses={step: DeadlineExceededError("too late")})
    said: list[str] = []
    with pytest.raises(DeadlineExceededError, match="too late"):
        enter(world, Settings(mode=Mode.PRODUCE), said, None)
    assert (world.topics, said) == ({}, [])


@pytest.mark.parametrize("step", ["delete", "topic deleted"])
def test_given_it_cannot_be_deleted_then_its_name_is_said(step: str) -> None:
    world, said = World(refuses={step: UnreachableError("no SC answers")}), list[str]()
    name = enter(world, Settings(mode=Mode.PRODUCE), said, None)
    assert name.startswith(PREFIX)
    assert said == [f"topic {name} may be left (no SC answers); see: runnel get topic {name}"]


def test_given_too_few_spus_then_nothing_is_made() -> None:
    world = World(online=2, refuses={"create": UnreachableError("not asked")})
    settings = Settings(mode=Mode.PRODUCE, replication_factor=3)
    with pytest.raises(InvalidRequestError, match="3 needs as many online SPUs; 2 of 2"):
        enter(world, settings, [], None)


SETTLED: dict[str, tuple[Settings, tuple[object, ...]]] = {
    "given-nothing-then-defaults": (
        Settings(mode=Mode.PRODUCE),
        (1, 1, "fsync", "none"),
    ),
    "given-wishes-then-those": (
        Settings(
            mode=Mode.PRODUCE,
            partitions=3,
            replication_factor=2,
            durability="replicated",
            compression="lz4",
            record_size=2 << 20,
        ),
        (3, 2, "replicated", "lz4"),
    ),
    "given-a-topic-then-what-it-has": (
        Settings(mode=Mode.PRODUCE, topic="orders"),
        (5, 1, "fsync", "zstd"),
    ),
    "given-a-topic-and-a-codec-then-that": (
        Settings(mode=Mode.PRODUCE, topic="orders", compression="none"),
        (5, 1, "fsync", "none"),
    ),
}


@pytest.mark.parametrize(("settings", "expected"), SETTLED.values(), ids=SETTLED)
def test_settings_say_what_is_so(settings: Settings, expected: tuple[object, ...]) -> None:
    world = World({"orders": topic("orders", partitions=5, compression="zstd")}, online=2)
    with topic_for(cast(Cluster, world), settings, list[str]().append) as (name, found):
        assert world.topics[name].spec.max_record_size >= settings.record_size
    assert (
        found.partitions,
        found.replication_factor,
        found.durability,
        found.compression,
    ) == expected


def topic(name: str, **spec: Any) -> Topic:
    return Topic(metadata=Metadata(name=name), spec=TopicSpec.model_validate(spec))
