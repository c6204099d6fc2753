"""What users are warned of: settings without effect, and SPUs that a placement waits for."""

from __future__ import annotations

from typing import Any

import pytest

from sc.api.admission_warnings import MAX_WARNINGS, warning_header, warnings_of
from sc.store.local_store import LocalStore
from schemas.objects.metadata import Metadata
from schemas.objects.pipeline import Pipeline, PipelineSpec
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic, TopicSpec
from tests.unit.sc.builders import partition_of, spu_of, topic_of
from tests.unit.sc.streams.world import stream_of


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


@pytest.mark.parametrize(
    ("before", "factor", "expected"),
    [
        pytest.param(None, 2, (), id="given-as-many-spus-then-none"),
        pytest.param(
            None,
            3,
            ("spec.replicationFactor: 3, but 2 SPUs are registered; the stream waits for more",),
            id="given-a-new-one-then-it-waits",
        ),
        pytest.param(
            1,
            3,
            (
                (
                    "spec.replicationFactor: 3, but 2 SPUs are registered; its segments keep the"
                    " replicas they have, and the stream cannot scale, until there are more; add"
                    " SPUs, or set it to 2 or less"
                ),
            ),
            id="given-more-than-before-then-what-does-not-go-on",
        ),
        pytest.param(3, 3, (), id="given-no-change-then-none"),
    ],
)
def test_more_replicas_of_a_stream_than_spus(
    before: int | None, factor: int, expected: tuple[str, ...]
) -> None:
    store = LocalStore()
    for spu_id in (1, 2):
        store.put(spu_of(spu_id))
    former = None if before is None else stream_of(replication_factor=before)
    assert warnings_of(stream_of(replication_factor=factor), store, former) == expected


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


@pytest.mark.parametrize(
    ("source", "sink", "fields"),
    [
        pytest.param({"topic": "a"}, {"topic": "b"}, [], id="given-topics-that-exist-then-none"),
        pytest.param({"topic": "x"}, {"topic": "b"}, ["spec.source.topic"], id="given-no-source"),
        pytest.param(
            {"topics": ["a", "x"]}, {"path": "/f"}, ["spec.source.topics"], id="given-one-of-two"
        ),
        pytest.param({"topic": "a"}, {"topic": "x"}, ["spec.sink.topic"], id="given-no-sink"),
        pytest.param({"topic": "a"}, {"topic": "a"}, ["spec.sink.topic"], id="given-a-circle"),
        pytest.param({"pattern": "(a+)+$"}, {"topic": "b"}, [], id="given-a-pattern-then-none"),
    ],
)
def test_topics_that_a_pipeline_lacks(
    source: dict[str, Any], sink: dict[str, Any], fields: list[str]
) -> None:
    store = LocalStore()
    for name in ("a", "b"):
        store.put(topic_of(name))
    spec = {"source": source, "query": "q", "sink": sink, "checkpoint": "/c"}
    pipeline = Pipeline(metadata=Metadata(name="p"), spec=PipelineSpec.model_validate(spec))
    assert [text.partition(": ")[0] for text in warnings_of(pipeline, store)] == fields


@pytest.mark.parametrize(
    ("path", "archived", "said"),
    [
        pytest.param("/mnt/a", 7, None, id="given-the-same-path-then-nothing"),
        pytest.param(None, 0, None, id="given-nothing-archived-then-nothing"),
        pytest.param(
            None,
            7,
            "spec.archive: removed, and 1 partition had records in /mnt/a",
            id="given-removed",
        ),
        pytest.param(
            "/mnt/b", 7, "spec.archive.path: was /mnt/a, and 1 partition", id="given-another-path"
        ),
    ],
)
def test_archived_records_that_readers_no_longer_find(
    path: str | None, archived: int, said: str | None
) -> None:
    def with_archive(where: str | None) -> Topic:
        spec = {} if where is None else {"archive": {"path": where}}
        parsed = TopicSpec.model_validate(spec, by_alias=True)
        return topic_of("t").model_copy(update={"spec": parsed})

    before = with_archive("/mnt/a")
    partition = partition_of(before)
    spec = partition.spec.model_copy(update={"archived_before": archived})
    store = LocalStore()
    store.put(spu_of(1))
    store.put(partition.model_copy(update={"spec": spec}))
    found = warnings_of(with_archive(path), store, before)
    assert [text[: len(said or "")] for text in found] == ([] if said is None else [said])
    assert warnings_of(with_archive(path), store) == ()
