"""Docstrings as Markdown. Pure.

They are plain text with three marks: double backticks around code, single backticks around the name
of an object, and ``::`` before an indented block of code. Names of errors need no mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARKED = re.compile(r"``(.+?)``|`([^`]+)`|\b([A-Z]\w*Error)\b", re.DOTALL)
#: What Markdown would take for a mark of its own; ``*word*`` is one in a docstring, too.
_SPECIAL = re.compile(r"(?<![*\w])\*\w+\*|([*\[\]<>])")


def markdown(doc: str, link: Callable[[str], str]) -> str:
    """A docstring, its indentation removed, as Markdown.

    ``link`` gives the Markdown of the name of an object.
    """
    parts = []
    is_code = False
    for paragraph in _paragraphs(doc):
        if is_code and paragraph.startswith(" "):
            parts.append(f"```{_language(paragraph)}\n{_dedented(paragraph)}\n```")
            continue
        is_code = paragraph.endswith("::")
        text = paragraph.removesuffix("::") if is_code else paragraph
        if text := text.rstrip():
            parts.append(_inline(text, link) + (":" if is_code else ""))
    return "\n\n".join(parts)


def _paragraphs(doc: str) -> list[str]:
    """What empty lines part; a block of code may have such lines inside."""
    found: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", doc.strip("\n")):
        if found and found[-1].startswith(" ") and paragraph.startswith(" "):
            found[-1] += "\n\n" + paragraph
        else:
            found.append(paragraph)
    return found


def _language(block: str) -> str:
    """A block that is not plain code, such as a drawn tree, is text."""
    return "python" if block.isascii() else "text"


def _dedented(block: str) -> str:
    lines = block.splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines)


def _inline(text: str, link: Callable[[str], str]) -> str:
    def shown(mark: re.Match[str]) -> str:
        code, name, error = mark.groups()
        if code is not None:
            return f"`{' '.join(code.split())}`"
        return link(error or "".join(name.split()))

    parts = []
    end = 0
    for mark in _MARKED.finditer(text):
        parts += [_escaped(text[end : mark.start()]), shown(mark)]
        end = mark.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda one: f"\\{one[1]}" if one[1] else one[0], text)
