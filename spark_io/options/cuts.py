"""Where a read of a stream of Runnel begins and ends, as users write it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from runnel import StreamCut
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_scoped_name
from spark_io.options import table
from spark_io.options.table import Use

#: Options whose offsets, times or ids are of partitions, or that choose topics.
_OF_TOPICS: Final = (
    table.TOPIC,
    table.SUBSCRIBE,
    table.SUBSCRIBE_PATTERN,
    table.ASSIGN,
    table.STARTING_TIMESTAMP,
    table.ENDING_TIMESTAMP,
    table.STARTING_BY_TIMESTAMP,
    table.ENDING_BY_TIMESTAMP,
    table.BY_TIMESTAMP_STRATEGY,
    table.STARTING_TRANSACTION_ID,
)


@dataclass(frozen=True, slots=True)
class StreamRange:
    """A stream by SCOPE/NAME, and what is read of it."""

    name: str
    start: Literal["earliest", "latest"] | StreamCut
    stop: Literal["latest"] | StreamCut


def parse_stream(given: Mapping[str, str], uses: Sequence[Use]) -> StreamRange | None:
    """The stream that is read; None if it is topics. Raises InvalidRequestError."""
    if table.STREAM not in given:
        return None
    if others := [name for name in _OF_TOPICS if name in given]:
        raise InvalidRequestError(
            f"options {table.STREAM} and {others[0]}: {others[0]} is of topics; a stream is read"
            f" between cuts: {table.STARTING_OFFSETS}, {table.ENDING_OFFSETS}"
        )
    try:
        name = check_scoped_name(given[table.STREAM].strip())
    except ValueError as error:
        raise InvalidRequestError(f"option {table.STREAM}: {error}") from error
    default = "earliest" if Use.BATCH in uses else "latest"
    start = _place(table.STARTING_OFFSETS, given.get(table.STARTING_OFFSETS, default), name)
    stop = _place(table.ENDING_OFFSETS, given.get(table.ENDING_OFFSETS, "latest"), name)
    if stop == "earliest":
        raise InvalidRequestError(
            f"option {table.ENDING_OFFSETS}: 'earliest'; give latest or a stream cut"
        )
    return StreamRange(name, start, stop)


def _place(option: str, text: str, stream: str) -> Literal["earliest", "latest"] | StreamCut:
    match text.strip().lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if "@" not in text:
        raise InvalidRequestError(
            f"option {option}: {text[:60]!r}; of a stream, give earliest, latest or a cut, as"
            " `runnel stream cut` prints it"
        )
    try:
        cut = StreamCut.parse(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"option {option}: {error}") from error
    if cut.stream != stream:
        raise InvalidRequestError(
            f"option {option}: it is a cut of stream {cut.stream}, not of {stream}"
        )
    return cut
