"""Conventions that hold in every module that is delivered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import ROOT, Module, modules, parse

MAX_LINES = 700
#: Names that say nothing about what is inside.
EMPTY_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "manager"}
#: The connection manager is a noun of the design, not a place for leftovers.
NAMED_BY_THE_DESIGN = {"connection_manager.manager"}

#: A public function this short may stand without a docstring: its name says it.
SHORT_FUNCTION = 3
#: A method has its class's docstring beside it.
SHORT_METHOD = 12
#: Their meaning is that of the interface that declares them.
DECLARED_ELSEWHERE = {
    "buffer_updated",
    "connection_lost",
    "connection_made",
    "data_received",
    "eof_received",
    "get_buffer",
    "pause_writing",
    "resume_writing",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_module_says_what_it_is() -> None:
    assert not [str(m) for m in modules().values() if not ast.get_docstring(m.tree)]


def test_no_module_is_too_long() -> None:
    found = {str(m): m.lines for m in modules().values() if m.lines > MAX_LINES}
    assert not found


def test_no_module_has_an_empty_name() -> None:
    found = [
        name
        for name in modules()
        if name not in NAMED_BY_THE_DESIGN and EMPTY_NAMES & set(name.split("."))
    ]
    assert not found


def documented_methods() -> set[str]:
    """Names of methods that some class of the repository declares with a docstring."""
    return DECLARED_ELSEWHERE | {
        method.name
        for module in modules().values()
        for owner in module.tree.body
        if isinstance(owner, ast.ClassDef)
        for method in _functions(owner.body)
        if ast.get_docstring(method)
    }


def undocumented(module: Module, declared: set[str]) -> Iterator[str]:
    """Public classes, functions and methods that need a docstring and have none."""
    for function in _functions(module.tree.body):
        if not ast.get_docstring(function) and _length(function) > SHORT_FUNCTION:
            yield function.name
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        for method in _functions(node.body):
            if (
                not ast.get_docstring(method)
                and method.name not in declared
                and _length(method) > SHORT_METHOD
            ):
                yield f"{node.name}.{method.name}"


def _functions(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def _length(function: Function) -> int:
    return (function.end_lineno or 0) - function.body[0].lineno + 1


def test_public_functions_have_docstrings_unless_short() -> None:
    declared = documented_methods()
    found = {str(m): names for m in modules().values() if (names := [*undocumented(m, declared)])}
    assert not found


LONG_BODY = "".join(f"\n    x = {n}" for n in range(20))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(f"def f():{LONG_BODY}", ["f"], id="given-long-function-then-found"),
        pytest.param(f"async def f():{LONG_BODY}", ["f"], id="given-long-coroutine-then-found"),
        pytest.param(f"def _f():{LONG_BODY}", [], id="given-private-then-fine"),
        pytest.param(f"def f():\n    'Doc.'{LONG_BODY}", [], id="given-docstring-then-fine"),
        pytest.param("def f():\n    return 1", [], id="given-short-then-fine"),
        pytest.param(
            "class A:\n  def f(self):" + LONG_BODY, ["A.f"], id="given-long-method-then-found"
        ),
        pytest.param(
            "class A:\n  def close(self):" + LONG_BODY, [], id="given-declared-elsewhere-then-fine"
        ),
    ],
)
def test_the_check_itself(text: str, names: list[str]) -> None:
    assert list(undocumented(parse("snippet", text), {"close"})) == names


def test_the_lock_file_names_versions_and_hashes_and_no_place_to_load_them_from() -> None:
    text = (ROOT / "requirements.lock").read_text()
    places = re.findall(r"https?://|--(?:extra-)?index-url|--find-links|--trusted-host|@ ", text)
    assert not places
    wanted = re.findall(r"^[a-z0-9][\w.\-\[\]]*==\S+", text, re.MULTILINE)
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(wanted) == len(entries) > 20
    assert text.count("--hash=sha256:") >= len(entries)
