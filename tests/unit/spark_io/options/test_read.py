"""Options of a read."""

from __future__ import annotations

import pytest

from runnel import TransactionId
from schemas.errors import InvalidRequestError
from spark_io.options.places import Wish
from spark_io.options.read import ReadOptions, TriggerLimits, parse_read_options
from spark_io.options.table import OPTIONS, READS, Option, Use
from spark_io.options.topics import TopicChoice

ORDERS = TopicChoice("topic", ("orders",))


def default_sc() -> str:
    return "default:9003"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"topic": "orders"},
            ReadOptions(
                "default:9003",
                ORDERS,
                Wish("startingOffsets", -2),
                Wish("endingOffsets", -1),
            ),
            id="given-a-topic-then-everything-from-the-default-cluster",
        ),
        pytest.param(
            {
                "SC": "one:1,two:2",
                "Topic": "orders",
                "startingoffsets": "latest",
                "ENDINGOFFSETS": '{"0": 3}',
            },
            ReadOptions(
                "one:1,two:2",
                ORDERS,
                Wish("startingOffsets", -1),
                Wish("endingOffsets", -2, ((None, ((0, 3),)),)),
            ),
            id="given-any-case-then-understood",
        ),
        pytest.param(
            {"topic": "orders", "STARTINGTRANSACTIONID": " 9223372036854775807 "},
            ReadOptions(
                "default:9003",
                ORDERS,
                Wish("startingTransactionId", TransactionId((1 << 63) - 1)),
                Wish("endingOffsets", -1),
            ),
            id="given-a-transaction-id-then-from-there-to-the-end",
        ),
    ],
)
def test_options(options: dict[str, str], expected: ReadOptions) -> None:
    assert parse_read_options(options, default_sc) == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param({}, "option topic is missing", id="given-no-topic-then-refused"),
        pytest.param({"topic": " "}, "option topic is missing", id="given-blank-then-refused"),
        pytest.param({"topic": "a,a"}, "'a' is there twice", id="given-a-topic-twice-then-refused"),
        pytest.param(
            {"topic": "a", "subscribe": "b"},
            "options topic and subscribe: give one of topic, subscribe, subscribePattern, assign",
            id="given-two-choices-then-refused",
        ),
        pytest.param(
            {"subscribePattern": "a("},
            "option subscribePattern: 'a(' is no regular expression",
            id="given-a-bad-pattern-then-refused",
        ),
        pytest.param({"assign": "x"}, "option assign: bad JSON", id="given-a-word-to-assign"),
        pytest.param({"assign": "{}"}, "names no partitions", id="given-nothing-to-assign"),
        pytest.param(
            {"assign": '{"orders": [-1]}'},
            "option assign: [-1] are no partitions of topic 'orders'",
            id="given-a-negative-partition-to-assign",
        ),
        pytest.param(
            {"topic": "a", "minPartitions": "0"},
            "option minPartitions: '0'; give a whole number above 0",
            id="given-no-partitions-then-refused",
        ),
        pytest.param(
            {"topic": "a", "maxBytesPerPartition": "many"},
            "option maxBytesPerPartition: 'many' is not a size",
            id="given-a-bad-size-then-refused",
        ),
        pytest.param(
            {"topic": "a", "failOnDataLoss": "no"},
            "option failOnDataLoss: 'no'; give true or false",
            id="given-a-bad-flag-then-refused",
        ),
        pytest.param(
            {"topic": "a", "maxOffsetsPerTrigger": "5"},
            "option maxOffsetsPerTrigger is not for spark.read: it limits the batches of a stream",
            id="given-an-option-of-streams-then-where-it-belongs",
        ),
        pytest.param(
            {"kafka.bootstrap.servers": "a:1", "topic": "a"},
            'this is an option of Kafka\'s source; name the SC with .option("sc", "HOST:PORT")',
            id="given-kafka's-address-then-what-stands-for-it",
        ),
        pytest.param(
            {"kafka.max.poll.records": "a:1", "topic": "a"},
            "this is a setting of Kafka's client",
            id="given-a-setting-of-kafka's-client-then-said",
        ),
        pytest.param({"topic": "a/b"}, "option topic:", id="given-a-bad-name-then-refused"),
        pytest.param(
            {"topic": "a", "endingOffset": "latest"},
            "unknown option 'endingOffset'; did you mean endingOffsets?",
            id="given-a-typo-then-the-nearest-name",
        ),
        pytest.param(
            {"topic": "a", "zzz": "1"},
            "known options: sc, topic, stream, subscribe, subscribePattern, assign",
            id="given-a-strange-name-then-all-names",
        ),
        pytest.param(
            {"path": "orders"}, "a topic has no path: name it with", id="given-a-path-then-refused"
        ),
        pytest.param({"topic": "a", "sc": "x:y"}, "option sc: ", id="given-a-bad-sc-then-refused"),
        pytest.param(
            {"topic": "a", "endingOffsets": "earliest"},
            "option endingOffsets: ",
            id="given-the-end-at-earliest-then-refused",
        ),
        pytest.param(
            {"topic": "a", "startingTransactionId": "7", "startingOffsets": "earliest"},
            "options startingOffsets and startingTransactionId: a read begins at one place",
            id="given-two-beginnings-then-both-are-named",
        ),
        *(
            pytest.param(
                {"topic": "a", "startingTransactionId": text},
                f"option startingTransactionId: {text!r} is no transaction id; give a whole number"
                " from 0 to 9223372036854775807",
                id=f"given-{name}-then-no-transaction-id",
            )
            for name, text in (
                ("nothing", ""),
                ("a-word", "latest"),
                ("a-negative", "-1"),
                ("a-sign", "+1"),
                ("a-fraction", "1.5"),
                ("other-digits", "٧"),
                ("64-bits", str(1 << 63)),
                ("very-many-digits", "9" * 5_000),
            )
        ),
    ],
)
def test_refusals(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_read_options(options, default_sc)
    assert says in caught.value.message


def test_topics_by_pattern() -> None:
    choice = parse_read_options({"subscribePattern": "or.*"}, default_sc).topics
    assert choice.matching(["orders", "_order", "xor", "orphans"]) == ("orders", "orphans")
    assert choice.only is None


def test_partitions_that_are_assigned() -> None:
    choice = parse_read_options({"assign": '{"a": [2, 0], "b": [1]}'}, default_sc).topics
    assert (choice.names, choice.chosen("a", 3), choice.chosen("b", 2)) == (
        ("a", "b"),
        (0, 2),
        (1,),
    )
    with pytest.raises(InvalidRequestError, match=r"has no partition 2; it has 2 \(0 to 1\)"):
        choice.chosen("a", 2)


def test_how_a_read_is_split_and_what_it_does_about_losses() -> None:
    found = parse_read_options(
        {
            "topic": "orders",
            "minPartitions": "7",
            "maxBytesPerPartition": "1Mi",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "followerReads": "prefer",
        },
        default_sc,
    )
    assert (found.min_partitions, found.max_partition_bytes) == (7, 1 << 20)
    assert (found.fail_on_data_loss, found.include_headers, found.follower_reads) == (
        False,
        True,
        True,
    )
    never = parse_read_options({"topic": "orders", "maxBytesPerPartition": "0"}, default_sc)
    assert never.max_partition_bytes is None


def test_a_stream_begins_at_the_end_and_has_limits() -> None:
    given = {
        "topic": "orders",
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "30s",
        "maxBytesPerTrigger": "64Mi",
    }
    found = parse_read_options(given, default_sc, Use.STREAM)
    assert found.starting == Wish("startingOffsets", -1)
    assert found.limits == TriggerLimits(100, 64 << 20, 10, 30_000)
    with pytest.raises(InvalidRequestError, match="at least 10 and at most 5 records"):
        parse_read_options({**given, "maxOffsetsPerTrigger": "5"}, default_sc, Use.STREAM)


def test_given_several_starts_then_times_take_precedence() -> None:
    given = {
        "topic": "orders",
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"0": 1}',
        "startingTimestamp": "0",
    }
    assert parse_read_options(given, default_sc).starting.option == "startingTimestamp"
    del given["startingTimestamp"]
    assert parse_read_options(given, default_sc).starting.option == "startingOffsetsByTimestamp"


def test_what_the_catalog_adds_is_no_mistake() -> None:
    plain = parse_read_options({"topic": "orders"}, default_sc)
    given = {"owner": "ada", "option.topic": "orders"}
    assert parse_read_options(given, default_sc) == plain


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_says_what_it_means_and_where_it_does_not_belong(option: Option) -> None:
    assert option.text.endswith(".")
    assert bool(option.elsewhere) == (len(option.uses) < len(Use))


def test_where_a_schema_is_asked_for_then_options_of_both_are_known() -> None:
    given = {"topic": "orders", "endingOffsets": "latest", "maxOffsetsPerTrigger": "5"}
    assert parse_read_options(given, default_sc, *READS).topics == ORDERS
