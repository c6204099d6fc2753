"""``explain``: what the fields of manifests mean."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from runnel.cli import completion
from runnel.cli.objects.fields import FieldDoc, document
from schemas.objects.kinds import find_kind

_WIDTH = 96


def explain(
    path: Annotated[
        str,
        typer.Argument(
            metavar="KIND[.PATH]",
            help="topic, topic.spec.retention, …",
            autocompletion=completion.field_paths,
        ),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Print all fields below it, as a tree.")
    ] = False,
) -> None:
    """Explain a field of a manifest: its meaning, type, default, and the fields below it."""
    kind, _, below = path.partition(".")
    cls = find_kind(kind)
    field = document(cls, below)
    spellings = ", ".join(dict.fromkeys([cls.PLURAL, *cls.SHORT_NAMES]))
    print(f"KIND:     {cls.kind_name()} ({spellings})")
    if field.path:
        print(f"FIELD:    {field.path}")
        print(f"TYPE:     {_facts(field)}")
    if cls.SYSTEM_WRITTEN:
        print("NOTE:     written by the system; users read it")
    if field.description:
        print(f"\n{_wrapped(field.description, 4)}")
    if field.children:
        print("\nFIELDS:")
        _print_children(field, recursive, 2)


def _print_children(field: FieldDoc, recursive: bool, indent: int) -> None:
    for child in field.children:
        if recursive:
            print(f"{' ' * indent}{child.name}  <{_facts(child)}>")
            _print_children(child, True, indent + 2)
            continue
        print(f"{' ' * indent}{child.name}  <{_facts(child)}>")
        if child.description:
            print(_wrapped(child.description, indent + 4))


def _facts(field: FieldDoc) -> str:
    if field.required and field.path:
        return f"{field.type}; required"
    return f"{field.type}; default {field.default}" if field.default is not None else field.type


def _wrapped(text: str, indent: int) -> str:
    space = " " * indent
    return textwrap.fill(text, _WIDTH, initial_indent=space, subsequent_indent=space)
