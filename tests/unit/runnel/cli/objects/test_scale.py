"""``scale``: which number of which kind, and what is said."""

from __future__ import annotations

import pytest

import runnel
from schemas.objects.spu_group import SpuGroup
from schemas.objects.topic import Topic
from tests.unit.runnel.cli.conftest import CommandLine


@pytest.fixture
def objects(command: CommandLine) -> CommandLine:
    command.sc.add_topic("orders", 2)
    group = {
        "apiVersion": "runnel/v1",
        "kind": "SpuGroup",
        "metadata": {"name": "rack-a"},
        "spec": {"replicas": 1},
    }
    with runnel.connect(command.sc.address) as cluster:
        cluster.create(group)
    return command


def test_topics_and_groups_are_scaled(objects: CommandLine) -> None:
    done = objects("scale", "topic", "orders", "--partitions", "3")
    assert (done.code, done.out) == (0, "topic/orders scaled from 2 to 3 partitions\n")
    topic = objects.sc.objects["topics", "orders"]
    assert isinstance(topic, Topic)
    assert topic.spec.partition_count == 3
    done = objects("scale", "sg", "rack-a", "--replicas", "0")
    assert (done.code, done.out) == (0, "spugroup/rack-a scaled from 1 to 0 SPUs\n")
    group = objects.sc.objects["spugroups", "rack-a"]
    assert isinstance(group, SpuGroup)
    assert group.spec.replicas == 0


def test_given_the_same_number_then_unchanged(objects: CommandLine) -> None:
    revision = objects.sc.objects["spugroups", "rack-a"].metadata.resource_version
    done = objects("scale", "spugroup", "rack-a", "--replicas", "1")
    assert (done.code, done.out) == (0, "spugroup/rack-a unchanged: 1 SPU\n")
    assert objects.sc.objects["spugroups", "rack-a"].metadata.resource_version == revision


WRONG = {
    "given-nothing-for-a-topic": (("topic", "orders"), 2, "give either --partitions N"),
    "given-replicas-for-a-topic": (
        ("topic", "orders", "--replicas", "3"), 2, "or --replication-factor N",
    ),
    "given-partitions-for-a-group": (
        ("spugroup", "rack-a", "--partitions", "3"), 2, "give --replicas N",
    ),
    "given-both": (
        ("topic", "orders", "--partitions", "3", "--replicas", "2"), 2, "give either",
    ),
    "given-another-kind": (("spu", "spu-0", "--replicas", "3"), 2, "topics and streams have"),
    "given-segments": (
        ("stream", "clicks", "--partitions", "3"), 2, "runnel stream scale NAME --segments N",
    ),
    "given-a-negative-number": (("sg", "rack-a", "--replicas", "-1"), 2, "--replicas"),
    "given-no-partitions": (("topic", "orders", "--partitions", "0"), 2, "--partitions"),
    "given-no-such-object": (("topic", "ordres", "--partitions", "3"), 3, "'orders'?"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "said"), WRONG.values(), ids=WRONG)
def test_refused(objects: CommandLine, words: tuple[str, ...], code: int, said: str) -> None:
    done = objects("scale", *words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
