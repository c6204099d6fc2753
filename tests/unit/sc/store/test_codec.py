"""The stored form of objects: what is written is read back, and what is not one is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.store.codec import (
    Write,
    decode_object,
    decode_tombstone,
    encode_object,
    encode_tombstone,
    split_write,
)
from schemas.control.messages import Tombstone
from schemas.errors import InvalidRequestError
from schemas.ids import PartitionUid, StorageId
from schemas.objects.metadata import Object
from schemas.objects.topic import TopicResolution
from tests.unit.sc.builders import TERM_1, live, partition_of, spu_of, topic_of

OBJECTS: list[Object] = [
    spu_of(3, rack="a"),
    topic_of(partitions=3, factor=2),
    topic_of("m", TopicResolution.PROVISIONED, rows={0: (1, 2)}, replica_map=((1, 2),)),
    topic_of("d", deleting=True),
    partition_of("t", 2, (1, 2), leader=1, term=TERM_1, lrs=(live(1),), reason="why"),
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda o: f"given-{o.kind}-{o.name}-then-read-back")
def test_object_round_trip(obj: Object) -> None:
    value = encode_object(obj, "api-1")
    assert b"resourceVersion" not in value
    assert decode_object(obj.PLURAL, value, 42) == (
        obj.with_metadata(resource_version="42"),
        "api-1",
    )


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda o: f"given-{o.kind}-{o.name}")
def test_stored_form_is_the_manifest_with_what_stands_beside(obj: Object) -> None:
    stored = json.loads(encode_object(obj, "api-1", by="me"))
    manifest = obj.to_json()
    del manifest["metadata"]["resourceVersion"]
    assert stored == {**manifest, "cause": "api-1", "by": "me"}


def test_given_partitions_of_a_topic_then_they_share_settings_and_owner() -> None:
    first, second, other = (
        decode_object("partitions", encode_object(p, "x"), 7)[0]
        for p in (partition_of("t", 0), partition_of("t", 1), partition_of("u", 0))
    )
    assert first.spec.log is second.spec.log
    assert first.spec.owner is second.spec.owner
    assert first.spec.owner != other.spec.owner


@pytest.mark.parametrize("reason", ["why", None], ids=lambda r: f"given-reason-{r}")
def test_decoded_object_knows_the_fields_it_was_given(reason: str | None) -> None:
    value = encode_object(partition_of(reason=reason), "x")
    status = decode_object("partitions", value, 7)[0].status
    assert (
        status.model_fields_set
        == status.model_validate(json.loads(value)["status"]).model_fields_set
    )
    assert ("reason" in status.model_fields_set) is (reason is not None)


def test_given_copy_of_a_decoded_object_then_others_do_not_get_its_fields() -> None:
    value = encode_object(partition_of(), "x")
    first, second = (decode_object("partitions", value, 7)[0] for _ in range(2))
    copy = first.with_metadata(deletion_timestamp="2026-01-01T00:00:00Z")
    assert "deletion_timestamp" in copy.metadata.model_fields_set
    assert "deletion_timestamp" not in first.metadata.model_fields_set
    assert "deletion_timestamp" not in second.metadata.model_fields_set


@given(
    labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    cause=st.text(max_size=20),
    partitions=st.integers(1, 100_000),
)
def test_any_labels_and_cause_round_trip(
    labels: dict[str, str], cause: str, partitions: int
) -> None:
    topic = topic_of(partitions=partitions).with_metadata(labels=labels)
    read = decode_object("topics", encode_object(topic, cause), topic.revision)
    assert read == (topic, cause)


def test_given_no_cause_then_a_dash() -> None:
    data = json.loads(encode_object(topic_of(), "x"))
    del data["cause"]
    assert decode_object("topics", json.dumps(data).encode(), 1)[1] == "-"


@pytest.mark.parametrize(
    ("by", "at"),
    [
        pytest.param("alice@box", "2026-01-02T03:04:05.006Z", id="given-both-then-read-back"),
        pytest.param(None, None, id="given-neither-then-as-of-a-version-that-kept-neither"),
    ],
)
def test_who_and_when_stand_beside_the_object(by: str | None, at: str | None) -> None:
    topic = topic_of()
    value = encode_object(topic, "api-1", by=by, at=at)
    data, write = split_write(value)
    assert write == Write("api-1", by, at)
    assert data == {**topic.to_json(), "metadata": data["metadata"]}
    assert {"by", "at"} & json.loads(value).keys() == ({"by", "at"} if by else set())
    assert decode_object("topics", value, topic.revision) == (topic, "api-1")


def stored(**changes: object) -> bytes:
    data = json.loads(encode_object(topic_of(), "x"))
    return json.dumps(data | changes).encode()


@pytest.mark.parametrize(
    ("plural", "value", "message"),
    [
        pytest.param("topics", b"", "does not parse", id="given-nothing-then-refused"),
        pytest.param("topics", b"{", "does not parse", id="given-half-json-then-refused"),
        pytest.param("topics", b"\xff\xfe\x00", "does not parse", id="given-bytes-then-refused"),
        pytest.param("topics", b"[]", "does not parse", id="given-a-list-then-refused"),
        pytest.param("topics", b"7", "does not parse", id="given-a-number-then-refused"),
        pytest.param("topics", b"null", "does not parse", id="given-null-then-refused"),
        pytest.param("topics", b'"x"', "does not parse", id="given-text-then-refused"),
        pytest.param("topics", b"{}", "does not parse", id="given-no-fields-then-refused"),
        pytest.param(
            "topics", stored(spec={"x": 1}), "spec.x", id="given-unknown-field-then-refused"
        ),
        pytest.param(
            "topics",
            stored(metadata={"name": "t"}),
            "has no uid",
            id="given-object-no-server-wrote-then-refused",
        ),
        pytest.param(
            "spus",
            encode_object(topic_of(), "x"),
            "does not parse",
            id="given-other-kind-then-refused",
        ),
        pytest.param("things", b"{}", "'things'", id="given-unknown-kind-then-refused"),
    ],
)
def test_what_is_not_an_object(plural: str, value: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        decode_object(plural, value, 1)


@given(st.binary(max_size=40))
def test_random_bytes_are_refused_and_nothing_else(value: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        decode_object("topics", value, 1)
    with pytest.raises(InvalidRequestError):
        decode_tombstone(value)


@pytest.mark.parametrize("storage", [None, StorageId("s")])
def test_tombstone_round_trip(storage: StorageId | None) -> None:
    tombstone = Tombstone(uid=PartitionUid("u"), spu_id=3, storage_id=storage)
    assert decode_tombstone(encode_tombstone(tombstone)) == tombstone
