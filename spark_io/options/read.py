"""The options of ``spark.read`` and ``spark.readStream``: parsed and checked on the driver. Pure.

`spark_io.options.table` lists them. Names ignore case, as all of Spark's do. An option that is not
in the table is an error: a typo in ``endingOffsets`` would otherwise read the wrong records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runnel import TransactionId
from runnel.net.address import parse_addresses
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import parse_duration_ms, parse_size
from schemas.wire.batch import MAX_TRANSACTION_ID
from spark_io.options import table
from spark_io.options.cuts import StreamRange, parse_stream
from spark_io.options.places import Wish, parse_offsets, parse_time, parse_times
from spark_io.options.table import Use, given_options
from spark_io.options.topics import TopicChoice, parse_topics

#: About this much is read by one task, as stored.
MAX_PARTITION_BYTES: Final = 256 << 20
MAX_DELAY_MS: Final = 15 * 60_000
_ORDER: Final = (table.STARTING_TIMESTAMP, table.STARTING_BY_TIMESTAMP, table.STARTING_OFFSETS)


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one batch of a stream takes; None for no limit."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_DELAY_MS


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, how, and where the cluster is.

    ``stream``: a stream of Runnel, in place of topics, with its own beginning and end.
    ``latest_if_none``: a time that no record has is the end of the partition, and no error.
    ``min_partitions``: None if nobody asked. ``max_partition_bytes``: None splits no partition.
    """

    sc: str
    topics: TopicChoice
    starting: Wish
    ending: Wish
    latest_if_none: bool = False
    min_partitions: int | None = None
    max_partition_bytes: int | None = MAX_PARTITION_BYTES
    fail_on_data_loss: bool = True
    include_headers: bool = False
    follower_reads: bool = False
    limits: TriggerLimits = TriggerLimits()
    stream: StreamRange | None = None


def parse_read_options(
    options: Mapping[str, str], default_sc: Callable[[], str], *uses: Use
) -> ReadOptions:
    """Check the options of a read. ``default_sc`` is asked only where ``sc`` is not given.

    ``uses``: those that the options may be for; `Use.BATCH` if none is given. Raises
    InvalidRequestError that names the option at fault.
    """
    uses = uses or (Use.BATCH,)
    given = given_options(options, uses)
    stream = parse_stream(given, uses)
    topics = parse_topics(given) if stream is None else TopicChoice(table.STREAM, (stream.name,))
    places = given if stream is None else {}
    return ReadOptions(
        parse_sc(given, default_sc),
        topics,
        _starting(places, topics.only, uses),
        _ending(places, topics.only),
        latest_if_none=_word(given, table.BY_TIMESTAMP_STRATEGY, ("error", "latest")) == "latest",
        min_partitions=_number(given, table.MIN_PARTITIONS),
        max_partition_bytes=_size(given, table.MAX_PARTITION_BYTES, MAX_PARTITION_BYTES),
        fail_on_data_loss=_flag(given, table.FAIL_ON_DATA_LOSS, default=True),
        include_headers=_flag(given, table.INCLUDE_HEADERS, default=False),
        follower_reads=_word(given, table.FOLLOWER_READS, ("never", "prefer")) == "prefer",
        limits=_limits(given),
        stream=stream,
    )


def parse_sc(given: Mapping[str, str], default_sc: Callable[[], str]) -> str:
    """The address of the SC. Raises InvalidRequestError if it is none."""
    sc = given.get(table.SC, "").strip() or default_sc()
    try:
        parse_addresses(sc)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"option {table.SC}: {error}") from error
    return sc


def _starting(given: Mapping[str, str], only: str | None, uses: Sequence[Use]) -> Wish:
    if table.STARTING_TRANSACTION_ID in given:
        if others := [name for name in _ORDER if name in given]:
            raise InvalidRequestError(
                f"options {others[0]} and {table.STARTING_TRANSACTION_ID}: a read begins at one"
                " place; give one of them"
            )
        text = given[table.STARTING_TRANSACTION_ID]
        return Wish(table.STARTING_TRANSACTION_ID, _transaction_id(text))
    words = ("earliest", "latest")
    match next((name for name in _ORDER if name in given), None):
        case table.STARTING_TIMESTAMP as option:
            return parse_time(option, given[option])
        case table.STARTING_BY_TIMESTAMP as option:
            return parse_times(option, given[option], only)
        case None:
            default = "earliest" if Use.BATCH in uses else "latest"
            return parse_offsets(table.STARTING_OFFSETS, default, only, words=words)
        case option:
            return parse_offsets(option, given[option], only, words=words)


def _ending(given: Mapping[str, str], only: str | None) -> Wish:
    if (text := given.get(table.ENDING_TIMESTAMP)) is not None:
        return parse_time(table.ENDING_TIMESTAMP, text)
    if (text := given.get(table.ENDING_BY_TIMESTAMP)) is not None:
        return parse_times(table.ENDING_BY_TIMESTAMP, text, only)
    text = given.get(table.ENDING_OFFSETS, "latest")
    return parse_offsets(table.ENDING_OFFSETS, text, only, words=("latest",))


def _transaction_id(text: str) -> TransactionId:
    word = text.strip()
    # Longer numbers are no transaction ids either, and Python refuses to parse the longest.
    number = int(word) if word.isascii() and word.isdigit() and len(word) < 20 else -1
    if not 0 <= number <= MAX_TRANSACTION_ID:
        raise InvalidRequestError(
            f"option {table.STARTING_TRANSACTION_ID}: {text!r} is no transaction id; give a whole"
            f" number from 0 to {MAX_TRANSACTION_ID}"
        )
    return TransactionId(number)


def _limits(given: Mapping[str, str]) -> TriggerLimits:
    limits = TriggerLimits(
        _number(given, table.MAX_OFFSETS),
        _size(given, table.MAX_TRIGGER_BYTES, None),
        _number(given, table.MIN_OFFSETS),
        _duration(given, table.MAX_DELAY, MAX_DELAY_MS),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        raise InvalidRequestError(
            f"options {table.MIN_OFFSETS} and {table.MAX_OFFSETS}: a batch of at least"
            f" {limits.min_offsets} and at most {limits.max_offsets} records cannot be"
        )
    return limits


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    word = _word(given, option, ("true", "false"), default=str(default).lower())
    return word == "true"


def _word(
    given: Mapping[str, str], option: str, words: tuple[str, ...], default: str | None = None
) -> str:
    text = given.get(option, default or words[0])
    if (word := text.strip().lower()) not in words:
        raise InvalidRequestError(f"option {option}: {text!r}; give {' or '.join(words)}")
    return word


def _number(given: Mapping[str, str], option: str) -> int | None:
    if (text := given.get(option)) is None:
        return None
    word = text.strip()
    number = int(word) if word.isascii() and word.isdigit() and len(word) < 19 else 0
    if not number:
        raise InvalidRequestError(f"option {option}: {text!r}; give a whole number above 0")
    return number


def _size(given: Mapping[str, str], option: str, default: int | None) -> int | None:
    """Bytes; None for 0."""
    if (text := given.get(option)) is None:
        return default
    try:
        return parse_size(text) or None
    except ValueError as error:
        raise InvalidRequestError(f"option {option}: {error}") from error


def _duration(given: Mapping[str, str], option: str, default: int) -> int:
    if (text := given.get(option)) is None:
        return default
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {option}: {error}") from error
