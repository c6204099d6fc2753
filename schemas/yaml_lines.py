"""YAML documents as plain data that remembers the line of every field.

Dates stay text, and only ``true`` and ``false`` are booleans: a topic called ``no`` is a topic.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from schemas.validation import Path, Problem, format_path


class YamlError(ValueError):
    """Text that is not YAML, and the line where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class _Loader(yaml.SafeLoader):
    pass


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


#: Fields and entries of one document; a few lines of aliases can describe far more.
MAX_NODES: Final = 2_000_000


@dataclass(slots=True)
class Document:
    """One document: its data, the line of each path, and fields that stand twice."""

    data: Any = None
    line: int = 1
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)

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
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {error}", 1) from error
    except RecursionError as error:
        raise YamlError("nested too deep, or an alias within its own anchor", 1) from error
    finally:
        loader.dispose()
    return documents


def _plain(loader: _Loader, node: yaml.Node, path: Path, document: Document) -> Any:
    document.lines.setdefault(path, node.start_mark.line + 1)
    if len(document.lines) > MAX_NODES:
        raise YamlError(f"more than {MAX_NODES} fields", node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _value(loader, key_node)
            if not isinstance(key, Hashable):
                key = str(key)
            child = (*path, str(key))
            line = key_node.start_mark.line + 1
            if key in data:
                first = document.line_of(child)
                message = f"stands twice, in lines {first} and {line}"
                document.problems.append(Problem(child, message))
                continue
            document.lines[child] = line
            data[key] = _plain(loader, value_node, child, document)
        return data
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, item, (*path, i), document) for i, item in enumerate(node.value)]
    return _value(loader, node)


def _value(loader: _Loader, node: yaml.Node) -> Any:
    """What one node stands for. Raises YamlError where its text does not fit its tag."""
    line = node.start_mark.line + 1
    try:
        value = loader.construct_object(node, deep=True)
        if isinstance(value, str) and not value.isascii():
            # JSON writes a character beyond U+FFFF as two escapes, YAML reads them as two.
            value = value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise YamlError("not valid YAML: half of an escaped character", line) from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        message = f"not valid YAML: {str(node.value)[:40]!r} does not fit {node.tag}"
        raise YamlError(message, line) from error
    return value
