"""Options of a read."""

from __future__ import annotations

import pytest

from runnel import TransactionId
from schemas.errors import InvalidRequestError
from spark_io.offsets import OffsetWish
from spark_io.options import ReadOptions, parse_read_options


def default_sc() -> str:
    return "default:9003"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"topic": "orders"},
            ReadOptions(
                "default:9003",
                "orders",
                OffsetWish("startingOffsets", -2),
                OffsetWish("endingOffsets", -1),
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
                "orders",
                OffsetWish("startingOffsets", -1),
                OffsetWish("endingOffsets", -2, ((0, 3),)),
            ),
            id="given-any-case-then-understood",
        ),
        pytest.param(
            {"topic": "orders", "STARTINGTRANSACTIONID": " 9223372036854775807 "},
            ReadOptions(
                "default:9003",
                "orders",
                TransactionId((1 << 63) - 1),
                OffsetWish("endingOffsets", -1),
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
        pytest.param({"topic": "a,b"}, "one read takes one topic", id="given-two-then-refused"),
        pytest.param({"topic": "a/b"}, "option topic:", id="given-a-bad-name-then-refused"),
        pytest.param(
            {"topic": "a", "endingOffset": "latest"},
            "unknown option 'endingOffset'; did you mean endingOffsets?",
            id="given-a-typo-then-the-nearest-name",
        ),
        pytest.param(
            {"topic": "a", "zzz": "1"},
            "known options: sc, topic, startingOffsets, startingTransactionId, endingOffsets",
            id="given-a-strange-name-then-all-names",
        ),
        pytest.param({"path": "orders"}, "load() takes no path", id="given-a-path-then-refused"),
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
