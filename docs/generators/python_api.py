"""The Python API: ``python.md`` for `runnel`, ``python-aio.md`` for `runnel.aio`.

Signatures and docstrings are the only source. A name in single backticks becomes a link where it
is public, by whatever path the docstring names it.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import runnel
import runnel.aio
import schemas.errors
from docs.generators.docstrings import markdown
from docs.generators.public_names import Entry, public_names

_PAGE: Final = "python.md"
_AIO_PAGE: Final = "python-aio.md"
_HEAD = """\
<!-- Written by docs/generate.py from runnel/__init__.py and what it exports. Do not edit. -->
# Python API

The public names of the package `runnel`, for scripts, threads and notebooks. The same for asyncio:
[runnel.aio]({aio}). Names that are on neither page are private and may change at any time.
"""
_AIO_HEAD = """\
<!-- Written by docs/generate.py from runnel/aio.py and what it exports. Do not edit. -->
# Python API for asyncio

The public names of the module `runnel.aio`. What is not here, such as errors, records and the
values that calls return, is shared with [runnel]({blocking}).
"""

#: Sections of the page and the packages whose names they hold, the first that fits.
_SECTIONS: Final = (
    ("Connect", ("runnel.Cluster", "runnel.connect", "runnel.LocalCluster")),
    ("Produce", ("runnel.Producer", "runnel.produce")),
    ("Consume", ("runnel.Consumer", "runnel.consume", "runnel.positions", "runnel.net")),
    ("Streams", ("runnel.StreamHandle", "runnel.streams", "runnel.StreamCut")),
    ("Reader groups", ("runnel.groups",)),
    ("Shared states", ("runnel.shared_state",)),
    ("What happened", ("runnel.logs",)),
    ("Metrics", ("runnel.metrics", "schemas.daemon.latency")),
    ("Records", ("runnel.records",)),
    ("Objects", ("runnel.admin", "runnel.manifests")),
    ("Partitions", ("runnel.partition",)),
    ("Archives", ("runnel.archive", "runnel.archiving")),
    ("Errors", ("schemas.errors",)),
)


def error_tree() -> str:
    """What the module of errors says of their order, with the drawing of the tree."""
    doc = inspect.cleandoc(schemas.errors.__doc__ or "")
    return doc[: doc.index("\n\nPython's own")]


#: What stands at the beginning of a section.
_INTRODUCTIONS: Final = {"Errors": f"\n{markdown(error_tree(), str)}\n"}


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where an object is documented."""

    page: str
    name: str

    def link(self, page: str, shown: str) -> str:
        """The link to it from a page."""
        target = "" if self.page == page else self.page
        return f"[`{shown}`]({target}#{slug(self.name)})"


class Anchors:
    """The documented objects, found by any name that a docstring has for them."""

    def __init__(self, entries: dict[str, list[Entry]]) -> None:
        self._by_name: dict[str, Anchor] = {}
        self._by_object: dict[int, Anchor] = {}
        for page, found in entries.items():
            for entry in found:
                for one in (entry, *entry.members()):
                    anchor = Anchor(page, one.name)
                    self._by_name[one.name] = anchor
                    self._by_object.setdefault(id(one.found), anchor)

    def find(self, name: str, place: Entry) -> Anchor | None:
        """What a name means in the text of ``place``; None where it is not public.

        Raises LookupError where there is no such thing at all.
        """
        owner = place.name.rpartition(".")[0]
        module = "runnel.aio" if place.name.startswith("runnel.aio.") else "runnel"
        for scope in (place.name, owner, module, "runnel"):
            if anchor := self._by_name.get(f"{scope}.{name}"):
                return anchor
        if anchor := self._by_name.get(name):
            return anchor
        if hasattr(builtins, name):
            return None
        return self._by_object.get(id(resolved(name, place)))

    def of(self, entry: Entry) -> Anchor:
        """Where an object is documented, under this name or another."""
        return self._by_object[id(entry.found)]


def pages() -> dict[str, str]:
    entries = {_PAGE: public_names(runnel), _AIO_PAGE: public_names(runnel.aio)}
    anchors = Anchors(entries)
    head = _HEAD.format(aio=_AIO_PAGE)
    aio_head = _AIO_HEAD.format(blocking=_PAGE)
    sections = [
        f"\n## {title}\n{_INTRODUCTIONS.get(title, '')}"
        + "".join(_text(one, anchors, _PAGE) for one in found)
        for title, found in _by_section(entries[_PAGE])
    ]
    aio = [_text(one, anchors, _AIO_PAGE) for one in entries[_AIO_PAGE]]
    return {_PAGE: head + "".join(sections), _AIO_PAGE: aio_head + "".join(aio)}


def slug(name: str) -> str:
    """The anchor of the heading with this name."""
    return re.sub(r"[^\w-]", "", name.lower())


def resolved(name: str, place: Entry) -> Any:
    """The object that a name means in the text of ``place``. Raises LookupError without one."""
    home = importlib.import_module(place.home)
    first, *rest = name.split(".")
    for start in (getattr(place.found, "__globals__", {}), vars(home)):
        if first in start:
            return _attribute(start[first], rest, name)
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return _attribute(found, parts[length:], name)
    raise LookupError(f"{place.name} speaks of {name}, which does not exist")


def _attribute(found: Any, path: list[str], name: str) -> Any:
    for part in path:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(f"{name} does not exist") from None
    return found


def _by_section(entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    left = list(entries)
    for title, prefixes in _SECTIONS:
        found = [
            one
            for prefix in prefixes
            for one in left
            if one.name == prefix or f"{one.home}.".startswith(f"{prefix}.")
        ]
        left = [one for one in left if one not in found]
        if found:
            yield title, found
    if left:
        raise LookupError(f"name a section for {', '.join(one.name for one in left)}")


def _text(entry: Entry, anchors: Anchors, page: str) -> str:
    anchor = anchors.of(entry)
    if anchor.name != entry.name:
        return f"\n## {entry.name}\n\nThe same as {anchor.link(page, anchor.name)}.\n"
    level = "##" if page == _AIO_PAGE else "###"
    blocks = [_block(entry, anchors, page, level)]
    blocks += [_block(one, anchors, page, f"{level}#") for one in entry.members()]
    return "".join(blocks)


def _block(entry: Entry, anchors: Anchors, page: str, level: str) -> str:
    def link(name: str) -> str:
        anchor = anchors.find(name, entry)
        if anchor is None or anchor.name == entry.name:
            return f"`{name}`"
        is_private_path = "." in name and not f".{anchor.name}".endswith(f".{name}")
        return anchor.link(page, anchor.name if is_private_path else name)

    code = f"```python\n{entry.declaration()}\n```"
    return f"\n{level} {entry.name}\n\n{code}\n\n{markdown(entry.doc, link)}\n"
