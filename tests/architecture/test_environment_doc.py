"""Delivered code reads no environment variable that the table, and so the reference, lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from runnel.environment import SHARED_VARIABLES, VARIABLES, Variable
from tests.architecture.source import modules

HOME = "runnel.environment"
OWN = re.compile(r"_?RUNNEL_[A-Z_]+")


def names_read(tree: ast.AST) -> Iterator[str]:
    """Constant names in ``environ[…]``, ``….environ.get(…)`` and ``getenv(…)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(
                value=(ast.Name(id="environ") | ast.Attribute(attr="environ")),
                slice=ast.Constant(value=str(name)),
                ctx=ast.Load(),
            ):
                yield name
            case ast.Call(
                func=(
                    ast.Attribute(
                        value=(ast.Name(id="environ") | ast.Attribute(attr="environ")), attr="get"
                    )
                    | ast.Attribute(attr="getenv")
                    | ast.Name(id="getenv")
                ),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def own_names(tree: ast.AST) -> Iterator[str]:
    """Constants that are nothing but the name of a variable of Runnel's own."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(name)) if OWN.fullmatch(name):
                yield name


def test_only_the_table_names_variables_of_our_own() -> None:
    others = {
        f"{module}: {name}"
        for module in modules().values()
        if module.name != HOME
        for name in own_names(module.tree)
    }
    assert others == set()


def test_code_reads_only_variables_of_the_table() -> None:
    known = {one.name for one in SHARED_VARIABLES}
    unknown = {
        f"{module}: {name}"
        for module in modules().values()
        for name in names_read(module.tree)
        if name not in known
    }
    assert unknown == set()


@cache
def text_of_the_readers() -> str:
    return "\n".join(
        ast.unparse(module.tree) for module in modules().values() if module.name != HOME
    )


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda one: one.name)
def test_some_module_reads_a_variable_of_the_table(variable: Variable) -> None:
    short = variable.name.removeprefix("RUNNEL_")
    assert re.search(rf"\b{short}\.value\(\)", text_of_the_readers())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        pytest.param('os.environ.get("A") or "x"', ["A"], id="given-get-then-found"),
        pytest.param('environ.get("A", "")', ["A"], id="given-a-mapping-then-found"),
        pytest.param('x = os.environ["A"]', ["A"], id="given-an-index-then-found"),
        pytest.param('os.getenv("A")', ["A"], id="given-getenv-then-found"),
        pytest.param('os.environ["A"] = "x"', [], id="given-a-variable-that-is-set-then-not"),
        pytest.param('other.get("A")', [], id="given-another-mapping-then-not"),
    ],
)
def test_names_read(code: str, found: list[str]) -> None:
    assert list(names_read(ast.parse(code))) == found
