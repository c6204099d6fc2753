"""Rules of every object: camelCase outside, frozen, nothing extra, and round trips."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import ValidationError

from schemas.control.messages import Assignment
from schemas.objects.kinds import KINDS, full_name
from schemas.objects.manifest.manifest import dump_yaml, load_text
from schemas.objects.manifest.validation import build_object
from schemas.objects.metadata import Metadata, Object
from schemas.objects.partition import PartitionStatus
from schemas.objects.spu import Encryption, Spu, SpuSpec, SpuType
from schemas.objects.topic import (
    Compression,
    LogSettings,
    Retention,
    Topic,
    TopicResolution,
    TopicSpec,
    partition_name,
)
from tests.laws import examples
from tests.unit.schemas.strategies import objects

many = settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(objects())
def test_law_get_yaml_piped_into_apply_gives_an_equal_object(obj: Object) -> None:
    (loaded,) = load_text(dump_yaml([obj]))
    assert loaded.object == obj


@many
@given(objects())
def test_law_json_reads_back_as_an_equal_object(obj: Object) -> None:
    assert build_object(json.loads(json.dumps(obj.to_json()))) == (obj, [])


@settings(parent=many, max_examples=examples(5))
@given(objects(), objects())
def test_law_several_objects_are_several_documents(one: Object, other: Object) -> None:
    one = one.with_metadata(name=full_name(type(one), "a"))
    other = other.with_metadata(name=full_name(type(other), "b"))
    loaded = load_text(dump_yaml([one, other]))
    assert [item.object for item in loaded] == [one, other]


def test_given_unlimited_retention_then_it_does_not_become_the_default() -> None:
    """What is left out is read as its default: no time limit would turn into seven days."""
    topic = Topic(metadata=Metadata(name="t"), spec=TopicSpec(retention=Retention(time=None)))
    (loaded,) = load_text(dump_yaml([topic]))
    assert isinstance(loaded.object, Topic)
    assert loaded.object.spec.retention.time is None

    log = LogSettings(retention=Retention(time=None))
    sent = Assignment(
        uid="u", name="t-0", topic="t", index=0, replicas=(1,), log=log, revision=1
    ).model_dump_json(exclude_none=True)
    assert Assignment.model_validate_json(sent).log == log


def test_fields_that_are_none_are_left_out() -> None:
    topic = Topic(metadata=Metadata(name="t"))
    assert "uid" not in topic.to_json()["metadata"]
    assert "partitions" not in topic.to_json()["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"spuId": 1, "spuType": "managed"}, id="given-camel-case"),
        pytest.param({"spu_id": 1, "spu_type": "managed"}, id="given-snake-case-in-python"),
    ],
)
def test_python_takes_both_spellings(spec: dict[str, Any]) -> None:
    assert SpuSpec.model_validate(spec) == SpuSpec(spu_id=1, spu_type=SpuType.MANAGED)


def test_json_is_camel_case_all_the_way_down() -> None:
    data = Spu(metadata=Metadata(name="s"), spec=SpuSpec(spu_id=1)).to_json()

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*(keys(item) for item in value.values()))
        if isinstance(value, list):
            return set().union(*(keys(item) for item in value))
        return set()

    found = keys(data)
    assert {"apiVersion", "spuId", "publicEndpoint", "observedGeneration"} <= found
    assert not [key for key in found if "_" in key]


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind_name())
def test_every_kind_is_frozen_and_says_what_it_is(cls: type[Object]) -> None:
    assert cls.PLURAL.islower()
    assert cls.kind_name() == cls.__name__
    assert cls.model_config["frozen"]
    assert cls.model_config["extra"] == "forbid"


def test_given_a_frozen_object_then_assignment_raises() -> None:
    topic = Topic(metadata=Metadata(name="t"))
    with pytest.raises(ValidationError, match="frozen"):
        topic.spec = TopicSpec()  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        topic.spec.partitions = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "member"),
    [
        pytest.param("Custom", SpuType.CUSTOM, id="given-capital"),
        pytest.param("MANAGED", SpuType.MANAGED, id="given-upper"),
        pytest.param("tls", Encryption.TLS, id="given-lower"),
        pytest.param("ZSTD", Compression.ZSTD, id="given-upper-codec"),
        pytest.param(
            "InsufficientResources", TopicResolution.INSUFFICIENT_RESOURCES, id="given-two-words"
        ),
    ],
)
def test_enums_ignore_case(text: str, member: Any) -> None:
    assert type(member)(text) is member


@pytest.mark.parametrize("value", ["customs", "", 3, None], ids=repr)
def test_enums_refuse_the_rest(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid SpuType"):
        SpuType(value)


@pytest.mark.parametrize(
    ("metadata", "revision", "generation", "deleting"),
    [
        pytest.param(Metadata(name="t"), 0, 0, False, id="given-never-stored"),
        pytest.param(
            Metadata(
                name="t", uid="u", resource_version="42", generation=3, deletion_timestamp="x"
            ),
            42,
            3,
            True,
            id="given-stored-and-deleting",
        ),
    ],
)
def test_what_the_server_set(
    metadata: Metadata, revision: int, generation: int, deleting: bool
) -> None:
    topic = Topic(metadata=metadata)
    assert (topic.revision, topic.generation, topic.deleting) == (revision, generation, deleting)


def test_given_no_uid_then_asking_for_it_says_why() -> None:
    topic = Topic(metadata=Metadata(name="t"))
    with pytest.raises(ValueError, match="Topic t was never stored: it has no uid"):
        _ = topic.uid
    assert topic.with_metadata(uid="u").uid == "u"


@pytest.mark.parametrize(
    ("spec", "partitions", "replicas", "minimum"),
    [
        pytest.param(TopicSpec(), 1, 1, 1, id="given-nothing-then-one-of-each"),
        pytest.param(TopicSpec(partitions=6, replication_factor=3), 6, 3, 2, id="given-three"),
        pytest.param(TopicSpec(replication_factor=2), 1, 2, 1, id="given-two-then-minimum-1"),
        pytest.param(TopicSpec(replication_factor=4), 1, 4, 3, id="given-four-then-majority"),
        pytest.param(TopicSpec(replication_factor=5), 1, 5, 3, id="given-five-then-majority"),
        pytest.param(
            TopicSpec(replication_factor=3, min_in_sync_replicas=3), 1, 3, 3, id="given-a-minimum"
        ),
        pytest.param(
            TopicSpec.model_validate({"assignment": [{0: [1, 2, 3]}, {1: [2, 3, 1]}]}),
            2,
            3,
            2,
            id="given-rows-then-their-counts",
        ),
    ],
)
def test_what_a_topic_asks_for(
    spec: TopicSpec, partitions: int, replicas: int, minimum: int
) -> None:
    assert (spec.partition_count, spec.replica_count) == (partitions, replicas)
    assert spec.log_settings.min_in_sync_replicas == minimum


def test_log_settings_carry_the_topics_settings() -> None:
    spec = TopicSpec.model_validate(
        {
            "durability": "replicated",
            "retention": {"size": "1Gi"},
            "segment": {"size": "1Mi"},
            "maxRecordSize": "2Mi",
        }
    )
    log = spec.log_settings
    assert (log.durability, log.retention, log.segment, log.max_record_size) == (
        spec.durability,
        spec.retention,
        spec.segment,
        2 << 20,
    )


def test_given_a_term_with_restarts_then_a_status_refuses_it() -> None:
    with pytest.raises(ValidationError, match="does not count restarts"):
        PartitionStatus(term=(1 << 16) + 1)


def test_partition_names() -> None:
    assert partition_name("orders", 11) == "orders-11"
