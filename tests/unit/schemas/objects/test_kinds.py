"""How users may spell kinds."""

from __future__ import annotations

import pytest

from schemas.errors import InvalidRequestError
from schemas.objects.kinds import BY_KIND, BY_PLURAL, KINDS, find_kind
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.topic import Topic


@pytest.mark.parametrize(
    ("word", "cls"),
    [
        pytest.param("topic", Topic, id="given-singular"),
        pytest.param("topics", Topic, id="given-plural"),
        pytest.param("Topic", Topic, id="given-the-kind"),
        pytest.param("TOPICS", Topic, id="given-upper"),
        pytest.param("t", Topic, id="given-short"),
        pytest.param("T", Topic, id="given-short-upper"),
        pytest.param("spu", Spu, id="given-a-kind-that-begins-another"),
        pytest.param("SpuGroup", SpuGroup, id="given-two-words"),
        pytest.param("sg", SpuGroup, id="given-short-of-two-words"),
        pytest.param("p", Partition, id="given-short-of-several-then-partition"),
    ],
)
def test_spellings(word: str, cls: type[Object]) -> None:
    assert find_kind(word) is cls


def test_no_spelling_means_two_kinds() -> None:
    spellings = [
        word for cls in KINDS for word in (cls.kind_name().lower(), cls.PLURAL, *cls.SHORT_NAMES)
    ]
    assert len(spellings) == len(set(spellings))
    assert {find_kind(word) for word in spellings} == set(KINDS)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        pytest.param(
            "topik",
            "unknown kind 'topik'; did you mean topic? Known kinds: spus, spugroups, topics,"
            " partitions, scopes, streams, pipelines, rebalances",
            id="given-a-typo-then-the-nearest",
        ),
        pytest.param(
            "Partitons",
            "unknown kind 'Partitons'; did you mean partitions? Known kinds: spus, spugroups,"
            " topics, partitions, scopes, streams, pipelines, rebalances",
            id="given-a-typo-in-a-plural",
        ),
        pytest.param(
            "zzz",
            "unknown kind 'zzz'; known kinds: spus, spugroups, topics, partitions, scopes,"
            " streams, pipelines, rebalances",
            id="given-nothing-near-then-all",
        ),
        pytest.param(
            "",
            "unknown kind ''; known kinds: spus, spugroups, topics, partitions, scopes, streams,"
            " pipelines, rebalances",
            id="given-no-word",
        ),
    ],
)
def test_what_is_said_about_others(word: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        find_kind(word)
    assert raised.value.message == message


def test_registries_hold_every_kind() -> None:
    assert set(BY_KIND.values()) == set(BY_PLURAL.values()) == set(KINDS)
    assert set(Object.__subclasses__()) == set(KINDS)
