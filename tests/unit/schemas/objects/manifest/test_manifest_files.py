"""Manifests in files, directories and standard input: what is read, what is wrong, and where."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from schemas.errors import ManifestError
from schemas.objects.manifest.manifest import load_paths
from tests.unit.schemas.manifests import SPU, TOPIC, topic


class Undecodable(io.StringIO):
    """Standard input that is not text."""

    def read(self, size: int | None = -1) -> str:
        return b"kind: Topic\n\xff".decode()


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


def test_given_recursive_then_also_the_directories_below(tmp_path: Path) -> None:
    (tmp_path / "z.yaml").write_text(topic("z"))
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "b.yaml").write_text(topic("b"))
    loaded = load_paths([str(tmp_path)], nothing(), recursive=True)
    assert [item.object.name for item in loaded] == ["b", "z"]


def test_given_a_list_as_get_prints_it_then_its_objects(tmp_path: Path) -> None:
    items = [
        {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": name}, "spec": {}}
        for name in ("a", "b")
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"items": items}, indent=2))
    loaded = load_paths([str(path)], nothing())
    assert [(item.object.name, item.line) for item in loaded] == [("a", 3), ("b", 11)]
    assert loaded[1].located("metadata.name: taken") == f"{path}:15: metadata.name: taken"
    items[1]["spec"] = {"partitons": 1}
    path.write_text(json.dumps({"items": items}, indent=2))
    (problem,) = path_problems(path)
    assert problem.startswith(f"{path}:18: spec.partitons: ")
    # An object that has a field of this name by mistake is no list.
    path.write_text(json.dumps({**items[0], "items": []}))
    assert path_problems(path)[0].startswith(f"{path}:1: items: ")
    path.write_text('{"items": []}')
    assert load_paths([str(path)], nothing()) == []


def path_problems(*paths: Path | str, stdin: io.StringIO | None = None) -> list[str]:
    with pytest.raises(ManifestError) as raised:
        load_paths([str(path) for path in paths], stdin or nothing())
    return raised.value.message.split("\n")


def test_given_a_missing_file_then_its_name(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"
    assert path_problems(path) == [f"{path}: cannot be read: No such file or directory"]


def test_given_bytes_that_are_no_text_then_its_name_and_line(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\nkind: \xff\xfe")
    assert path_problems(path) == [f"{path}:2: not UTF-8 text"]


def test_given_stdin_that_is_no_text_then_said() -> None:
    assert path_problems("-", stdin=Undecodable()) == ["<stdin>:2: not UTF-8 text"]


def test_given_an_empty_stdin_then_said() -> None:
    (found,) = path_problems("-")
    assert found.startswith("<stdin>:1: only blanks and comments")


def test_given_a_directory_without_manifests_then_which_files_count(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TOPIC)
    (problem,) = path_problems(tmp_path)
    assert problem.startswith(f"{tmp_path}: no files that end with .yaml, .yml, .json; -R also")


def test_given_no_paths_then_said() -> None:
    assert path_problems() == ["no manifests: name a file, a directory, or - for standard input"]


def test_given_an_object_twice_across_files_then_both_places(tmp_path: Path) -> None:
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(SPU + "---\n" + TOPIC)
    other.write_text("# again\n" + TOPIC)
    assert path_problems(tmp_path) == [
        f"{other}:2: Topic orders appears twice; the first is at {one}:8"
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
