"""What notebooks show of an object: a caption and rows of text, as HTML. Pure.

All text is escaped. Colours are those of the notebook, so that light and dark both work.
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
        f'<td style="text-align: left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<div><strong>{escape(caption)}</strong><table>{body}</table></div>"
