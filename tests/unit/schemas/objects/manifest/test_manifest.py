"""Manifests: every way to get one wrong, each with file, line, field and what to do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ManifestError
from schemas.objects.manifest.manifest import dump_yaml, load_text
from schemas.objects.topic import Topic
from tests.laws import examples
from tests.unit.schemas.manifests import HEAD, SPU, TOPIC, problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            TOPIC.replace("Topic", "Topik"),
            "f.yaml:2: kind: unknown kind 'Topik'; did you mean Topic?",
            id="given-a-typo-in-kind-then-the-nearest",
        ),
        pytest.param(
            TOPIC.replace("Topic", "Deployment"),
            "f.yaml:2: kind: unknown kind 'Deployment'; known kinds: Spu, SpuGroup, Topic,"
            " Partition, Scope, Stream, Pipeline, Rebalance",
            id="given-a-kind-near-to-none-then-all-kinds",
        ),
        pytest.param(
            TOPIC.replace("kind: Topic", "kind: [Topic]"),
            "f.yaml:2: kind: unknown kind ['Topic']; did you mean Topic?",
            id="given-a-list-as-kind",
        ),
        pytest.param(
            TOPIC.replace("kind: Topic\n", ""),
            "f.yaml:1: kind is missing; known kinds: Spu, SpuGroup, Topic, Partition, Scope,"
            " Stream, Pipeline, Rebalance",
            id="given-no-kind",
        ),
        pytest.param(
            TOPIC.replace("runnel/v1", "runnel/v2"),
            "f.yaml:1: apiVersion: unknown version 'runnel/v2'; this release knows runnel/v1",
            id="given-another-version",
        ),
        pytest.param(
            TOPIC.replace("apiVersion: runnel/v1\n", ""),
            "f.yaml:1: apiVersion is missing; write apiVersion: runnel/v1",
            id="given-no-version",
        ),
        pytest.param(
            TOPIC.replace("metadata:\n  name: orders\n", ""),
            "f.yaml:1: metadata: is required",
            id="given-no-metadata",
        ),
        pytest.param(
            TOPIC.replace("  name: orders", "  labels: {}"),
            "f.yaml:3: metadata.name: is required",
            id="given-no-name",
        ),
        pytest.param(
            TOPIC.replace("orders", "ord ers"),
            "f.yaml:4: metadata.name: 'ord ers' is not a valid name; use 1 to 249 of the"
            " characters A-Z a-z 0-9 . _ -",
            id="given-a-bad-name",
        ),
        pytest.param(
            TOPIC.replace("orders", '".."'),
            "f.yaml:4: metadata.name: '..' is not a valid name; . and .. are reserved",
            id="given-a-reserved-name",
        ),
        pytest.param(
            TOPIC.replace("orders", "123"),
            'f.yaml:4: metadata.name: a name is text; write it in quotes: "123"',
            id="given-a-number-as-name",
        ),
        pytest.param(
            HEAD + "spec:\n  partition: 3\n",
            "f.yaml:6: spec.partition: unknown field; did you mean partitions?",
            id="given-a-typo-in-a-field-then-the-nearest",
        ),
        pytest.param(
            HEAD + "spec:\n  replication_factor: 3\n",
            "f.yaml:6: spec.replication_factor: unknown field; did you mean replicationFactor?",
            id="given-snake-case-then-the-right-spelling",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: 3\n  retention:\n    tiem: 7d\n",
            "f.yaml:8: spec.retention.tiem: unknown field; did you mean time?",
            id="given-a-typo-deep-down",
        ),
        pytest.param(
            HEAD + "spec:\n  xyzzy: 3\n",
            "f.yaml:6: spec.xyzzy: unknown field; known fields: partitions, replicationFactor,"
            " ignoreRackAssignment, assignment, minInSyncReplicas, retention, segment, archive,"
            " compression, durability, maxRecordSize, schema, keyColumn, timestampColumn,"
            " sealed",
            id="given-a-field-near-to-none-then-all-fields",
        ),
        pytest.param(
            TOPIC + "specs: {}\n",
            "f.yaml:7: specs: unknown field; did you mean spec?",
            id="given-an-unknown-field-at-the-top",
        ),
        pytest.param(
            HEAD + "spec:\n  1: 2\n",
            "f.yaml:5: spec[1]: a field's name is text; put it in quotes",
            id="given-a-number-as-field",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: 0\n",
            "f.yaml:6: spec.partitions: must be at least 1, it is 0",
            id="given-no-partitions",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: 100001\n",
            "f.yaml:6: spec.partitions: must be at most 100000, it is 100001",
            id="given-too-many-partitions",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: many\n",
            "f.yaml:6: spec.partitions: must be a whole number, not the text 'many'",
            id="given-text-for-a-number",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: 1.5\n",
            "f.yaml:6: spec.partitions: must be a whole number, not the number 1.5",
            id="given-a-fraction-for-a-number",
        ),
        pytest.param(
            HEAD + "spec:\n  ignoreRackAssignment: maybe\n",
            "f.yaml:6: spec.ignoreRackAssignment: must be true or false, not 'maybe'",
            id="given-text-for-a-boolean",
        ),
        pytest.param(
            TOPIC.replace("name: orders", "name: orders\n  labels: {tier: 1}"),
            "f.yaml:5: metadata.labels.tier: must be text, not the number 1; put it in quotes",
            id="given-a-number-for-text",
        ),
        pytest.param(
            TOPIC.replace("name: orders", "name: orders\n  labels: {1: a}"),
            "f.yaml:5: metadata.labels[1]: must be text, not the number 1; put it in quotes",
            id="given-a-number-as-label",
        ),
        pytest.param(
            HEAD + "spec:\n  retention: 7d\n",
            "f.yaml:6: spec.retention: must be a mapping of fields, not the text",
            id="given-text-for-a-mapping",
        ),
        pytest.param(
            HEAD + "spec:\n  assignment: 3\n",
            "f.yaml:6: spec.assignment: must be a list, not the number",
            id="given-a-number-for-a-list",
        ),
        pytest.param(
            HEAD + "spec:\n  compression: gzip\n",
            "f.yaml:6: spec.compression: 'gzip' is not one of 'none', 'lz4' or 'zstd'",
            id="given-an-unknown-choice",
        ),
        pytest.param(
            HEAD + "spec:\n  retention: {time: 7y}\n",
            "f.yaml:6: spec.retention.time: '7y' is not a duration; write for example 7d, 1h30m,"
            " 15s, 250ms",
            id="given-a-bad-duration",
        ),
        pytest.param(
            HEAD + "spec:\n  retention: {time: .inf}\n",
            "f.yaml:6: spec.retention.time: inf is not a duration; write for example 7d, 1h30m,"
            " 15s, 250ms",
            id="given-an-infinite-duration",
        ),
        pytest.param(
            HEAD + "spec:\n  segment: {size: 12}\n",
            "f.yaml:6: spec.segment.size: must be at least 1024, it is 12",
            id="given-a-small-size",
        ),
        pytest.param(
            HEAD + "spec:\n  assignment:\n    - {id: 0, replicas: []}\n",
            "f.yaml:7: spec.assignment[0].replicas: needs at least 1 entry",
            id="given-a-row-without-replicas",
        ),
        pytest.param(
            HEAD + "spec:\n  assignment:\n    - {id: 0, replicas: [1]}\n    - {replicas: [1]}\n",
            "f.yaml:8: spec.assignment[1].id: is required",
            id="given-a-row-without-id",
        ),
        pytest.param(
            HEAD + "spec:\n  partitions: 1\n  assignment:\n    - 0: [1]\n",
            "f.yaml:5: spec: give partitions and replicationFactor, or assignment, not both",
            id="given-computed-and-manual-placement",
        ),
        pytest.param(
            HEAD + "spec:\n  replicationFactor: 2\n  minInSyncReplicas: 3\n",
            "f.yaml:5: spec: minInSyncReplicas 3 is more than the 2 replicas of a partition",
            id="given-a-minimum-above-the-replicas",
        ),
        pytest.param(
            HEAD + "spec:\n",
            "f.yaml:5: spec: must be a mapping of fields, not nothing",
            id="given-a-null-spec",
        ),
        pytest.param(
            HEAD + "spec: [partitions]\n",
            "f.yaml:5: spec: must be a mapping of fields, not a list",
            id="given-a-list-as-spec",
        ),
        pytest.param(
            SPU.partition("spec:")[0],
            "f.yaml:1: spec: is required",
            id="given-a-kind-that-needs-a-spec-without-it",
        ),
        pytest.param(
            SPU.replace("  spuId: 1", "  rack: a"),
            "f.yaml:5: spec.spuId: is required",
            id="given-no-spu-id",
        ),
        pytest.param(
            SPU + "  publicEndpoint: {port: 70000}\n",
            "f.yaml:7: spec.publicEndpoint.port: must be at most 65535, it is 70000",
            id="given-a-port-out-of-range",
        ),
        pytest.param(
            SPU + "  publicEndpoint:\n    ingress:\n    - {hostname: a, ip: b}\n",
            "f.yaml:9: spec.publicEndpoint.ingress[0]: give either hostname or ip",
            id="given-two-addresses-in-one",
        ),
        pytest.param(
            SPU + "  publicEndpoint: {ingress: []}\n",
            "f.yaml:7: spec.publicEndpoint: ingress needs at least one hostname or ip",
            id="given-no-address",
        ),
        pytest.param(
            SPU + "  publicEndpoint:\n    ingress:\n    - hostnam: a\n",
            "f.yaml:9: spec.publicEndpoint.ingress[0].hostnam: unknown field; did you mean"
            " hostname?",
            id="given-a-typo-inside-a-list",
        ),
        pytest.param(
            TOPIC + "  partitions: 4\n",
            "f.yaml:6: spec.partitions: appears twice, in lines 6 and 7",
            id="given-a-field-twice",
        ),
        pytest.param(
            TOPIC.replace("name: orders", "name: orders\n  labels: {1: a, true: b}"),
            "f.yaml:5: metadata.labels.True: appears twice, in lines 5 and 5",
            id="given-keys-that-only-look-different",
        ),
        pytest.param(
            "- apiVersion: runnel/v1\n",
            "f.yaml:1: a manifest is a mapping, this is a list",
            id="given-a-list",
        ),
        pytest.param(
            "\norders\n", "f.yaml:2: a manifest is a mapping, this is the text", id="given-text"
        ),
        pytest.param(
            "",
            "f.yaml:1: only blanks and comments; a manifest needs apiVersion, kind, metadata",
            id="given-nothing",
        ),
        pytest.param(
            "# a topic\n---\n# another\n",
            "f.yaml:1: only blanks and comments; a manifest needs apiVersion, kind, metadata",
            id="given-only-comments",
        ),
    ],
)
def test_one_problem(text: str, expected: str) -> None:
    found = problems(text)
    assert expected in found
    if "apiVersion" not in expected:
        assert found == [expected] or "True" in expected


def test_given_names_and_values_that_no_terminal_should_see_then_short_and_on_one_line() -> None:
    long = "x" * 5_000
    text = HEAD + f'spec:\n  "a\\n\\e[2J": 1\n  {long[:900]}: 1\n  partitions: {long}\n'
    found = problems(text)
    assert [line.partition(": ")[0] for line in found] == ["f.yaml:6", "f.yaml:7", "f.yaml:8"]
    assert "spec.'a\\n\\x1b[2J': unknown field" in found[0]
    assert all(len(line) < 400 for line in found)


def test_given_several_problems_then_all_are_told_by_line() -> None:
    text = TOPIC.replace("orders", "a b").replace("3", "0") + "---\n" + SPU + "  racks: a\n"
    assert [line.partition(": ")[0] for line in problems(text)] == [
        "f.yaml:4",
        "f.yaml:6",
        "f.yaml:14",
    ]


def test_given_one_bad_document_then_nothing_is_returned() -> None:
    assert len(problems(TOPIC + "---\n" + SPU.replace("spuId", "spuIdd"))) == 2


def test_documents_and_where_they_begin() -> None:
    loaded = load_text(f"# first\n{TOPIC}---\n\n---\n{SPU}", "f.yaml")
    assert [(item.object.kind, item.object.name, item.line) for item in loaded] == [
        ("Topic", "orders", 2),
        ("Spu", "spu-1", 11),
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("spec.partitions: fewer", "topic.yaml:9: ", id="given-a-field-then-its-line"),
        pytest.param(
            "spec.schema[1].type: cannot change", "topic.yaml:14: ", id="given-a-list-then-its-line"
        ),
        pytest.param(
            "spec.schema[1].nullable: new", "topic.yaml:13: ", id="given-a-default-then-its-item"
        ),
        pytest.param("spec.schema: cannot go", "topic.yaml:10: ", id="given-a-block-then-its-line"),
        pytest.param("spec.group: set by", "topic.yaml:8: ", id="given-no-such-field-then-around"),
        pytest.param("Topic t: conflict", "topic.yaml:4: ", id="given-no-field-then-the-document"),
        pytest.param("no colon at all", "topic.yaml:4: ", id="given-no-path-then-the-document"),
    ],
)
def test_an_error_of_the_sc_is_told_by_line(message: str, expected: str) -> None:
    text = """\
# The line of a document is that of its first field.

---
apiVersion: runnel/v1
kind: Topic
metadata:
  name: t
spec:
  partitions: 2
  schema:
  - name: a
    type: int64
  - name: b
    type: string
"""
    (item,) = load_text(text, "topic.yaml")
    assert item.located(message) == expected + message


def test_given_twice_in_one_text_then_both_places_are_named() -> None:
    assert problems(f"{TOPIC}---\n{TOPIC}") == [
        "f.yaml:8: Topic orders appears twice; the first is at f.yaml:1"
    ]


def test_given_one_name_in_two_kinds_then_fine() -> None:
    assert len(load_text(f"{TOPIC}---\n{SPU.replace('spu-1', 'orders')}")) == 2


@settings(max_examples=examples(30))
@given(
    st.text(
        st.sampled_from("abk:-[]{}\n \t'\"#&*!|>%@`,?=~0x_.\0\ud800\x85\ufeff1eE+\\"), max_size=30
    )
)
def test_law_any_text_is_objects_or_a_manifest_error(text: str) -> None:
    with pytest.raises(ManifestError, match=r"^f\.yaml:\d+: "):
        load_text(text, "f.yaml")


@pytest.mark.parametrize("line_break", ["\n", "\r", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_given_line_breaks_of_any_sort_then_they_are_kept(line_break: str) -> None:
    label = f"a{line_break}b{line_break}"
    (loaded,) = load_text(TOPIC)
    changed = loaded.object.with_metadata(labels={"l": label})
    (again,) = load_text(dump_yaml([changed]))
    assert isinstance(again.object, Topic)
    assert again.object.metadata.labels == {"l": label}
