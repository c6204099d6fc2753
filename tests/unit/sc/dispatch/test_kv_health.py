"""Since when the KV does not answer, by a clock that the test sets."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sc.dispatch import kv_health
from sc.dispatch.kv_health import KvHealth
from sc.kv.interface import KV
from schemas.errors import (
    ConflictError,
    OverloadedError,
    RunnelError,
    StorageFailedError,
    UnreachableError,
)


class Store:
    """A KV that takes a time to answer, or to fail, or never does."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.takes_ms = 0
        self.error: Exception | None = None
        self.silent = False
        self.unwritable: Exception | None = None
        self.silent_about_writes = False
        self.seen = 1
        self.health = KvHealth(cast(KV, self), lambda: self.now_ms, lambda: self.seen)

    async def revision(self) -> int:
        self.now_ms += self.takes_ms
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return 1

    async def check_writable(self) -> None:
        if self.silent_about_writes:
            await asyncio.Event().wait()
        if self.unwritable is not None:
            raise self.unwritable


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    # Of the clock that the test sets, not of the loop's.
    monkeypatch.setattr(kv_health, "PATIENCE_S", 0.05)
    return Store()


async def test_given_an_answer_then_not_away(store: Store) -> None:
    store.takes_ms = 40
    await store.health.probe()
    assert store.health.away_ms == 0


async def test_given_an_answer_then_it_counts_from_the_question(store: Store) -> None:
    store.now_ms += 60_000
    asked_ms, store.takes_ms = store.now_ms, 40
    await store.health.probe()
    assert store.health.answered_ms == asked_ms
    store.error = UnreachableError("refused")
    await store.health.probe()
    store.error, store.silent = None, True
    await store.health.probe()
    assert store.health.answered_ms == asked_ms


async def test_given_an_error_then_away_since_the_question(store: Store) -> None:
    store.error, store.takes_ms = UnreachableError("refused"), 30
    await store.health.probe()
    assert (store.health.away_ms, store.health.why) == (30, "refused")
    store.now_ms += 1_000
    await store.health.probe()
    assert store.health.away_ms == 1_060


async def test_given_a_kv_that_has_gone_back_then_the_sc_ends(store: Store) -> None:
    store.seen = 2
    with pytest.raises(
        ConflictError, match="at revision 1, and this SC has seen 2: it was emptied"
    ):
        await store.health.probe()


async def test_given_silence_then_away_since_the_question(store: Store) -> None:
    store.silent, store.takes_ms = True, 50
    await store.health.probe()
    assert store.health.away_ms == 50
    assert store.health.why.startswith("no answer")


async def test_given_an_sc_that_stood_still_then_its_kv_is_not_blamed_for_that(
    store: Store,
) -> None:
    store.silent, store.takes_ms = True, 60_000
    await store.health.probe()
    assert store.health.away_ms == 50


async def test_given_an_answer_after_silence_then_not_away(store: Store) -> None:
    store.silent = True
    await store.health.probe()
    store.silent = False
    await store.health.probe()
    assert (store.health.away_ms, store.health.why) == (0, "")


@pytest.mark.parametrize("error", [OverloadedError("full"), StorageFailedError("broken")])
async def test_given_a_kv_that_cannot_be_written_then_that_is_known_and_it_is_not_away(
    error: RunnelError, store: Store
) -> None:
    store.unwritable = error
    await store.health.probe()
    assert (store.health.away_ms, store.health.unwritable) == (0, error.message)
    store.unwritable = None
    await store.health.probe()
    assert store.health.unwritable == ""


async def test_given_silence_about_writes_only_then_not_away(store: Store) -> None:
    store.silent_about_writes = True
    await store.health.probe()
    assert store.health.away_ms == 0
    assert "cannot say" in store.health.unwritable


@pytest.mark.parametrize(
    ("unwritable", "error", "expected"),
    [
        (None, None, None),
        (UnreachableError("no room"), None, "no room"),
        (None, UnreachableError("refused"), "the SC has not reached its KV for 3 s: refused"),
    ],
)
async def test_trouble_is_why_nothing_can_be_written(
    store: Store, unwritable: Exception | None, error: Exception | None, expected: str | None
) -> None:
    store.unwritable, store.error = unwritable, error
    await store.health.probe()
    store.now_ms += 3_000
    assert store.health.trouble == expected
