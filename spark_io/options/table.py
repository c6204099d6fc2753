"""Every option of the format ``runnel``: its name, where it may be given, what it means. Pure.

The parsers, their messages, the tests and the reference page ``spark.md`` read this table. Spark
gives names in lower case; messages spell them as the table does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from schemas.errors import InvalidRequestError
from schemas.objects.spelling import nearest
from spark_io.options.foreign import instead_of, own_name


class Use(Enum):
    """Where options are given."""

    BATCH = "spark.read"
    STREAM = "spark.readStream"
    WRITE = "df.write"
    WRITE_STREAM = "df.writeStream"


READS: Final = frozenset({Use.BATCH, Use.STREAM})
WRITES: Final = frozenset({Use.WRITE, Use.WRITE_STREAM})
EVERYWHERE: Final = READS | WRITES


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``values``, ``default`` and ``text`` are what its users read.

    ``elsewhere``: what to do where it cannot be given.
    """

    name: str
    uses: frozenset[Use]
    values: str
    default: str
    text: str
    elsewhere: str = ""


SC: Final = "sc"
TOPIC: Final = "topic"
STREAM: Final = "stream"
SUBSCRIBE: Final = "subscribe"
SUBSCRIBE_PATTERN: Final = "subscribePattern"
ASSIGN: Final = "assign"
STARTING_OFFSETS: Final = "startingOffsets"
ENDING_OFFSETS: Final = "endingOffsets"
STARTING_TIMESTAMP: Final = "startingTimestamp"
ENDING_TIMESTAMP: Final = "endingTimestamp"
STARTING_BY_TIMESTAMP: Final = "startingOffsetsByTimestamp"
ENDING_BY_TIMESTAMP: Final = "endingOffsetsByTimestamp"
BY_TIMESTAMP_STRATEGY: Final = "startingOffsetsByTimestampStrategy"
STARTING_TRANSACTION_ID: Final = "startingTransactionId"
MIN_PARTITIONS: Final = "minPartitions"
MAX_PARTITION_BYTES: Final = "maxBytesPerPartition"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
INCLUDE_HEADERS: Final = "includeHeaders"
FOLLOWER_READS: Final = "followerReads"
MAX_OFFSETS: Final = "maxOffsetsPerTrigger"
MIN_OFFSETS: Final = "minOffsetsPerTrigger"
MAX_DELAY: Final = "maxTriggerDelay"
MAX_TRIGGER_BYTES: Final = "maxBytesPerTrigger"
ACKS: Final = "acks"
TRANSACTION_ID: Final = "transactionId"

_NO_END: Final = "a stream has no end; use spark.read, or trigger(availableNow=True)"
_STREAMS_ONLY: Final = "it limits the batches of a stream; spark.read plans all of its range"

OPTIONS: Final = (
    Option(
        SC,
        EVERYWHERE,
        "`HOST:PORT`, several separated by commas",
        "`RUNNEL_SC`, else the context in use",
        "Where the cluster is. Executors connect to it, too: on a Spark cluster, give an address"
        " that they can reach.",
    ),
    Option(
        TOPIC,
        EVERYWHERE,
        "names, separated by commas",
        "",
        "Topics to read, or the topic to write to. When writing it is needed unless the rows have"
        " a column `topic`, and takes precedence over that.",
    ),
    Option(
        STREAM,
        READS,
        "`SCOPE/NAME`, or a name in the scope `default`",
        "",
        "A stream to read, in place of topics, between cuts. The column `partition` has the numbers"
        " of segments: in the order of `partition` and `offset`, the records of each key are in the"
        " order of their writes.",
        "write to a stream with `cluster.stream(name).producer()`",
    ),
    Option(
        SUBSCRIBE,
        READS,
        "names, separated by commas",
        "",
        "The same as `topic`, as Kafka's source calls it.",
        f'name the topic to write to with .option("{TOPIC}", …)',
    ),
    Option(
        SUBSCRIBE_PATTERN,
        READS,
        "a regular expression of Python",
        "",
        "All topics whose whole names match, chosen when a batch is planned. Never topics of the"
        " system.",
        f'name the topic to write to with .option("{TOPIC}", …)',
    ),
    Option(
        ASSIGN,
        READS,
        'JSON, `{"orders": [0, 1]}`',
        "",
        "Only these partitions. Give exactly one of `topic`, `subscribe`, `subscribePattern` and"
        " `assign`.",
        f'name the topic to write to with .option("{TOPIC}", …)',
    ),
    Option(
        STARTING_OFFSETS,
        READS,
        '`earliest`, `latest`, or JSON, `{"orders": {"0": 12, "1": -2}}`; of a stream a cut',
        "`earliest`; with `readStream`, `latest`",
        "Where to begin. In JSON, -2 is earliest and -1 latest; name every partition that is read."
        " The topic's name may be left out if one topic is read. A stream begins here once, then"
        " where its checkpoint says.",
        "rows are appended at the end",
    ),
    Option(
        ENDING_OFFSETS,
        frozenset({Use.BATCH}),
        "`latest`, or JSON as above; of a stream a cut",
        "`latest`",
        "The first offsets that are not read.",
        _NO_END,
    ),
    Option(
        STARTING_TIMESTAMP,
        READS,
        "milliseconds since 1970, or a time with its zone, `2026-01-31T12:00:00Z`",
        "",
        "Begin in each partition at the first record of this time or a later one. Takes precedence"
        " over `startingOffsetsByTimestamp`, and both over `startingOffsets`.",
        "rows are appended at the end",
    ),
    Option(
        ENDING_TIMESTAMP,
        frozenset({Use.BATCH}),
        "as `startingTimestamp`",
        "",
        "End in each partition before the first record of this time or a later one; at the end if"
        " there is none.",
        _NO_END,
    ),
    Option(
        STARTING_BY_TIMESTAMP,
        READS,
        'JSON, `{"orders": {"0": 1735689600000}}`, in milliseconds',
        "",
        "As `startingTimestamp`, for each partition.",
        "rows are appended at the end",
    ),
    Option(
        ENDING_BY_TIMESTAMP,
        frozenset({Use.BATCH}),
        "JSON as above",
        "",
        "As `endingTimestamp`, for each partition.",
        _NO_END,
    ),
    Option(
        BY_TIMESTAMP_STRATEGY,
        READS,
        "`error`, `latest`",
        "`error`",
        "What to do in a partition without a record of the starting time or a later one: refuse,"
        " or begin at its end.",
        "rows are appended at the end",
    ),
    Option(
        STARTING_TRANSACTION_ID,
        frozenset({Use.BATCH}),
        "a whole number",
        "",
        "Begin in each partition at the first record with this transaction id or a larger one;"
        " nothing is read where there is none.",
        "give startingOffsets; only spark.read begins at a transaction id",
    ),
    Option(
        MIN_PARTITIONS,
        READS,
        "a number above 0",
        "one for each partition of the topics; 32, if there are more",
        "At least so many tasks where there are enough records: large partitions are split. Where"
        " there are more partitions than this number, small ones share tasks of up to 16 MiB.",
        "Spark's partitions decide; df.repartition(n) changes them",
    ),
    Option(
        MAX_PARTITION_BYTES,
        READS,
        "a size such as `256Mi`, or `0`",
        "`256Mi`",
        "A task reads about so many bytes as stored; larger partitions are split, so a topic of"
        " one partition uses all cores. `0` splits only for `minPartitions`.",
        "it splits what is read",
    ),
    Option(
        FAIL_ON_DATA_LOSS,
        READS,
        "`true`, `false`",
        "`true`",
        "Whether to fail if records of the range were deleted or lost; if not, the rest is read,"
        " with a warning.",
        "it says what a read does about missing records",
    ),
    Option(
        INCLUDE_HEADERS,
        READS,
        "`true`, `false`",
        "`false`",
        "Add the column `headers`, of `array<struct<key: string, value: binary>>`.",
        "give the rows a column headers",
    ),
    Option(
        FOLLOWER_READS,
        READS,
        "`prefer`, `never`",
        "`never`",
        "Whether to read from followers, which relieves the leaders.",
        "leaders take all writes",
    ),
    Option(
        MAX_OFFSETS,
        frozenset({Use.STREAM}),
        "a number above 0",
        "",
        "At most about so many records in one batch, over all partitions.",
        _STREAMS_ONLY,
    ),
    Option(
        MAX_TRIGGER_BYTES,
        frozenset({Use.STREAM}),
        "a size such as `64Mi`",
        "",
        "At most about so many bytes, as stored, in one batch.",
        _STREAMS_ONLY,
    ),
    Option(
        MIN_OFFSETS,
        frozenset({Use.STREAM}),
        "a number above 0",
        "",
        "Wait for so many new records before a batch begins, but no longer than `maxTriggerDelay`.",
        _STREAMS_ONLY,
    ),
    Option(
        MAX_DELAY,
        frozenset({Use.STREAM}),
        "a duration such as `15m`",
        "`15m`",
        "How long to wait for `minOffsetsPerTrigger`.",
        _STREAMS_ONLY,
    ),
    Option(
        ACKS,
        WRITES,
        "`committed`, `leader`, `none`",
        "`committed`",
        "When a record counts as written, as for every producer.",
        "it says when a record counts as written",
    ),
    Option(
        TRANSACTION_ID,
        frozenset({Use.WRITE}),
        "the name of a column",
        "",
        "Take the transaction ids of the records from this column. They must not fall within a"
        " partition of the topic, so one task writes it, in their order; a task that Spark runs"
        " again is refused where its first run had begun.",
        "ids never fall, so a batch that is written again would be refused for ever",
    ),
)
_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


def given_options(options: Mapping[str, str], uses: Collection[Use]) -> dict[str, str]:
    """The options of a read or a write by their names in the table, for any of ``uses``.

    Raises InvalidRequestError for an unknown one, and for one that has no meaning there.
    """
    found: dict[str, str] = {}
    for name, value in options.items():
        if (own := own_name(name)) is None:
            continue
        option = _BY_NAME.get(own)
        if option is None:
            raise InvalidRequestError(_unknown(name, uses))
        if option.uses.isdisjoint(uses):
            where = " and ".join(use.value for use in uses)
            raise InvalidRequestError(
                f"option {option.name} is not for {where}: {option.elsewhere}"
            )
        found[option.name] = value
    return found


def _unknown(name: str, uses: Collection[Use]) -> str:
    if (instead := instead_of(name)) is not None:
        return f"unknown option {name!r}: {instead}"
    names = [option.name for option in OPTIONS if not option.uses.isdisjoint(uses)]
    meant = nearest(name, names)
    hint = f"did you mean {meant}?" if meant else f"known options: {', '.join(names)}"
    return f"unknown option {name!r}; {hint}"
