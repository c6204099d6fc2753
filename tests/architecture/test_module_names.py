"""No text in the code names a module of ours: in an installed wheel it has another name.

Docstrings may: they speak of the sources. What needs a module's name takes its ``__name__``, names
it relative to the package that asks, or asks `schemas.daemon.installation`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.architecture.source import PACKAGES, Module, modules, parse

#: A whole text that is a dotted name, perhaps with what is meant in the module: ``a.b:name``.
DOTTED = re.compile(r"([a-z_][a-z_0-9]*(?:\.[a-z_0-9]+)+)(?::\w+)?", re.IGNORECASE)
#: The beginning of a text that goes on with what is only known when it runs.
BEGINNING = re.compile(rf"(?:{'|'.join(PACKAGES)})\.(?:[a-z_0-9]+\.)*")
#: What is given a module's name first. A package's name alone is a word like others elsewhere:
#: ``spu`` is a kind of objects.
TAKES_A_NAME = {"import_module", "__import__", "find_spec", "get_logger", "run_module"}


def texts_that_name_modules(module: Module) -> Iterator[str]:
    """Those texts of a module, each with its line."""
    docstrings = set(_docstrings(module.tree))
    for node in ast.walk(module.tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings and _is_ours(text):
                yield f"line {node.lineno}: {text}"
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), ast.FormattedValue(), *_]):
                if BEGINNING.fullmatch(text):
                    yield f"line {node.lineno}: {text}"
            case ast.Call(args=[ast.Constant(value=str(text)), *_]) if text in PACKAGES:
                if _called(node) in TAKES_A_NAME:
                    yield f"line {node.lineno}: {text}"
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                for option, name in pairwise(elements):
                    match option, name:
                        case ast.Constant(value="-m"), ast.Constant(value=str(text)):
                            if text in PACKAGES:
                                yield f"line {node.lineno}: -m {text}"
            case _:
                pass


def _is_ours(text: str) -> bool:
    found = DOTTED.fullmatch(text)
    if found is None:
        return False
    return found[1] in modules() or ".".join(found[1].split(".")[:2]) in modules()


def _called(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def _docstrings(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Below an assignment, a text says what is assigned.
            for statement in node.body:
                if isinstance(statement, ast.Expr):
                    yield id(statement.value)


def test_no_text_names_a_module_of_ours() -> None:
    found = {
        str(module): texts
        for module in modules().values()
        if (texts := [*texts_that_name_modules(module)])
    }
    assert not found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('x = "spu.storage"', ["line 1: spu.storage"], id="given-a-package-then-found"),
        pytest.param(
            'x = {"a": "spu.main.serve"}',
            ["line 1: spu.main.serve"],
            id="given-a-name-in-a-module-then-found",
        ),
        pytest.param(
            'x = "runnel.cli.main:main"',
            ["line 1: runnel.cli.main:main"],
            id="given-an-entry-point-then-found",
        ),
        pytest.param('x = f"schemas.{y}"', ["line 1: schemas."], id="given-a-beginning-then-found"),
        pytest.param('get_logger("sc")', ["line 1: sc"], id="given-a-logger-then-found"),
        pytest.param(
            'importlib.import_module("schemas")',
            ["line 1: schemas"],
            id="given-an-import-then-found",
        ),
        pytest.param(
            'run([python, "-m", "spu", "-c", x])', ["line 1: -m spu"], id="given-a-start-then-found"
        ),
        pytest.param('x = "sc"', [], id="given-a-word-then-fine"),
        pytest.param('x = Path("sc.yaml")', [], id="given-a-file-then-fine"),
        pytest.param('x = "see spu.main and wait"', [], id="given-a-sentence-then-fine"),
        pytest.param('def f():\n    "spu.main"', [], id="given-a-docstring-then-fine"),
        pytest.param('x = 1\n"spu.main"', [], id="given-the-text-of-a-name-then-fine"),
        pytest.param('x = ".storage.log"', [], id="given-a-relative-name-then-fine"),
    ],
)
def test_the_check_itself(text: str, found: list[str]) -> None:
    assert list(texts_that_name_modules(parse("snippet", text))) == found
