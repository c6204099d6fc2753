"""Manifests: every way to get one wrong, each with file, line, field and what to do."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import yaml_lines
from schemas.errors import ManifestError
from schemas.manifest import dump_yaml, load_paths, load_text
from schemas.topic import Topic

HEAD = "apiVersion: runnel/v1\nkind: Topic\nmetadata:\n  name: orders\n"
TOPIC = HEAD + "spec:\n  partitions: 3\n"
SPU = "apiVersion: runnel/v1\nkind: Spu\nmetadata:\n  name: spu-1\nspec:\n  spuId: 1\n"


def topic(name: str) -> str:
    return TOPIC.replace("orders", name)


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        load_text(text, "f.yaml")
    return raised.value.message.split("\n")


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
            " Partition, Scope, Stream, Pipeline",
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
            " Stream, Pipeline",
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
            " ignoreRackAssignment, assignment, minInSyncReplicas, retention, segment,"
            " compression, durability, maxRecordSize, schema, keyColumn, timestampColumn",
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
            "f.yaml:9: spec.publicEndpoint.ingress[0]: give one of hostname and ip",
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
            "f.yaml:6: spec.partitions: stands twice, in lines 6 and 7",
            id="given-a-field-twice",
        ),
        pytest.param(
            TOPIC.replace("name: orders", "name: orders\n  labels: {1: a, true: b}"),
            "f.yaml:5: metadata.labels.True: stands twice, in lines 5 and 5",
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
            "f.yaml:1: nothing but space and comments; a manifest needs apiVersion, kind, metadata",
            id="given-nothing",
        ),
        pytest.param(
            "# a topic\n---\n# another\n",
            "f.yaml:1: nothing but space and comments; a manifest needs apiVersion, kind, metadata",
            id="given-only-comments",
        ),
    ],
)
def test_one_problem(text: str, expected: str) -> None:
    found = problems(text)
    assert expected in found
    if "apiVersion" not in expected:
        assert found == [expected] or "True" in expected


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("a:\n\t- b\n", 2, r"found character '\t'", id="given-tabs"),
        pytest.param("a: 1\nb: [1, 2\n", 3, "expected ',' or ']'", id="given-an-open-list"),
        pytest.param("a: 1\nb: {c: 1\n", 3, "expected ',' or '}'", id="given-an-open-mapping"),
        pytest.param("a: 'b\n", 2, "found unexpected end of stream", id="given-open-quotes"),
        pytest.param("a: b\n  c: d\n", 2, "mapping values are not allowed", id="given-indent"),
        pytest.param("a: 1\nb\n", 3, "could not find expected ':'", id="given-no-colon"),
        pytest.param("a: *b\n", 1, "found undefined alias 'b'", id="given-an-unknown-alias"),
        pytest.param("a: &a [*a]\n", 1, "an alias within its own anchor", id="given-a-loop"),
        pytest.param("[" * 5000, 1, "nested too deep", id="given-a-tower"),
        pytest.param("a: 1\nb: \0\n", 2, "character U+0000 is not allowed", id="given-nul"),
        pytest.param("a: 1\nb: \ud800\n", 2, "character U+D800 is not", id="given-a-surrogate"),
        pytest.param('a:\n  "\\ud83d"\n', 2, "half of an escaped", id="given-half-a-character"),
        pytest.param("a: 1\nb: !!int x\n", 2, "'x' does not fit", id="given-a-tag-of-another-type"),
        pytest.param("a: 1\nb: 0x_\n", 2, "'0x_' does not fit", id="given-hex-without-digits"),
        pytest.param("a: " + "9" * 5000, 1, "does not fit", id="given-endless-digits"),
        pytest.param("a: !!python/name:os.x ''\n", 1, "could not det", id="given-a-python-tag"),
        pytest.param("a: =\n", 1, "could not determine", id="given-the-value-tag"),
        pytest.param("%YAML 9.0\n---\na: 1\n", 1, "found incompatible", id="given-a-new-yaml"),
    ],
)
def test_what_is_not_yaml(text: str, line: int, says: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"f.yaml:{line}: ")
    assert says in found


def test_given_aliases_that_multiply_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_lines, "MAX_NODES", 1_000)
    levels = ["a0: &a0 [x, x]"]
    levels += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    (found,) = problems("\n".join(levels))
    assert "more than 1000 fields" in found


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


@pytest.mark.parametrize("word", ["no", "on", "yes", "off", "y", "2024-01-01", "1e3", "null_"])
def test_given_words_that_older_yaml_converts_then_they_stay_text(word: str) -> None:
    (loaded,) = load_text(topic(word))
    assert loaded.object.name == word


def test_given_twice_in_one_text_then_both_places_are_named() -> None:
    assert problems(f"{TOPIC}---\n{TOPIC}") == [
        "f.yaml:8: Topic orders stands twice; the first is at f.yaml:1"
    ]


def test_given_one_name_in_two_kinds_then_fine() -> None:
    assert len(load_text(f"{TOPIC}---\n{SPU.replace('spu-1', 'orders')}")) == 2


@settings(max_examples=150)
@given(
    st.text(
        st.sampled_from("abk:-[]{}\n \t'\"#&*!|>%@`,?=~0x_.\0\ud800\x85\ufeff1eE+\\"), max_size=30
    )
)
def test_law_any_text_is_objects_or_a_manifest_error(text: str) -> None:
    with pytest.raises(ManifestError, match=r"^f\.yaml:\d+: "):
        load_text(text, "f.yaml")


# Files, directories, standard input


class Undecodable(io.StringIO):
    """Standard input that is not text."""

    def read(self, size: int | None = -1) -> str:
        return b"\xff".decode()


def nothing() -> io.StringIO:
    return io.StringIO("")


def test_files_directories_and_stdin(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(topic("b"))
    (tmp_path / "a.yaml").write_text(topic("a"))
    (tmp_path / "c.json").write_text('{\n\t"apiVersion": "runnel/v1",\n\t"kind": "Topic",\n'
                                     '\t"metadata": {"name": "c"}\n}\n')  # fmt: skip
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / "below.yaml").mkdir()
    (tmp_path / "below.yaml" / "d.yaml").write_text(topic("d"))
    single = tmp_path / "notes.txt.d"
    single.write_text(topic("e"))
    loaded = load_paths([str(tmp_path), "-", str(single)], io.StringIO(topic("f")))
    assert [(item.object.name, Path(item.source).name, item.line) for item in loaded] == [
        ("a", "a.yaml", 1),
        ("b", "b.yml", 1),
        ("c", "c.json", 1),
        ("f", "<stdin>", 1),
        ("e", "notes.txt.d", 1),
    ]


def test_given_json_with_escaped_characters_then_they_are_whole(tmp_path: Path) -> None:
    labels = {"animal": "🦦", "umlaut": "ä", "tab": "\t"}
    manifest = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "t"}}
    manifest["metadata"] = {"name": "t", "labels": labels}
    (tmp_path / "t.json").write_text(json.dumps(manifest))
    (loaded,) = load_paths([str(tmp_path / "t.json")], nothing())
    assert loaded.object.metadata.labels == labels


def path_problems(*paths: Path | str, stdin: io.StringIO | None = None) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        load_paths([str(path) for path in paths], stdin or nothing())
    return raised.value.message.split("\n")


def test_given_a_missing_file_then_its_name(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"
    assert path_problems(path) == [f"{path}: cannot be read: No such file or directory"]


def test_given_bytes_that_are_no_text_then_its_name(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"kind: \xff\xfe")
    assert path_problems(path) == [f"{path}: not UTF-8 text"]


def test_given_stdin_that_is_no_text_then_said() -> None:
    assert path_problems("-", stdin=Undecodable()) == ["<stdin>: not UTF-8 text"]


def test_given_an_empty_stdin_then_said() -> None:
    (found,) = path_problems("-")
    assert found.startswith("<stdin>:1: nothing but space and comments")


def test_given_a_directory_without_manifests_then_which_files_count(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TOPIC)
    assert path_problems(tmp_path) == [f"{tmp_path}: no files that end with .yaml, .yml, .json"]


def test_given_no_paths_then_said() -> None:
    assert path_problems() == ["no manifests: name a file, a directory, or - for standard input"]


def test_given_an_object_twice_across_files_then_both_places(tmp_path: Path) -> None:
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(SPU + "---\n" + TOPIC)
    other.write_text("# again\n" + TOPIC)
    assert path_problems(tmp_path) == [
        f"{other}:2: Topic orders stands twice; the first is at {one}:8"
    ]


def test_given_problems_in_several_places_then_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    (tmp_path / "c.yaml").write_text(TOPIC.replace("3", "0"))
    (tmp_path / "d.yaml").write_text(TOPIC)
    assert [Path(line.split(":")[0]).name for line in path_problems(tmp_path, "absent")] == [
        "a.yaml",
        "b.yaml",
        "c.yaml",
        "absent",
    ]


@pytest.mark.parametrize("line_break", ["\n", "\r", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_given_line_breaks_of_any_sort_then_they_are_kept(line_break: str) -> None:
    label = f"a{line_break}b{line_break}"
    (loaded,) = load_text(TOPIC)
    changed = loaded.object.with_metadata(labels={"l": label})
    (again,) = load_text(dump_yaml([changed]))
    assert isinstance(again.object, Topic)
    assert again.object.metadata.labels == {"l": label}
