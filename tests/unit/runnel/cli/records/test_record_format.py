r"""``consume --format``: every verb, for plain and for typed records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from runnel.cli.records.record_format import VERBS, RecordFormat
from schemas.columns.topic_schema import Column, TopicSchema
from schemas.errors import InvalidRequestError
from tests.unit.runnel.cli.conftest import CommandLine

WHEN = datetime(2013, 1, 1, 5, 0, 0, 1_999, UTC)
ROWS: list[dict[str, Any]] = [
    {
        "partition": 1,
        "offset": 7,
        "timestamp": WHEN,
        "key": b"ada",
        "value": b"\xff\x00",
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    },
    {"partition": 0, "offset": 8, "timestamp": WHEN, "key": None, "value": None, "headers": None},
]
SCHEMA = TopicSchema(
    columns=(Column(name="id", type="int64"), Column(name="at", type="date32")), key_column="id"
)


def plain(text: str, *rows: dict[str, Any]) -> bytes:
    return RecordFormat(text).render("täxi", pa.RecordBatch.from_pylist(list(rows)), None)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("%t", "täxi".encode()),
        ("%p", b"1"),
        ("%o", b"7"),
        ("%k", b"ada"),
        ("%v", b"\xff\x00"),
        ("%h", b"a=1,b="),
        ("%d", b"1357016400001"),
        ("%T", b"5"),
        ("%K", b"3"),
        ("%V", b"2"),
        ("%H", b"2"),
        ("%%", b"%"),
        ("%v{hex}", b"ff00"),
        ("%k{base64}", b"YWRh"),
        (r"%h{%k:%v{hex}(%V)\n}", b"a:31(1)\nb:(-1)\n"),
        ("%d{strftime[%F %T]}", b"2013-01-01 05:00:00"),
        (r"%k\t%v\x1f\\n%%k", b"ada\t\xff\x00\x1f\\n%k"),
        ("", b""),
    ],
)
def test_verbs(text: str, first: bytes) -> None:
    assert plain(text, ROWS[0]) == first


def test_every_verb_of_the_help_is_tested_and_no_other_is_taken() -> None:
    for letter in map(chr, range(33, 127)):
        if f"%{letter}" in VERBS:
            plain(f"%{letter}", ROWS[0])
        else:
            with pytest.raises(InvalidRequestError, match="is no verb; there are %t %p"):
                RecordFormat(f"%{letter}")


def test_what_is_missing_is_empty_and_has_size_minus_1() -> None:
    assert plain(r"[%k][%v][%h] %K %V %H\n", *ROWS) == (
        b"[ada][\xff\x00][a=1,b=] 3 2 2\n[][][] -1 -1 0\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%", "% is no verb"),
        ("%v{gzip}", r"%v\{gzip\} is not known"),
        ("%d{go[2006]}", r"%d\{go\[2006\]\} is not known"),
        ("%h{%o}", "%o is no verb; there are %k %v %K %V %%"),
        ("%h{%k", r"the brace of %h\{%k is not closed"),
        (r"%v\q", r"--format: \\q is no escape"),
    ],
)
def test_given_what_is_no_format_then_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        RecordFormat(text)


def test_given_typed_records_then_the_value_is_the_json_of_the_row() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": 3, "timestamp": WHEN, "id": 5, "at": WHEN.date()}]
    )
    made = RecordFormat(r"%o %k %v %V %H\n").render("t", batch, SCHEMA)
    assert made == b'3 5 {"id":5,"at":"2013-01-01"} 26 0\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "--format", "%v", "-o", "json"),
        ("consume", "t", "--format", "%v", "--key-separator", ":"),
        ("consume", "t", "--format", "%x"),
        ("consume", "t", "--key-separator", r"\q"),
        ("produce", "t", "--key-separator", r"\q"),
        ("produce", "t", "--key-separator", r"\n"),
    ],
)
def test_wrong_usage(command: CommandLine, arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert done.err.startswith(("error: give --format", "error: --format", "error: --key-sep"))
