"""Moves the imports of a source text to where an installed wheel has the packages. Pure.

Found by syntax tree and changed in the text, so that every line keeps its number and a traceback
fits the source. What comes out is parsed again and compared with the tree that was wanted.

Relative imports stay: who imports and what is imported move together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

#: Packages whose names are too common to be at the top of a user's environment.
MOVED: Final = ("schemas", "connection_manager", "sc", "spu", "spark_io", "dashboard")
#: Where they are in a wheel: package, and package below it.
ABOVE: Final = ("runnel", "_internal")

_PREFIX: Final = "".join(f"{name}." for name in ABOVE)
#: Between a keyword and a name: blanks, and the end of a line that goes on.
_GAP: Final = rb"(?:[ \t\f]|\\\r?\n)+"


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes of a text that become others."""

    start: int
    end: int
    text: bytes


def rewrite(source: bytes, path: str, moved: Iterable[str] = MOVED) -> bytes:
    """A source text in UTF-8 with the imports of packages in ``moved`` as a wheel has them.

    Raises SyntaxError, naming ``path``, for a text that is no Python, and for one whose imports
    cannot be moved without touching anything else.
    """
    names = frozenset(moved)
    tree = ast.parse(source, path)
    text = bytearray(source)
    edits = sorted(_edits(tree, source, path, names), key=lambda edit: edit.start, reverse=True)
    for edit in edits:
        text[edit.start : edit.end] = edit.text
    found = bytes(text)
    if edits and not _same(ast.parse(found, path), _moved_tree(tree, names)):
        raise SyntaxError(f"{path}: the imports of this text cannot be moved")
    return found


def _is_moved(module: str | None, names: frozenset[str]) -> bool:
    return module is not None and module.partition(".")[0] in names


def _edits(tree: ast.Module, source: bytes, path: str, names: frozenset[str]) -> Iterator[_Edit]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, level=0) if _is_moved(module, names):
                begin = starts[node.lineno - 1] + node.col_offset
                found = re.compile(rb"from" + _GAP).match(source, begin)
                if found is None:
                    raise SyntaxError(f"{path}:{node.lineno}: this import cannot be moved")
                yield _Edit(found.end(), found.end(), _PREFIX.encode())
            case ast.Import(names=aliases):
                for alias in aliases:
                    if not _is_moved(alias.name, names):
                        continue
                    start = starts[alias.lineno - 1] + alias.col_offset
                    if alias.asname is not None:
                        yield _Edit(start, start, _PREFIX.encode())
                        continue
                    # It binds the name of the package at the top, and so does what comes out.
                    if len(aliases) > 1:
                        raise SyntaxError(
                            f"{path}:{alias.lineno}: import {alias.name} by a statement of its own"
                        )
                    begin = starts[node.lineno - 1] + node.col_offset
                    end = starts[(alias.end_lineno or 0) - 1] + (alias.end_col_offset or 0)
                    yield _Edit(begin, end, _binding(alias.name).encode())
            case _:
                pass


def _binding(name: str) -> str:
    """What ``import name`` means once the package is below others: the module is loaded, and the
    package has the name that it had."""
    top, _, rest = name.partition(".")
    binding = f"from {_PREFIX[:-1]} import {top}"
    return f"import {_PREFIX}{name} as {top}; {binding}" if rest else binding


class _Mover(ast.NodeTransformer):
    """The same on the tree, as the measure of what is done to the text."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.level == 0 and _is_moved(node.module, self._names):
            node.module = f"{_PREFIX}{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.stmt]:
        for alias in node.names:
            if not _is_moved(alias.name, self._names):
                continue
            if alias.asname is None:
                return [
                    ast.copy_location(statement, node)
                    for statement in ast.parse(_binding(alias.name)).body
                ]
            alias.name = f"{_PREFIX}{alias.name}"
        return node


def _moved_tree(tree: ast.Module, names: frozenset[str]) -> ast.AST:
    moved: ast.AST = _Mover(names).visit(tree)
    return moved


def _same(one: ast.AST, other: ast.AST) -> bool:
    """Whether two trees are the same, statement by statement on the same lines."""
    if ast.dump(one) != ast.dump(other):
        return False
    return _lines(one) == _lines(other)


def _lines(tree: ast.AST) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)]
