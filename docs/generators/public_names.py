"""The public names of `runnel` and `runnel.aio`, with what the reference says of each.

A module's ``__all__`` says what is public, and its imports say where each name is defined: that is
where comments that begin with ``#:`` document what has no docstring, such as a type alias.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache, cached_property
from types import FunctionType, ModuleType
from typing import Any, Final

_LONGEST_LINE: Final = 76


@dataclass(frozen=True)
class Entry:
    """A public name, or a member of a public class.

    ``name`` is the whole path, for example ``runnel.Cluster.read``; ``home`` is the module that
    defines the object, or the class that the member is of.
    """

    name: str
    found: Any
    home: str

    @cached_property
    def doc(self) -> str:
        """Its own text, not that of a base class; empty where it has none."""
        if (
            inspect.isclass(self.found)
            or inspect.isroutine(self.found)
            or isinstance(self.found, property)
        ):
            doc = self.found.__doc__ or ""
            # Both make up a text where a class has none.
            made_up = is_dataclass(self.found) and doc.startswith(f"{self.short}(")
            made_up = made_up or doc == f"{self.short}({', '.join(_fields(self.found))})"
            return "" if made_up else inspect.cleandoc(doc)
        return _comments(self.home).get(self.short, "")

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_alias(self) -> bool:
        """Whether it stands for a type and is none itself."""
        return not inspect.isclass(self.found) and not inspect.isfunction(self.found)

    def declaration(self) -> str:
        """What stands in code: the signature of a function, the fields of a class of values."""
        found = self.found
        if isinstance(found, property):
            getter = found.fget
            assert getter is not None  # noqa: S101 - a property without one cannot be read
            return f"{self.short}: {inspect.signature(getter).return_annotation}"
        if inspect.isclass(found):
            return _class_declaration(self.short, found)
        if inspect.isfunction(found):
            return _function_declaration(self.short, found)
        return f"{self.short} = {_assigned(self.home)[self.short]}"

    def members(self) -> Iterator[Entry]:
        """Public methods and properties of a class, and those of its bases that are ours.

        An error has those that it adds: its bases are public, too.
        """
        if not inspect.isclass(self.found):
            return
        is_error = issubclass(self.found, Exception)
        seen = set()
        for cls in (self.found,) if is_error else self.found.__mro__:
            if not _is_ours(cls):
                continue
            for name, member in vars(cls).items():
                member = getattr(member, "__func__", member)
                documented = isinstance(member, FunctionType | property)
                if documented and not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield Entry(f"{self.name}.{name}", member, self.home)


def public_names(module: ModuleType) -> list[Entry]:
    """What is in a module's ``__all__``, except for modules."""
    homes = _imported(module)
    found = []
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.ismodule(value):
            home = homes.get(name, module.__name__)
            found.append(Entry(f"{module.__name__}.{name}", value, home))
    return found


def _imported(module: ModuleType) -> dict[str, str]:
    """The module that each name of a module is imported from, those for type checkers too."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@cache
def _assigned(module: str) -> dict[str, str]:
    """The code on the right side of each assignment at the top of a module."""
    found = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = ast.unparse(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = ast.unparse(value)
            case _:
                pass
    return found


@cache
def _comments(module: str) -> dict[str, str]:
    """The ``#:`` comments above assignments at the top of a module, by name."""
    source = inspect.getsource(importlib.import_module(module))
    lines = source.splitlines()
    found = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                first = node.lineno - 1
                while first and lines[first - 1].startswith("#:"):
                    first -= 1
                above = lines[first : node.lineno - 1]
                found[name] = "\n".join(line.removeprefix("#:").strip() for line in above)
            case _:
                pass
    return found


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in {"runnel", "schemas"}


def _fields(cls: Any) -> tuple[str, ...]:
    return getattr(cls, "_fields", ())


def _class_declaration(name: str, cls: type) -> str:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if issubclass(base, Exception))
    if bases:
        code = vars(cls).get("code")
        return f"class {name}({bases})" + (f"  # code {code.name}" if code else "")
    if is_dataclass(cls) or _fields(cls):
        parameters = list(inspect.signature(cls).parameters.values())
        return f"class {name}{_parameters(parameters)}"
    return f"class {name}"


def _function_declaration(name: str, function: FunctionType) -> str:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name not in {"self", "cls"}]
    awaited = inspect.iscoroutinefunction(function)
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {returned}"
    return f"{'async ' if awaited else ''}def {name}{_parameters(parameters, arrow)}{arrow}"


def _parameters(parameters: list[inspect.Parameter], after: str = "") -> str:
    """On one line where that is short, else one a line."""
    shown = []
    for number, one in enumerate(parameters):
        named_only = one.kind is one.KEYWORD_ONLY
        before = parameters[number - 1].kind if number else None
        if named_only and before not in {one.KEYWORD_ONLY, one.VAR_POSITIONAL}:
            shown.append("*")
        shown.append(_parameter(one))
    line = f"({', '.join(shown)})"
    if len(line) + len(after) <= _LONGEST_LINE:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in shown) + ")"


def _parameter(one: inspect.Parameter) -> str:
    stars = ""
    if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**"
    # Those of a named tuple stand in an object; all others are the text in the code.
    written = getattr(one.annotation, "__forward_arg__", one.annotation)
    annotation = "" if one.annotation is one.empty else f": {written}"
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}{annotation}{default}"
