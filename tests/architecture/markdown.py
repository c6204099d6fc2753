"""Links, headings and paths of Markdown pages, as a file viewer would follow them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[`~]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)")
_LABEL = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SPAN = re.compile(r"(?<!`)`([^`\s<]+)`(?!`)")
_ID = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def links(text: str) -> Iterator[str]:
    """Targets of links outside of code."""
    yield from _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


def headings(text: str) -> list[str]:
    """The text of each heading, in order."""
    return _HEADING.findall(_FENCED.sub("", text))


def paths(text: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Files and folders below ``folders`` that code spans name; ``a/{b,c}.py`` names two.

    A span names a file if it has a suffix, and a folder if it ends with a slash. Others may be keys
    or routes, and one with ``<`` is a pattern for readers.
    """
    for span in _SPAN.findall(_FENCED.sub("", text)):
        path = span.partition("::")[0]
        last = path.rpartition("/")[2]
        if path.startswith(tuple(f"{folder}/" for folder in folders)) and (not last or "." in last):
            yield from _expanded(path)


def _expanded(path: str) -> Iterator[str]:
    head, brace, rest = path.partition("{")
    choices, _, tail = rest.partition("}")
    return (head + choice + tail for choice in choices.split(",")) if brace else iter((path,))


def anchors(text: str) -> set[str]:
    """Names under which a link reaches a heading, as GitHub makes them."""
    prose = _FENCED.sub("", text)
    seen: Counter[str] = Counter()
    found = set(_ID.findall(prose))
    for heading in _HEADING.findall(prose):
        name = _slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def _slug(heading: str) -> str:
    shown = _LABEL.sub(r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
