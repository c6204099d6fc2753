"""What notebooks show of an object: a caption and rows of text, as HTML. Pure.

All text is escaped; an address of the web becomes a link. Colours are those of the notebook, so
that light and dark both work.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

#: A name, and what is to be said about it.
Row = tuple[str, str]


def html_table(caption: str, rows: Iterable[Row]) -> str:
    """A small table of two columns below a caption."""
    body = "".join(
        f'<tr><th style="text-align: left">{escape(name)}</th>'
        f'<td style="text-align: left">{_linked(text)}</td></tr>'
        for name, text in rows
    )
    return f"<div><strong>{escape(caption)}</strong><table>{body}</table></div>"


def _linked(text: str) -> str:
    shown = escape(text)
    if text.startswith(("http://", "https://")) and " " not in text:
        return f'<a href="{shown}" target="_blank" rel="noopener">{shown}</a>'
    return shown
