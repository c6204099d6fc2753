"""Session messages: every one survives the wire; what is no message is refused."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.control.messages import (
    Assignment,
    Envelope,
    Heartbeat,
    LrsRequest,
    Message,
    Reply,
    SpuRequest,
    Stamp,
    Welcome,
    decode_envelope,
    misread,
)
from tests.laws import examples
from tests.unit.schemas.strategies import model, texts

BODIES: tuple[Any, ...] = get_args(get_args(Message)[0])


@pytest.mark.parametrize("cls", BODIES, ids=lambda cls: cls.__name__)
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_law_envelopes_round_trip(cls: Any, data: st.DataObject) -> None:
    envelope = Envelope(
        id=data.draw(st.none() | st.integers(0, 2**31)),
        reply_to=data.draw(st.none() | st.integers(0, 2**31)),
        cause=data.draw(texts),
        body=data.draw(model(cls)),
    )
    text = envelope.encode()
    assert decode_envelope(text) == envelope
    assert decode_envelope(text.encode()) == envelope
    assert "\n" not in text


def test_every_body_says_its_type_and_no_two_the_same() -> None:
    types = [cls.model_fields["type"].default for cls in BODIES]
    assert len(types) == len(set(types)) == 18


def test_messages_are_camel_case_without_nulls() -> None:
    data = json.loads(Envelope(reply_to=3, cause="api-1", body=Reply()).encode())
    assert data == {"replyTo": 3, "cause": "api-1", "body": {"type": "reply"}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "Invalid JSON", id="given-nothing"),
        pytest.param("[]", "should be an object", id="given-a-list"),
        pytest.param('{"cause": "a"}', "body", id="given-no-body"),
        pytest.param('{"body": {"type": "heartbeat"}}', "cause", id="given-no-cause"),
        pytest.param('{"cause": "a", "body": {}}', "discriminator", id="given-no-type"),
        pytest.param('{"cause": "a", "body": {"type": "x"}}', "'x'", id="given-unknown-type"),
        pytest.param(
            '{"cause": "a", "body": {"type": "heartbeat", "at": 1}}', "at", id="given-more-fields"
        ),
        pytest.param(b"\xff", "invalid", id="given-bytes-that-are-no-text"),
    ],
)
def test_what_is_no_message(text: str | bytes, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        decode_envelope(text)


@given(st.binary(max_size=40))
def test_law_any_bytes_are_refused_with_a_validation_error(data: bytes) -> None:
    with pytest.raises(ValidationError):
        decode_envelope(data)


def test_the_shape_of_one_message_is_pinned() -> None:
    welcome = {
        "type": "welcome",
        "version": 1,
        "cluster": "main",
        "clusterUid": "c",
        "generation": 4,
        "heartbeatMs": 250,
        "misses": 3,
        "stamp": {"revision": 9, "office": "o", "incarnation": 2},
    }
    text = json.dumps({"id": 1, "cause": "spu3-a", "body": welcome})
    envelope = decode_envelope(text)
    assert isinstance(envelope.body, Welcome)
    assert (envelope.body.cluster_uid, envelope.body.stamp.revision) == ("c", 9)
    assert json.loads(envelope.encode()) == json.loads(text)


def test_the_shape_of_an_ask_is_pinned() -> None:
    ask = {
        "type": "ask",
        "lrs": [
            {
                "uid": "u",
                "term": 65_537,
                "revision": 7,
                "lrs": [{"spuId": 1, "storageId": "a"}],
                "reason": "SPU 2 leaves",
            }
        ],
        "elections": [{"uid": "v", "term": 65_538, "reason": "too few are live"}],
    }
    text = json.dumps({"id": 2, "cause": "spu1-a", "body": ask})
    envelope = decode_envelope(text)
    assert isinstance(envelope.body, SpuRequest)
    (change,), (election,) = envelope.body.lrs, envelope.body.elections
    assert (change.uid, change.revision, change.lrs[0].storage_id) == ("u", 7, "a")
    assert (election.uid, election.term) == ("v", 65_538)
    assert json.loads(envelope.encode()) == json.loads(text)


def test_a_stamp_without_an_incarnation_is_of_the_first() -> None:
    assert Stamp.model_validate({"revision": 9, "office": "o"}).incarnation == 0


@pytest.mark.parametrize("field", ["uid", "term", "revision", "lrs", "reason"])
def test_a_request_for_live_replicas_says_what_it_is_based_on(field: str) -> None:
    whole = {"uid": "u", "term": 1, "revision": 7, "lrs": [], "reason": "r"}
    del whole[field]
    with pytest.raises(ValidationError, match=field):
        LrsRequest.model_validate(whole)


def test_messages_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Heartbeat().type = "heartbeat"  # type: ignore[misc]


def test_assignments_need_a_revision() -> None:
    assert Assignment.model_fields["revision"].is_required()


def assignments_of(*logs: dict[str, Any]) -> list[Assignment]:
    found = [
        {"uid": f"u{n}", "name": "t-0", "topic": "t", "index": n, "replicas": [1], "log": log,
         "revision": 1}
        for n, log in enumerate(logs)
    ]  # fmt: skip
    body = {"type": "assign", "assignments": found, "stamp": {"revision": 1, "office": "o"}}
    parsed = decode_envelope(json.dumps({"cause": "c", "body": body})).body
    return list(parsed.assignments)  # type: ignore[union-attr]


def test_given_equal_log_settings_then_they_are_one_object() -> None:
    log = {"maxRecordSize": 4096, "segment": {"size": 1 << 20}}
    first, again, other = assignments_of(log, dict(log), {**log, "maxRecordSize": 8192})
    assert first.log is again.log
    assert (first.log.max_record_size, other.log.max_record_size) == (4096, 8192)


def test_given_log_settings_that_cannot_be_then_they_are_refused_every_time() -> None:
    for _ in range(2):
        with pytest.raises(ValidationError):
            assignments_of({"minInSyncReplicas": 0})


def test_given_a_message_that_is_all_wrong_then_few_words() -> None:
    body = '{"cause": "x", "body": {"type": "report", "replicas": [%s]}}'
    with pytest.raises(ValidationError) as one:
        decode_envelope(body % '{"uid": 1, "%s": 2}' % ("x" * 1_000))
    assert misread(one.value).startswith("body.report.replicas.0.")
    assert len(misread(one.value)) <= 201
    with pytest.raises(ValidationError) as many:
        decode_envelope(body % ", ".join(["{}"] * 2_000))
    assert misread(many.value) == "4000 things are wrong"
