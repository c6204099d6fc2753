"""The repository's own modules as syntax trees: what the tests of the architecture look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "schemas",
    "connection_manager",
    "sc",
    "spu",
    "dashboard",
    "runnel",
    "spark_io",
    "pyspark_runnel",
)


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    def __str__(self) -> str:
        return self.name


def parse(name: str, text: str, path: Path = ROOT) -> Module:
    return Module(name, path, ast.parse(text), len(text.splitlines()))


@cache
def modules() -> dict[str, Module]:
    """Every module that is delivered, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            name = ".".join(parts)
            found[name] = parse(name, path.read_text(encoding="utf-8"), path)
    return found


def under(*prefixes: str) -> list[Module]:
    """Modules that are one of these or lie in one of these packages."""
    return [
        module
        for name, module in modules().items()
        if any(name == p or name.startswith(f"{p}.") for p in prefixes)
    ]


def imports(module: Module) -> list[str]:
    """Dotted names that a module imports when it runs, inside of functions too."""
    if modules().get(module.name) is module:
        return _imports_of(module.name)
    return list(_imports(module))


@cache
def _imports_of(name: str) -> list[str]:
    return list(_imports(modules()[name]))


def _imports(module: Module) -> Iterator[str]:
    skipped = {id(node) for node in _type_checking_only(module.tree)}
    for node in ast.walk(module.tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(source), names=names, level=0):
                for alias in names:
                    inner = f"{source}.{alias.name}"
                    yield inner if inner in modules() else source
            case _:
                pass


def _type_checking_only(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in node.body:
                yield from ast.walk(inner)
