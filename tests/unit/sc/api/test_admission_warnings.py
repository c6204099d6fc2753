"""What users are warned of: settings without effect, and SPUs that a placement waits for."""

from __future__ import annotations

from typing import Any

import pytest

from sc.api.admission_warnings import MAX_WARNINGS, warning_header, warnings_of
from sc.store.local_store import LocalStore
from schemas.objects.spu import Spu
from schemas.objects.topic import TopicSpec
from tests.unit.sc.builders import spu_of, topic_of


def warned(spec: dict[str, Any], *spu_ids: int) -> list[str]:
    """The fields that a topic's author is warned about."""
    return [text.partition(": ")[0] for text in texts(spec, *spu_ids)]


def texts(spec: dict[str, Any], *spu_ids: int) -> tuple[str, ...]:
    store = LocalStore()
    for spu_id in spu_ids:
        store.put(spu_of(spu_id))
    parsed = TopicSpec.model_validate(spec, by_alias=True)
    return warnings_of(topic_of("t").model_copy(update={"spec": parsed}), store)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param({}, [], id="given-defaults-then-none"),
        pytest.param({"retention": {"size": "100Mi"}}, ["spec.retention.size"], id="given-size"),
        pytest.param({"retention": {"size": "256Mi"}}, [], id="given-one-segment-then-none"),
        pytest.param({"retention": {"time": "23h"}}, ["spec.retention.time"], id="given-time"),
        pytest.param({"retention": {"time": "1d"}}, [], id="given-a-segment's-time-then-none"),
        pytest.param({"retention": {"time": None}}, [], id="given-for-ever-then-none"),
        pytest.param({"segment": {"size": "1048575"}}, ["spec.segment.size"], id="given-segment"),
        pytest.param({"segment": {"size": "1Mi"}}, [], id="given-one-record-then-none"),
        pytest.param(
            {"segment": {"size": "64Ki"}, "maxRecordSize": "64Ki", "retention": {"size": "64Ki"}},
            [],
            id="given-all-small-then-none",
        ),
        pytest.param(
            {"retention": {"size": 1, "time": 1}, "segment": {"size": "1Ki"}},
            ["spec.retention.size", "spec.retention.time", "spec.segment.size"],
            id="given-all-wrong-then-all-are-named",
        ),
    ],
)
def test_sizes_and_times(spec: dict[str, Any], fields: list[str]) -> None:
    assert warned(spec, 1) == fields


def test_both_settings_are_named_with_their_values() -> None:
    (text,) = texts({"retention": {"size": "100Mi"}}, 1)
    assert text.startswith(
        "spec.retention.size: 100Mi is less than a segment (spec.segment.size: 256Mi), and"
    )


def test_spus_that_a_placement_waits_for() -> None:
    assert texts({"replicationFactor": 3}, 1) == (
        "spec.replicationFactor: 3, but 1 SPU is registered; the topic waits for more",
    )
    assert texts({"replicationFactor": 2}, 1, 2) == ()
    rows = {"assignment": [{1: [1, 9]}, {0: [1, 2]}]}
    assert texts(rows, 1, 2) == (
        "spec.assignment[0].replicas: row 1: SPU 9 is not registered; the topic waits for it",
    )


def test_given_many_rows_then_the_warnings_are_bounded() -> None:
    rows = {"assignment": [{i: [i + 1]} for i in range(1000)]}
    assert len(texts(rows)) == MAX_WARNINGS


@pytest.mark.parametrize("private", ["localhost", "127.0.0.1"])
def test_given_an_spu_that_sends_others_to_their_own_machine_then_warned(private: str) -> None:
    spec: dict[str, Any] = {
        "spuId": 7,
        "publicEndpoint": {"ingress": [{"hostname": "edge-7.example"}]},
    }
    given = {"metadata": {"name": "edge-7"}, "spec": spec}
    assert warnings_of(Spu.model_validate(given), LocalStore()) == ()
    spec["privateEndpoint"] = {"host": private}
    (text,) = warnings_of(Spu.model_validate(given), LocalStore())
    assert text.startswith("spec.privateEndpoint.host: clients reach it at edge-7.example, but")


def test_a_header_holds_printable_ascii_only() -> None:
    assert warning_header('a "b" \\ c\r\nü') == '299 - "a \\"b\\" \\\\ c???"'
