"""``diff`` and ``edit``: what they show, what they change, and that no text is ever lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from runnel.cli.objects import edit
from tests.unit.runnel.cli.conftest import CommandLine


@pytest.fixture(autouse=True)
def orders(command: CommandLine) -> None:
    command.sc.add_topic("orders", 2)


def manifest(name: str, spec: str, metadata: str = "") -> str:
    return (
        f"apiVersion: runnel/v1\nkind: Topic\nmetadata: {{name: {name}{metadata}}}\nspec: {spec}\n"
    )


def kept(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("runnel-edit-*"))


class Editor:
    """An editor that replaces one text by another, call after call, and keeps what it was shown."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = tmp_path / "editor"
        self._directory.mkdir()
        script = self._directory / "editor.py"
        script.write_text(
            "import json, pathlib, sys\n"
            "here = pathlib.Path(__file__).parent\n"
            "file = pathlib.Path(sys.argv[1])\n"
            "number = len(list(here.glob('seen-*')))\n"
            "text = file.read_text()\n"
            "(here / f'seen-{number}').write_text(text)\n"
            "for old, new in json.loads((here / f'edit-{number}.json').read_text()):\n"
            "    assert not old or old in text, (old, text)\n"
            "    text = text.replace(old, new) if old else new\n"
            "file.write_text(text)\n"
        )
        monkeypatch.setenv("RUNNEL_EDITOR", f"{sys.executable} {script}")
        self._edits = 0

    def then(self, *edits: tuple[str, str]) -> Editor:
        """What the next call does: each text replaced; an empty one stands for the whole."""
        (self._directory / f"edit-{self._edits}.json").write_text(json.dumps(edits))
        self._edits += 1
        return self

    def seen(self, number: int) -> str:
        return (self._directory / f"seen-{number}").read_text()

    @property
    def calls(self) -> int:
        return len(list(self._directory.glob("seen-*")))


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    return Editor(tmp_path, monkeypatch)


def test_given_a_change_then_it_is_made_once_and_the_file_is_gone(
    command: CommandLine, editor: Editor, tmp_path: Path
) -> None:
    editor.then(("partitions: 2", "partitions: 3"))
    done = command("edit", "topic", "orders")
    assert (done.code, done.out) == (0, "topic/orders configured\n")
    assert "resourceVersion: '2'" in editor.seen(0)
    assert "status" not in editor.seen(0)
    assert command("get", "t", "orders", "-o", "json").out.count('"partitions": 3') == 1
    assert kept(tmp_path) == []


UNTOUCHED = {
    "given-no-change-then-unchanged": ([], "topic/orders unchanged\n"),
    "given-an-empty-file-then-cancelled": (
        [("", " \n")], "topic/orders unchanged: the edit was cancelled\n",
    ),
    "given-only-comments-then-cancelled": (
        [("", "# nothing\n")], "topic/orders unchanged: the edit was cancelled\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "said"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_given_nothing_to_do_then_nothing_is_written(
    command: CommandLine, editor: Editor, tmp_path: Path, edits: list[tuple[str, str]], said: str
) -> None:
    editor.then(*edits)
    done = command("edit", "topic", "orders")
    assert (done.code, done.out) == (0, said)
    assert command.sc.seen.by == []
    assert kept(tmp_path) == []


def test_given_a_mistake_then_the_editor_comes_back_with_it_and_the_text(
    command: CommandLine, editor: Editor, tmp_path: Path
) -> None:
    editor.then(("partitions: 2", "partitons: 3")).then(("partitons", "partitions"))
    done = command("edit", "topic", "orders")
    assert (done.code, done.out) == (0, "topic/orders configured\n")
    first, *rest = editor.seen(1).splitlines()
    assert first.startswith("#: line ")
    number = int(first.removeprefix("#: line ").partition(":")[0])
    assert "spec.partitons: unknown field; did you mean partitions?" in first
    assert [first, *rest][number - 1] == "  partitons: 3"
    assert kept(tmp_path) == []


def test_given_a_mistake_that_stays_then_it_ends_and_the_text_is_kept(
    command: CommandLine, editor: Editor, tmp_path: Path
) -> None:
    editor.then(("partitions: 2", "partitions: 0")).then()
    done = command("edit", "topic", "orders")
    assert (done.code, editor.calls) == (2, 2)
    (file,) = kept(tmp_path)
    assert f"your text is kept in {file}" in done.err
    assert "partitions: 0" in file.read_text()
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if ": 0" in text)
    assert f"{file}:{line}: spec.partitions: must be at least 1" in done.err


OTHER = {
    "given-another-name-then-refused": (("name: orders", "name: views"), "nothing else"),
    "given-two-objects-then-refused": (
        ("apiVersion", "apiVersion: runnel/v1\nkind: Scope\nmetadata: {name: a}\n---\napiVersion"),
        "nothing else",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "said"), OTHER.values(), ids=OTHER)
def test_an_edit_is_of_one_object(
    command: CommandLine, editor: Editor, edit: tuple[str, str], said: str
) -> None:
    editor.then(edit).then()
    done = command("edit", "topic", "orders")
    assert done.code == 2
    assert said in done.err
    assert said in editor.seen(1)


def test_given_a_conflict_then_it_is_shown_and_the_user_decides(
    command: CommandLine,
    editor: Editor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    editor.then(("partitions: 2", "partitions: 3")).then(("'2'", "'3'"))
    opened = edit._open_editor

    def meanwhile(path: Path) -> None:
        if editor.calls == 0:
            topic = command.sc.objects["topics", "orders"]
            command.sc.change(topic.with_metadata(labels={"team": "a"}))
        opened(path)

    monkeypatch.setattr(edit, "_open_editor", meanwhile)
    done = command("edit", "topic", "orders")
    assert (done.code, done.out) == (0, "topic/orders configured\n")
    shown = editor.seen(1)
    assert "#: Topic orders was changed meanwhile" in shown
    assert "#: To replace the object with your text, write in metadata: resourceVersion: '3'" in (
        shown
    )
    assert "#: +    team: a" in shown
    assert "\n  partitions: 3\n" in shown
    assert command.sc.objects["topics", "orders"].metadata.labels == {}
    assert kept(tmp_path) == []


def test_given_the_object_is_gone_then_it_does_not_come_back_and_the_text_is_kept(
    command: CommandLine, editor: Editor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor.then(("partitions: 2", "partitions: 3"))
    opened = edit._open_editor

    def meanwhile(path: Path) -> None:
        command.sc.remove_topic("orders")
        opened(path)

    monkeypatch.setattr(edit, "_open_editor", meanwhile)
    done = command("edit", "topic", "orders")
    assert (done.code, command.sc.objects) == (3, {})
    (file,) = kept(tmp_path)
    assert str(file) in done.err
    assert "partitions: 3" in file.read_text()


EDITORS = {
    "given-no-such-editor": ("/nowhere/vi", 2, "cannot be started"),
    "given-an-editor-that-fails": ("false", 1, "the editor 'false' ended with 1"),
    "given-an-open-quote": ("vi '", 2, "No closing quotation"),
}


@pytest.mark.parametrize(("editor_command", "code", "said"), EDITORS.values(), ids=EDITORS)
def test_editor_that_does_not_work(
    command: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    editor_command: str,
    code: int,
    said: str,
) -> None:
    monkeypatch.delenv("RUNNEL_EDITOR", raising=False)
    monkeypatch.setenv("EDITOR", editor_command)
    done = command("edit", "topic", "orders")
    assert done.code == code
    assert said in done.err
    assert kept(tmp_path) == []


def test_given_an_edited_manifest_that_is_no_text_then_its_line(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nprintf "kind: Topic\\n\\377" > "$1"\n')
    script.chmod(0o755)
    monkeypatch.setenv("RUNNEL_EDITOR", str(script))
    done = command("edit", "topic", "orders")
    assert done.code == 2
    assert "line 2 of the edited manifest is not UTF-8 text" in done.err


def test_given_an_editor_that_breaks_off_then_what_it_wrote_is_kept(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nprintf "mine \\377" > "$1"\nexit 3\n')
    script.chmod(0o755)
    monkeypatch.setenv("RUNNEL_EDITOR", str(script))
    done = command("edit", "topic", "orders")
    assert done.code == 1
    (file,) = kept(tmp_path)
    assert file.read_bytes() == b"mine \xff"


def test_diff_shows_what_apply_would_change(command: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(manifest("orders", "{partitions: 3}", ", labels: {a: b}"))
    done = command("diff", "-f", str(path))
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[:2] == ["--- topic/orders (now)", "+++ topic/orders (as applied)"]
    assert {"-  partitions: 2", "+  partitions: 3", "+    a: b"} <= set(lines)
    assert not any(word in done.out for word in ("\x1b", "status", "resourceVersion", "uid"))
    assert command.sc.objects["topics", "orders"].metadata.labels == {}
    path.write_text(manifest("orders", "{partitions: 2}"))
    assert command("diff", "-f", str(path)) == type(done)(0, "", "")
    path.write_text(manifest("views", "{}"))
    new = command("diff", "-f", str(path))
    assert new.code == 1
    assert new.out.startswith("--- /dev/null\n+++ topic/views (as applied)\n")
    assert "views" not in command("get", "topics", "-o", "name").out


def test_given_colours_then_lines_are_painted(
    command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.yaml").write_text(manifest("orders", "{partitions: 3}"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    painted = command("diff", "-f", str(tmp_path / "m.yaml")).out
    assert "\x1b[31m-  partitions: 2\x1b[0m" in painted
    assert "\x1b[32m+  partitions: 3\x1b[0m" in painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in command("diff", "-f", str(tmp_path / "m.yaml")).out


def test_given_an_error_then_the_other_differences_are_shown_and_the_code_is_not_1(
    command: CommandLine, tmp_path: Path
) -> None:
    stale = manifest("orders", "{partitions: 4}", ", resourceVersion: '1'")
    (tmp_path / "m.yaml").write_text(f"{stale}---\n{manifest('views', '{}')}")
    done = command("diff", "-f", str(tmp_path / "m.yaml"))
    assert done.code == 4
    assert f"{tmp_path}/m.yaml:1: Topic orders was changed meanwhile" in done.err
    assert "+++ topic/views (as applied)" in done.out
    assert command("diff", "-f", str(tmp_path / "none.yaml")).code == 2
