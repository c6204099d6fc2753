"""Text as UTF-8. A Python text can hold half of a character, which UTF-8 cannot express: JSON can
spell such halves, and a command's arguments have them for bytes that are not UTF-8.
"""

from __future__ import annotations

from schemas.errors import InvalidRequestError


def as_utf8(what: str, text: str) -> bytes:
    """The text as bytes. Raises InvalidRequestError that names ``what`` it is of for half of a
    character.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{what}: {half_of_a_character(error)}") from error


def half_of_a_character(error: UnicodeEncodeError) -> str:
    """What is wrong, in words that can be printed."""
    half = without_halves(error.object[error.start : error.end])
    return (
        f"'{half}' is half of a character, which UTF-8 cannot express; replace it:"
        " text.encode(errors='replace').decode()"
    )


def without_halves(text: str) -> str:
    """Text with halves of characters escaped: those can be in a Python text, but not printed."""
    return text.encode(errors="backslashreplace").decode()
