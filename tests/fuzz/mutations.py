"""Valid inputs made slightly wrong: hypothesis' half of what a coverage-guided fuzzer does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from tests.fuzz.seeds import seeds

#: Numbers at which sizes, counts and signs go wrong; little-endian, of 1, 2, 4 and 8 bytes.
NUMBERS: Final = tuple(
    value.to_bytes(width, "little")
    for width in (1, 2, 4, 8)
    for bits in (8 * width,)
    for value in (0, 1, 1 << (bits - 2), (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1)
)


#: What JSON may hold where another value stood.
_VALUES: Final = (
    *(b"0", b"1", b"2", b"3", b"-1", b"-2", b"4096", b"9223372036854775807"),
    *(b"18446744073709551616", b"1.5", b"1e400", b"true", b"null", b'"a"', b"[]", b"{}", b"[[]]"),
    *(b"NaN", b"-Infinity", b'"\\ud800"', b'"\\u0000"', b'"a\\nb"', b"9" * 400),
)
#: What YAML knows besides.
_YAML: Final = (
    *(
        b"&a ",
        b"*a",
        b"*spus",
        b"!!int ",
        b"!!float ",
        b"!!binary ",
        b"!x ",
        b"!",
        b"<<: *labels\n",
    ),
    *(b"? ", b"- ", b": ", b"{", b"[", b"]", b"}", b"|\n", b">+2\n", b"%TAG ! x\n", b"\n---\n"),
    *(b"\r", b"\t", b"\0", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", b'"\\ud800"', b'"\\0"'),
    *(b".nan", b".inf", b"0x" + b"f" * 5_000, b"1" + b":1" * 400 + b".5", b"2001-01-01", b"~"),
    *(b"&a [*a]", b"&a [&b [&c [1, 1, 1, 1, 1, 1], *c, *c, *c, *c], *b, *b, *b, *b, *b]"),
    *(b'"a\\nb": ', b'"\\e": ', b"1: ", b"~: ", b"true: ", b"[]: ", b"# ", b"'", b'"'),
)
_VALUE: Final = re.compile(rb'-?[0-9]+|null|true|false|"[^"\\]*"(?!\s*:)|\[\]|\{[^{}\n]*\}')


@dataclass(frozen=True)
class Another:
    """The value at some share of all values in JSON, in thousandths, becomes another."""

    at: int
    value: bytes

    def apply(self, data: bytes) -> bytes:
        places = [found.span() for found in _VALUE.finditer(data)]
        if not places:
            return data
        start, end = places[self.at * (len(places) - 1) // 1_000]
        return data[:start] + self.value + data[end:]


@dataclass(frozen=True)
class Edit:
    """``removed`` bytes at ``at``, as a share of the whole in thousandths, become ``added``."""

    at: int
    removed: int
    added: bytes

    def apply(self, data: bytes) -> bytes:
        at = self.at * len(data) // 1_000
        return data[:at] + self.added + data[at + self.removed :]


_at = st.integers(0, 1_000)
_edit = st.one_of(
    st.builds(lambda at, number: Edit(at, len(number), number), _at, st.sampled_from(NUMBERS)),
    st.builds(Edit, _at, st.just(1), st.binary(min_size=1, max_size=1)),
    st.builds(Edit, _at, st.integers(0, 8), st.binary(max_size=8)),
    st.builds(Edit, _at, st.integers(0, 1_000), st.just(b"")),
    st.builds(Another, _at, st.sampled_from(_VALUES)),
    st.builds(Another, _at, st.sampled_from(_VALUES)),
    st.builds(Edit, _at, st.just(0), st.sampled_from([b"[" * 2_000, b"0" * 5_000, b"null", b"-1"])),
)
_yaml = st.builds(Edit, _at, st.integers(0, 8), st.sampled_from(_YAML))


@st.composite
def inputs(draw: st.DrawFn, target: str) -> bytes:
    """Any bytes, or a seed of ``target`` with some edits."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = draw(st.sampled_from(seeds(target)))
    edits = _edit | _yaml if target == "manifest" else _edit
    for edit in draw(st.lists(edits, max_size=4)):
        data = edit.apply(data)
    return data


#: How long an input becomes by repetition.
LONG_BYTES: Final = 64 << 10


def long_inputs(name: str) -> st.SearchStrategy[bytes]:
    """Seeds of a target of which a part is repeated: as it is, or as fields of many names."""
    return st.builds(_long, st.sampled_from(seeds(name)), st.integers(0, 999), st.integers(1, 200))


def _long(data: bytes, at: int, length: int) -> bytes:
    braces = [found.end() for found in re.finditer(rb"\{", data)]
    if braces and length % 2:
        place = braces[at % len(braces)]
        fields = b"".join(b'"partitionss%d": %d, ' % (i, i) for i in range(LONG_BYTES // 25))
        return data[:place] + fields + data[place:]
    place = at * len(data) // 1000
    part = data[place : place + length] or b"\0"
    return data[:place] + part * (LONG_BYTES // len(part)) + data[place:]
