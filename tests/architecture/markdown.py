"""Links and headings of Markdown pages, as a file viewer would follow and name them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[`~]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: +\"[^\"]*\")?\)")
_LABEL = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ID = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def links(text: str) -> Iterator[str]:
    """Targets of links outside of code."""
    yield from _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


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
