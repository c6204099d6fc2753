"""Escapes in separators and formats."""

from __future__ import annotations

import pytest

from runnel.cli.records.escapes import unescaped
from schemas.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("ü: ", "ü: ".encode()),
        (r"\t", b"\t"),
        (r"a\nb\r", b"a\nb\r"),
        (r"\x1f\xFF", b"\x1f\xff"),
        (r"\\t", rb"\t"),
        (r"\\\t", b"\\\t"),
        ("\t", b"\t"),
    ],
)
def test_escapes(text: str, data: bytes) -> None:
    assert unescaped(text, "--s") == data


@pytest.mark.parametrize("text", ["\\", r"\q", r"\x1", r"\xg0", r"\\\ "])
def test_given_no_escape_then_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"--s: \\.* is no escape; there are \\t"):
        unescaped(text, "--s")
