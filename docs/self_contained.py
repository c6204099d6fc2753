"""Checks that the built site needs no other host: no script, style, font or picture from elsewhere.

``python docs/self_contained.py build/docs`` names what breaks the rule and exits with 1 if anything
does. Links that a reader may follow are free to leave the site.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

_FOREIGN: Final = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_CSS_REFERENCE: Final = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", re.IGNORECASE)
#: A browser fetches these by itself; of ``link`` it does not fetch what only names another page.
_FETCHED: Final = frozenset({"src", "srcset", "poster", "data", "background"})
_ONLY_NAMED: Final = frozenset(
    {"canonical", "next", "prev", "index", "search", "author", "license"}
)


def foreign_references(site: Path) -> list[str]:
    """``file: reference`` for everything that a page or style sheet loads from another host."""
    found = []
    for path in sorted(site.rglob("*")):
        match path.suffix:
            case ".html":
                references = in_html(path.read_text(encoding="utf-8"))
            case ".css":
                references = in_css(path.read_text(encoding="utf-8"))
            case _:
                continue
        found += [f"{path.relative_to(site)}: {one}" for one in references]
    return found


def in_html(text: str) -> Iterator[str]:
    """References of a page to other hosts, styles inside of the page included."""
    page = _Page()
    page.feed(text)
    yield from (one for one in page.fetched if _FOREIGN.match(one))
    for style in page.styles:
        yield from in_css(style)


def in_css(text: str) -> Iterator[str]:
    """References of a style sheet to other hosts."""
    yield from (one for one in _CSS_REFERENCE.findall(text) if _FOREIGN.match(one))


class _Page(HTMLParser):
    """Gathers what a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.styles: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.fetched += [value for name, value in values.items() if name in _FETCHED]
        if tag == "link" and not _ONLY_NAMED & set(values.get("rel", "").lower().split()):
            self.fetched.append(values.get("href", ""))
        self.styles.append(values.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles.append(data)


def main() -> int:
    site = Path(sys.argv[1])
    if not (site / "index.html").is_file():
        sys.exit(f"{site} holds no built site")
    found = foreign_references(site)
    for one in found:
        print(f"loaded from another host: {one}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
