"""Reading manifests: multi-document YAML from files, directories and standard input.

Every problem is reported at once, each with file, line and field. Nothing is returned unless
everything is right: a half-read directory is never applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from schemas.errors import ManifestError
from schemas.objects.kinds import BY_KIND
from schemas.objects.manifest.problems import format_path
from schemas.objects.manifest.validation import build_object
from schemas.objects.manifest.yaml_lines import (
    Document,
    YamlError,
    read_documents,
    undecodable_line,
)
from schemas.objects.metadata import Object

SUFFIXES = (".yaml", ".yml", ".json")
_LINE_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """An object and the document that describes it, which begins at ``line`` of ``source``."""

    object: Object
    source: str
    document: Document

    @property
    def line(self) -> int:
        return self.document.line

    def located(self, message: str) -> str:
        """``message`` with file and line: of the field whose path it begins with, or of the nearest
        enclosing one."""
        field, colon, _ = message.partition(":")
        lines = {format_path(path): line for path, line in self.document.lines.items()}
        while colon and field and field not in lines:
            field = field[: max(field.rfind("."), field.rfind("["), 0)]
        return f"{self.source}:{lines.get(field, self.line)}: {message}"


def load_paths(
    paths: Sequence[str], stdin: TextIO, *, recursive: bool = False
) -> list[LoadedObject]:
    """Objects of files, directories (in the order of names; with ``recursive`` also those below)
    and ``-``.

    Raises ManifestError that lists every problem of every file.
    """
    problems: list[str] = []
    loaded: list[LoadedObject] = []
    for path in paths:
        for source, text in _read(path, stdin, problems, recursive=recursive):
            loaded.extend(_load_text(text, source, problems))
    _check_duplicates(loaded, problems)
    if not paths:
        problems.append("no manifests: name a file, a directory, or - for standard input")
    if problems:
        raise ManifestError("\n".join(problems))
    return loaded


def load_text(text: str, source: str = "<text>") -> list[LoadedObject]:
    """Objects of one text. Raises ManifestError."""
    problems: list[str] = []
    loaded = _load_text(text, source, problems)
    _check_duplicates(loaded, problems)
    if problems:
        raise ManifestError("\n".join(problems))
    return loaded


def _read(
    path: str, stdin: TextIO, problems: list[str], *, recursive: bool
) -> Iterator[tuple[str, str]]:
    if path == "-":
        try:
            yield "<stdin>", stdin.read()
        except UnicodeDecodeError as error:
            problems.append(f"<stdin>:{undecodable_line(error)}: not UTF-8 text")
        return
    place = Path(path)
    files = [place]
    if place.is_dir():
        try:
            found = place.rglob("*") if recursive else place.iterdir()
            files = sorted(f for f in found if f.suffix in SUFFIXES and f.is_file())
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
            return
        if not files:
            below = "" if recursive else "; -R also looks in the directories below"
            problems.append(f"{path}: no files that end with {', '.join(SUFFIXES)}{below}")
    for file in files:
        try:
            text = file.read_bytes().decode()
            # JSON may be indented with tabs, YAML may not; strings in JSON contain no raw tabs.
            yield str(file), text.replace("\t", " ") if file.suffix == ".json" else text
        except UnicodeDecodeError as error:
            problems.append(f"{file}:{undecodable_line(error)}: not UTF-8 text")
        except OSError as error:
            problems.append(f"{file}: cannot be read: {error.strerror}")


def _load_text(text: str, source: str, problems: list[str]) -> list[LoadedObject]:
    loaded: list[LoadedObject] = []
    try:
        documents = read_documents(text)
    except YamlError as error:
        problems.append(f"{source}:{error.line}: {error}")
        return []
    if not documents:
        problems.append(
            f"{source}:1: only blanks and comments; a manifest needs apiVersion, kind, metadata"
        )
    for document in (part for whole in documents for part in _parts(whole)):
        obj, found = build_object(document.data)
        problems.extend(document.report(source, found))
        if obj is not None and not document.problems:
            loaded.append(LoadedObject(obj, source, document))
    return loaded


def _parts(document: Document) -> Iterator[Document]:
    """The objects of a list, as ``runnel get -o json`` prints it; else the document itself."""
    data = document.data
    if not isinstance(data, dict) or "kind" in data or not isinstance(data.get("items"), list):
        yield document
        return
    for index in range(len(data["items"])):
        yield document.part(("items", index))


def _check_duplicates(loaded: list[LoadedObject], problems: list[str]) -> None:
    seen: dict[tuple[str, str], LoadedObject] = {}
    for item in loaded:
        key = (item.object.kind, item.object.name)
        first = seen.setdefault(key, item)
        if first is not item:
            problems.append(
                f"{item.source}:{item.line}: {key[0]} {key[1]} appears twice;"
                f" the first is at {first.source}:{first.line}"
            )


class _Dumper(yaml.SafeDumper):
    pass


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Unquoted, YAML's other line breaks would be read back as spaces.
    style: str | None = '"' if _LINE_BREAKS & set(text) else None
    if style is None and "\n" in text.strip("\n"):
        # A query stays in its lines; where YAML cannot write a text so, it is quoted.
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(objects: Sequence[Object]) -> str:
    """Manifests that, applied again, change nothing."""
    return "---\n".join(
        yaml.dump(obj.to_json(), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
        for obj in objects
    )


def json_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of every kind, by kind."""
    return {kind: cls.model_json_schema(by_alias=True) for kind, cls in BY_KIND.items()}
