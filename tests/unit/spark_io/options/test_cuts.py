"""Where a read of a stream of Runnel begins and ends, as users write it."""

from __future__ import annotations

import pytest

from runnel import StreamCut
from schemas.errors import InvalidRequestError
from spark_io.options.cuts import StreamRange
from spark_io.options.read import parse_read_options
from spark_io.options.table import Use

CUT = StreamCut("shop/orders", "u", {0: 5})


@pytest.mark.parametrize(
    ("options", "use", "wanted"),
    [
        ({}, Use.BATCH, StreamRange("shop/orders", "earliest", "latest")),
        ({}, Use.STREAM, StreamRange("shop/orders", "latest", "latest")),
        (
            {"startingOffsets": " Earliest "},
            Use.STREAM,
            StreamRange("shop/orders", "earliest", "latest"),
        ),
        (
            {"startingOffsets": str(CUT), "endingOffsets": f" {CUT} "},
            Use.BATCH,
            StreamRange("shop/orders", CUT, CUT),
        ),
    ],
)
def test_what_is_read(options: dict[str, str], use: Use, wanted: StreamRange) -> None:
    parsed = parse_read_options({"stream": "shop/orders", **options}, lambda: "h:1", use)
    assert parsed.stream == wanted
    assert not parsed.topics.many


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": "a/b/c"}, "option stream: 'a/b/c' is not SCOPE/NAME"),
        ({"stream": "s", "topic": "t"}, "options stream and topic: topic is of topics"),
        ({"stream": "s", "startingTimestamp": "5"}, "options stream and startingTimestamp"),
        ({"stream": "s", "endingOffsets": "earliest"}, "give latest or a stream cut"),
        ({"stream": "s", "startingOffsets": "{}"}, "option startingOffsets: '{}'; of a stream"),
        ({"topic": "shop/orders"}, "option topic: 'shop/orders' is a stream; give it as stream"),
        ({"stream": "s", "endingOffsets": "s/t@x"}, "option endingOffsets: not a stream cut"),
        (
            {"stream": "s", "endingOffsets": str(CUT)},
            "stream shop/orders, not of default/s",
        ),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        parse_read_options(options, lambda: "h:1")


def test_a_stream_is_not_written_to() -> None:
    with pytest.raises(InvalidRequestError, match="option stream is not for"):
        parse_read_options({"stream": "s"}, lambda: "h:1", Use.WRITE)
