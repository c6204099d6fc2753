"""A fetcher of a typed topic asks the SC for versions that it does not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runnel.consume import schema_follower
from runnel.consume.fetcher import FetchSettings, PartitionFetcher
from runnel.consume.race import Fetched
from runnel.consume.schema_follower import SchemaFollower
from runnel.consume.speculation import Speculation
from runnel.records.schema_resolution import ReadColumns
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import UnreachableError
from schemas.wire.batch import build_control, read_header
from tests.unit.runnel.records.test_schema_resolution import V1, V2, batch


class Asked:
    """An SC that does not answer at first."""

    def __init__(self, *answers: TopicSchema | Exception | None) -> None:
        self.answers = list(answers)

    async def __call__(self) -> TopicSchema | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def follower(
    monkeypatch: pytest.MonkeyPatch, asked: Asked, data: bytes, give_up_s: float = 30.0
) -> tuple[SchemaFollower, ReadColumns]:
    async def fetch(_self: PartitionFetcher, _offset: int, _term: int) -> Fetched:
        return Fetched(memoryview(data), 9, None)

    monkeypatch.setattr(PartitionFetcher, "fetch", fetch)
    monkeypatch.setattr(schema_follower, "_ASK_AGAIN_S", 0.0)
    columns = ReadColumns(V1)
    route: Any = SimpleNamespace(name="orders", random=lambda: 0.5)
    settings = FetchSettings(1 << 20, 1_000, give_up_s)
    return SchemaFollower(columns, asked, route, 0, settings, Speculation(), -1), columns


NEWER = batch(V2.columns, {"orderId": [3], "note": ["n"]})


async def test_given_an_unknown_version_then_the_sc_is_asked_until_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(UnreachableError("away"), V1, UnreachableError("away"), V2)
    fetcher, columns = follower(monkeypatch, asked, NEWER)
    assert (await fetcher.fetch(0, 0)).data == memoryview(NEWER)
    assert asked.answers == []
    assert columns.knows(read_header(NEWER))


async def test_given_an_sc_that_never_answers_then_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher, _ = follower(monkeypatch, Asked(UnreachableError("away")), NEWER, give_up_s=0.0)
    with pytest.raises(UnreachableError):
        await fetcher.fetch(0, 0)


async def test_given_an_sc_that_never_knows_then_the_batch_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetcher, columns = follower(monkeypatch, Asked(V1), NEWER, give_up_s=0.0)
    assert (await fetcher.fetch(0, 0)).data == memoryview(NEWER)
    assert not columns.knows(read_header(NEWER))


KNOWN = {
    "given-a-version-that-is-known": batch(V1.columns, {"orderId": [1]}),
    "given-a-control-record": bytes(build_control("term", 1)),
    "given-nothing": b"",
    "given-damage": b"x" * 200,
}


@pytest.mark.parametrize("data", KNOWN.values(), ids=KNOWN)
async def test_otherwise_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    fetcher, _ = follower(monkeypatch, Asked(), data)
    assert (await fetcher.fetch(0, 0)).data == memoryview(data)
