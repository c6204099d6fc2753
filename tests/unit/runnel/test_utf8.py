"""Half of a character, which UTF-8 cannot express, wherever a client turns text into bytes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from runnel.aio import Producer
from runnel.cli.records.escapes import unescaped
from runnel.cli.records.inputs import _key_bytes
from schemas.errors import InvalidRequestError
from tests.unit.runnel.conftest import World

HALF = "a\ud800"
WHY = r": '\\ud800' is half of a character, which UTF-8 cannot express"


@pytest.mark.parametrize(
    ("send", "what"),
    [
        pytest.param(lambda to: to.send(HALF), "the value", id="given-a-value"),
        pytest.param(lambda to: to.send(b"v", HALF), "the key", id="given-a-key"),
        pytest.param(
            lambda to: to.send(b"v", headers={HALF: b"1"}),
            "the name of a header",
            id="given-a-header",
        ),
    ],
)
async def test_send(world: World, send: Callable[[Producer], object], what: str) -> None:
    world.sc.add_topic("orders")
    async with world.cluster.producer("orders") as producer:
        with pytest.raises(InvalidRequestError, match=f"^{what}{WHY}"):
            send(producer)
        assert (await producer.send("ä", "ö", headers={"ü": b"1"})).offset == 0


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        pytest.param(
            lambda world: world.cluster.get("topic", HALF), "name of a topic", id="given-an-object"
        ),
        pytest.param(
            lambda world: world.cluster.read(HALF), "name of the topic", id="given-a-topic-to-read"
        ),
    ],
)
async def test_names(world: World, ask: Callable[[World], Awaitable[object]], what: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{what}{WHY}"):
        await ask(world)


def test_given_an_option_of_a_command_that_is_not_utf8_then_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"^--format: '\\udcff' is half of a character"):
        unescaped(r"%k\t" + b"\xff".decode(errors="surrogateescape"), "--format")
    with pytest.raises(InvalidRequestError, match=r"^--format: '\\udcff' is half of a character"):
        unescaped(b"\xff".decode(errors="surrogateescape") + r"\t", "--format")


def test_given_a_key_in_json_then_refused() -> None:
    with pytest.raises(InvalidRequestError, match=f"^the key{WHY}"):
        _key_bytes(json.loads(r'"a\ud800"'))
