r"""``runnel consume --format``: records as a text with verbs, those of Redpanda's ``rpk``.

Nothing is added, so a format for lines ends with ``\n``. A value of a typed topic is the JSON of
its row, its key that of the key column.

Neighbours: `runnel.cli.records.output` prints what is made here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from runnel.cli.records.escapes import unescaped
from runnel.records.as_json import compact_json, places_of, rows_json
from runnel.records.python_values import far_time, rows_of
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError

#: Verbs and what they print.
VERBS: Final = {
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%k": "key",
    "%v": "value",
    "%h": "headers",
    "%d": "timestamp in milliseconds",
    "%T": "size of the topic's name in bytes",
    "%K": "size of the key, -1 without one",
    "%V": "size of the value, -1 without one",
    "%H": "number of headers",
    "%%": "a percent sign",
}
#: What may follow a verb.
DETAILS: Final = (
    "%k{hex}, %k{base64} and the same of %v, %h{%k=%v } for a format of each header, and"
    " %d{strftime[%F %T]} in UTC"
)

_VERB: Final = re.compile(r"%(.?)", re.DOTALL)
_ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": bytes,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}
_HEADER_VERBS: Final = "kvKV%"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Record:
    """What verbs print of a record; of a header, its key and value."""

    key: bytes | None
    value: bytes | None
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp_us: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


_Piece = Callable[[_Record], bytes]


class RecordFormat:
    """A format as it was given. Raises InvalidRequestError for what is no verb."""

    def __init__(self, text: str) -> None:
        self._pieces = _pieces(text, "".join(verb[1] for verb in VERBS))

    def render(self, topic: str, batch: pa.RecordBatch, rows: TopicSchema | None) -> bytes:
        """The records of a batch, one after the other; ``rows`` is the schema of a typed topic."""
        records = _plain(topic, batch) if rows is None else _typed(topic, batch, rows)
        return b"".join(piece(record) for record in records for piece in self._pieces)


def _plain(topic: str, batch: pa.RecordBatch) -> list[_Record]:
    return [
        _Record(
            row["key"],
            row["value"],
            topic,
            row["partition"],
            row["offset"],
            time_us,
            [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for row, time_us in zip(rows_of(batch), _times_us(batch), strict=True)
    ]


def _typed(topic: str, batch: pa.RecordBatch, rows: TopicSchema) -> list[_Record]:
    places = places_of(batch)
    found = []
    for place, time_us, values in zip(places, _times_us(batch), rows_json(batch), strict=True):
        key = None if rows.key_column is None else values[rows.key_column]
        text = key if key is None or isinstance(key, str) else compact_json(key)
        found.append(
            _Record(
                None if text is None else text.encode(),
                compact_json(values).encode(),
                topic,
                place["partition"],
                place["offset"],
                time_us,
            )
        )
    return found


def _times_us(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("timestamp").cast(pa.int64()).to_pylist()
    return found


def _pieces(text: str, verbs: str) -> list[_Piece]:
    """What a format prints, piece by piece; ``verbs`` are the letters that it may use."""
    pieces: list[_Piece] = []
    end = 0
    while (match := _VERB.search(text, end)) is not None:
        pieces.append(_literal(unescaped(text[end : match.start()], "--format")))
        letter, end = match[1], match.end()
        if not letter or letter not in verbs:
            known = " ".join(f"%{one}" for one in verbs)
            raise InvalidRequestError(f"--format: {match[0]} is no verb; there are {known}")
        detail = ""
        if letter in "kvhd" and text[end : end + 1] == "{":
            detail, end = _braced(text, end)
        pieces.append(_piece(letter, detail))
    pieces.append(_literal(unescaped(text[end:], "--format")))
    return pieces


def _braced(text: str, begin: int) -> tuple[str, int]:
    """What is in the braces that begin here, and where they end."""
    depth = 0
    for end in range(begin, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[begin + 1 : end], end + 1
    raise InvalidRequestError(f"--format: the brace of {text[begin - 2 :]} is not closed")


def _piece(letter: str, detail: str) -> _Piece:
    match letter:
        case "k" | "v":
            return _text_of(letter, detail)
        case "h":
            return _headers(detail)
        case "d":
            return _time(detail)
        case "t":
            return lambda record: record.topic.encode()
        case "p":
            return lambda record: b"%d" % record.partition
        case "o":
            return lambda record: b"%d" % record.offset
        case "T":
            return lambda record: b"%d" % len(record.topic.encode())
        case "K":
            return lambda record: _size(record.key)
        case "V":
            return lambda record: _size(record.value)
        case "H":
            return lambda record: b"%d" % len(record.headers)
        case _:
            return _literal(b"%")


def _literal(text: bytes) -> _Piece:
    return lambda _record: text


def _text_of(letter: str, detail: str) -> _Piece:
    encode = _ENCODINGS.get(detail)
    if encode is None:
        raise _unknown(f"%{letter}", detail)
    if letter == "k":
        return lambda record: encode(record.key or b"")
    return lambda record: encode(record.value or b"")


def _headers(detail: str) -> _Piece:
    if not detail:
        joined = _pieces("%k=%v", _HEADER_VERBS)
        return lambda record: b",".join(_header(joined, *header) for header in record.headers)
    each = _pieces(detail, _HEADER_VERBS)
    return lambda record: b"".join(_header(each, *header) for header in record.headers)


def _header(pieces: Sequence[_Piece], key: str, value: bytes | None) -> bytes:
    header = _Record(key.encode(), value)
    return b"".join(piece(header) for piece in pieces)


def _time(detail: str) -> _Piece:
    if not detail:
        return lambda record: b"%d" % (record.timestamp_us // 1000)
    if (match := re.fullmatch(r"strftime\[(.*)\]", detail, re.DOTALL)) is None:
        raise _unknown("%d", detail)
    wanted = match[1]
    return lambda record: _strftime(record.timestamp_us, wanted).encode()


def _strftime(time_us: int, form: str) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).strftime(form)
    except OverflowError:
        # No form is made for years beyond those that Python knows.
        return far_time(time_us)


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _unknown(verb: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"--format: {verb}{{{detail}}} is not known; there are {DETAILS}")
