"""YAML documents as plain data that remembers the line of every field.

Dates stay text, and only ``true`` and ``false`` are booleans: a topic called ``no`` is a topic.
The result is data that JSON could express, except for keys that are numbers. Time and memory are
bounded by the length of the text, however deeply it is nested and whatever its aliases repeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from schemas.objects.manifest.problems import Path, Problem, format_path
from schemas.objects.quantities import short


class YamlError(ValueError):
    """Text that is not YAML, and the line where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


#: Fields and entries that the aliases of a text add; a few lines of them can describe far more.
MAX_ALIASED: Final = 100_000
#: Mappings and lists around a value. No manifest comes near it, and Python's stack has room for it.
MAX_DEPTH: Final = 100
#: A longer number fits no field, and takes long to compute.
_MAX_NUMBER: Final = 100

_TAG: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = {f"{_TAG}int", f"{_TAG}float"}
_SCALARS: Final = {*_NUMBERS, *(f"{_TAG}{name}" for name in ("str", "bool", "null"))}


class _Loader(yaml.SafeLoader):
    """``nodes_left``: how many more fields and entries the text may have."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # A field or an entry takes at least one character, unless it comes from an alias.
        self.nodes_left = len(text) + 1 + MAX_ALIASED
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in the base class, but only down to a depth of `MAX_DEPTH`."""
        if self._depth > MAX_DEPTH:
            raise _too_deep(self.line + 1)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


@dataclass(slots=True)
class Document:
    """One document: its data, the line of each path, and fields that occur twice."""

    data: Any = None
    line: int = 1
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """The line of a field, or of the nearest enclosing one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)

    def part(self, path: Path) -> Document:
        """What lies below ``path``, as a document of its own."""
        data: Any = self.data
        for step in path:
            data = data[step]
        depth = len(path)
        return Document(
            data,
            self.line_of(path),
            {at[depth:]: line for at, line in self.lines.items() if at[:depth] == path},
            [
                Problem(problem.path[depth:], problem.message)
                for problem in self.problems
                if problem.path[:depth] == path
            ],
        )

    def report(self, source: str, found: Iterable[Problem]) -> list[str]:
        """``file:line: field: what`` for these problems and the document's own, by line."""
        at_line = [(self.line_of(p.path), p) for p in (*self.problems, *found)]
        at_line.sort(key=lambda item: item[0])
        return [
            f"{source}:{line}: {format_path(p.path) + ': ' if p.path else ''}{p.message}"
            for line, p in at_line
        ]


def read_documents(text: str) -> list[Document]:
    """The documents of a text that are not empty. Raises YamlError."""
    documents = []
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise YamlError(f"not valid YAML: character U+{code:04X} is not allowed", line) from error
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
                continue
            document = Document(line=node.start_mark.line + 1)
            document.data = _plain(loader, node, (), document)
            documents.append(document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlError(f"not valid YAML: {error.problem or error.context}", line) from error
    except YamlError:
        raise
    except (ValueError, OverflowError) as error:
        # Of a directive's version, or of an escape for a character.
        raise YamlError("not valid YAML: a number is too large", loader.line + 1) from error
    finally:
        loader.dispose()
    return documents


def undecodable_line(error: UnicodeDecodeError) -> int:
    """The line of the first byte that is not UTF-8, in a text that was decoded as a whole."""
    return error.object.count(b"\n", 0, error.start) + 1


def _plain(loader: _Loader, node: yaml.Node, path: Path, document: Document) -> Any:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    loader.nodes_left -= 1
    if loader.nodes_left < 0:
        raise YamlError(f"aliases stand for more than {MAX_ALIASED} fields", line)
    if len(path) > MAX_DEPTH:
        raise _too_deep(line)
    if isinstance(node, yaml.MappingNode):
        _check_tag(node, {f"{_TAG}map"})
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlError("a field's name is text, not a list or a mapping", line)
            key = _value(loader, key_node)
            child = (*path, str(key))
            if key in data:
                first = document.line_of(child)
                message = f"appears twice, in lines {first} and {line}"
                document.problems.append(Problem(child, message))
                continue
            document.lines[child] = line
            data[key] = _plain(loader, value_node, child, document)
        return data
    if isinstance(node, yaml.SequenceNode):
        _check_tag(node, {f"{_TAG}seq"})
        return [_plain(loader, item, (*path, i), document) for i, item in enumerate(node.value)]
    return _value(loader, node)


def _value(loader: _Loader, node: yaml.Node) -> Any:
    """What one node stands for. Raises YamlError where its text does not fit its tag."""
    line = node.start_mark.line + 1
    _check_tag(node, _SCALARS)
    try:
        if node.tag in _NUMBERS and len(node.value) > _MAX_NUMBER:
            raise ValueError(f"a number of more than {_MAX_NUMBER} characters")
        value = loader.construct_object(node)
        if isinstance(value, str) and not value.isascii():
            # JSON writes a character beyond U+FFFF as two escapes, YAML reads them as two.
            value = value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise YamlError("not valid YAML: half of an escaped character", line) from error
    except (ValueError, LookupError) as error:
        message = f"not valid YAML: {node.value[:40]!r} does not fit {_short_tag(node)}"
        raise YamlError(message, line) from error
    return value


def _check_tag(node: yaml.Node, known: set[str]) -> None:
    """Other tags would be ignored silently, or make values that no field and no JSON can hold."""
    if node.tag == f"{_TAG}merge":
        raise YamlError("`<<` does not merge here; write the fields out", node.start_mark.line + 1)
    if node.tag not in known:
        message = f"the tag {_short_tag(node)} has no meaning here; put text in quotes"
        raise YamlError(f"not valid YAML: {message}", node.start_mark.line + 1)


def _short_tag(node: yaml.Node) -> str:
    """A node's tag as the user wrote it."""
    tag: str = node.tag
    return short(f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag)


def _too_deep(line: int) -> YamlError:
    return YamlError("nested too deeply, or an alias within its own anchor", line)
