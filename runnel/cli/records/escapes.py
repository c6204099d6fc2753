"""Escapes in separators and formats: what a shell does not turn into a tab or a newline. Pure."""

from __future__ import annotations

import re
from typing import Final

from runnel.utf8 import as_utf8
from schemas.errors import InvalidRequestError

#: Added to the help of an option that takes escapes.
ESCAPES: Final = r"\t \n \r \\ and \xHH (a byte)"

_NAMED: Final = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)


def unescaped(text: str, option: str) -> bytes:
    r"""The bytes that a text with `ESCAPES` means.

    Raises InvalidRequestError that names the option for any other character after a backslash, and
    for half of a character.
    """
    found, end = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        found += as_utf8(option, text[end : match.start()])
        end = match.end()
        if match[1] is not None:
            found.append(int(match[1], 16))
        elif match[2] in _NAMED:
            found += _NAMED[match[2]]
        else:
            raise InvalidRequestError(f"{option}: {match[0]!s} is no escape; there are {ESCAPES}")
    found += as_utf8(option, text[end:])
    return bytes(found)
