"""``diff`` and ``edit``: look at a change before it is made, and make one by hand."""

from __future__ import annotations

import difflib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from runnel.cli import failure
from runnel.cli.arguments import FilesOption, KindArgument, NameArgument, ScOption
from runnel.cli.connection import administered
from runnel.cli.objects.pipeline_options import check_pipelines
from runnel.environment import EDITOR
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    ManifestError,
    NotFoundError,
    RunnelError,
    UnsupportedError,
)
from schemas.objects.manifest.manifest import dump_yaml, load_paths, load_text
from schemas.objects.manifest.yaml_lines import undecodable_line
from schemas.objects.metadata import Object

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin

EXIT_DIFFERENT = 1
#: Begins lines that the command puts on top of the text and removes again.
_NOTE = "#: "
_COLOURS = {"-": "31", "+": "32", "@": "36"}


def diff(filename: FilesOption, sc: ScOption = None) -> None:
    """Show what apply would change. Exits with 0 if nothing would change, else with 1.

    The SC checks everything as for apply, but changes nothing.
    """
    # Here 1 means that there are differences, so every error gets a higher code.
    try:
        loaded = load_paths(filename, sys.stdin)
    except OSError as error:
        raise InvalidRequestError(str(error)) from error
    check_pipelines(loaded)
    worst, different = 0, False
    colours = _coloured()
    with administered(sc) as cluster:
        for item in loaded:
            try:
                lines = _difference(cluster, item.object)
            except RunnelError as error:
                error.message = item.located(error.message)
                worst = max(worst, failure.report(error), failure.EXIT_USAGE)
                continue
            for line in lines:
                different = True
                print(_painted(line) if colours else line)
    raise typer.Exit(worst or (EXIT_DIFFERENT if different else failure.EXIT_OK))


def _difference(cluster: BlockingAdmin, wanted: Object) -> list[str]:
    result = cluster.apply(wanted, dry_run=True)
    if result.change == "unchanged":
        return []
    label = f"{wanted.kind.lower()}/{wanted.name}"
    if result.change == "created":
        return unified("", _editable(result.object), "/dev/null", f"{label} (as applied)")
    try:
        current = _editable(cluster.get(wanted.kind, wanted.name))
    except NotFoundError:
        current = ""
    return unified(current, _editable(result.object), f"{label} (now)", f"{label} (as applied)")


def unified(old: str, new: str, old_name: str, new_name: str) -> list[str]:
    """The lines of a unified difference; none if there is none."""
    found = difflib.unified_diff(
        old.splitlines(), new.splitlines(), old_name, new_name, lineterm=""
    )
    return list(found)


def _coloured() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def _painted(line: str) -> str:
    if line.startswith(("---", "+++")):
        return f"\x1b[1m{line}\x1b[0m"
    colour = _COLOURS.get(line[:1])
    return f"\x1b[{colour}m{line}\x1b[0m" if colour else line


def _editable(obj: Object, *, version: bool = False) -> str:
    """The part of an object that a user may change, as YAML; ``version``: with its version."""
    kept = obj.metadata.resource_version if version else None
    metadata = type(obj.metadata)(
        name=obj.name,
        labels=obj.metadata.labels,
        annotations=obj.metadata.annotations,
        resource_version=kept,
    )
    text = dump_yaml([obj.model_copy(update={"metadata": metadata})])
    # The status comes last, and nothing within another field begins a line.
    return text[: text.rindex("\nstatus:") + 1]


def edit(kind: KindArgument, name: NameArgument, sc: ScOption = None) -> None:
    """Change an object in an editor: RUNNEL_EDITOR, else EDITOR, else vi.

    If the SC rejects the text, it comes back to the editor with the reason on top. An empty file
    cancels.
    """
    with administered(sc) as cluster:
        obj = cluster.get(kind, name)
        label = f"{obj.kind.lower()}/{obj.name}"
        print(f"{label} {_edited(cluster, obj)}")


def _edited(cluster: BlockingAdmin, obj: Object) -> str:
    """Let the user edit an object until the SC accepts it. Gives the outcome in a word or two.

    If it ends in any other way, a changed text stays in its file, and a message names the file.
    """
    original = body = _editable(obj, version=True)
    notes = ["Change the object, save and close. An empty file cancels."]
    refused: RunnelError | None = None
    path = _new_file(obj)
    try:
        while True:
            path.write_text("".join(f"{_NOTE}{line}\n" for line in notes) + body, "utf-8")
            _open_editor(path)
            before, body = body, _without_notes(_read(path))
            if _is_empty(body):
                path.unlink()
                return "unchanged: the edit was cancelled"
            if body == original:
                path.unlink()
                return "unchanged"
            if refused is not None and body == before:
                raise refused
            try:
                change = _applied(cluster, obj, body)
            except (InvalidRequestError, ConflictError, UnsupportedError) as error:
                refused, notes = _refusal(cluster, obj, body, path, error)
                continue
            path.unlink()
            return change
    except BaseException:
        _keep(path, body, original)
        raise


def _new_file(obj: Object) -> Path:
    number, path = tempfile.mkstemp(".yaml", f"runnel-edit-{obj.kind.lower()}-")
    os.close(number)
    return Path(path)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"line {undecodable_line(error)} of the edited manifest is not UTF-8 text"
        ) from error
    except FileNotFoundError as error:
        raise NotFoundError(f"the editor removed {path}") from error


def _without_notes(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(_NOTE.rstrip()):
        lines.pop(0)
    return "".join(lines)


def _is_empty(body: str) -> bool:
    return not any(line.strip() and not line.startswith("#") for line in body.splitlines())


def _keep(path: Path, body: str, original: str) -> None:
    """Keep the file for the user, unless its text is the original one."""
    if not path.exists():
        path.write_text(body, "utf-8")
    if _without_notes(path.read_bytes().decode(errors="replace")) == original:
        path.unlink()
    else:
        failure.say(f"your text is kept in {path}")


def _applied(cluster: BlockingAdmin, obj: Object, body: str) -> str:
    """Apply a text. Raises the SC's or the parser's error, NotFoundError if obj was deleted."""
    loaded = load_text(body)
    check_pipelines(loaded)
    found = [item.object for item in loaded]
    if [(new.kind, new.name) for new in found] != [(obj.kind, obj.name)]:
        raise InvalidRequestError(
            f"the text must describe {obj.kind} {obj.name} and nothing else; for other objects"
            f" use: runnel apply -f FILE"
        )
    # An edit does not bring back an object that was deleted meanwhile.
    cluster.get(obj.kind, obj.name)
    return cluster.apply(found[0]).change


def _refusal(
    cluster: BlockingAdmin, obj: Object, body: str, path: Path, error: RunnelError
) -> tuple[RunnelError, list[str]]:
    """The error if the edit ends here, and the notes to put on top of the text otherwise."""
    end = [
        "Change the text and save it. An unchanged text ends the edit; an empty file cancels it."
    ]
    lines = error.message.splitlines()
    if isinstance(error, ManifestError):
        # Line numbers count the notes on top of the text.
        try:
            check_pipelines(load_text("\n" * (len(lines) + len(end)) + body, str(path)))
        except ManifestError as again:
            error, lines = again, again.message.splitlines()
        return error, [line.replace(f"{path}:", "line ", 1) for line in lines] + end
    if isinstance(error, ConflictError):
        with suppress(RunnelError):
            lines += _changes_meanwhile(obj, cluster.get(obj.kind, obj.name))
    return error, lines + end


def _changes_meanwhile(obj: Object, current: Object) -> list[str]:
    if current.metadata.resource_version == obj.metadata.resource_version:
        return []
    changes = unified(_editable(obj), _editable(current), "when you began", "now")
    version = current.metadata.resource_version
    return [
        f"To replace the object with your text, write in metadata: resourceVersion: '{version}'",
        *(["Changed since you began:", *changes] if changes else []),
    ]


def _open_editor(path: Path) -> None:
    """Run the user's editor until it ends. Raises RunnelError where it fails."""
    command = EDITOR.value() or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidRequestError(f"RUNNEL_EDITOR or EDITOR, {command!r}: {error}") from error
    try:
        with _interrupts_are_the_editors():
            code = subprocess.call([*words, str(path)])
    except OSError as error:
        raise InvalidRequestError(
            f"the editor {command!r} cannot be started ({error.strerror}); set RUNNEL_EDITOR"
        ) from error
    if code != 0:
        raise RunnelError(f"the editor {command!r} ended with {code}")


@contextmanager
def _interrupts_are_the_editors() -> Iterator[None]:
    """Ctrl-C goes to every process of the terminal; in an editor it is a key like others."""
    # A function and not SIG_IGN, which child processes would inherit.
    before = signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
