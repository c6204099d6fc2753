"""Shared states: what changes do, and that no client's is lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runnel import aio
from runnel.shared_state.state import (
    MAX_BYTES,
    Deleted,
    Patched,
    SharedValue,
    SharedValuesState,
    change_value,
)
from schemas.errors import CorruptBatchError, InvalidRequestError, UnsupportedError
from tests.unit.runnel.conftest import World

KIND = SharedValuesState()


def folded(*patches: dict[str, Any]) -> dict[str, SharedValue]:
    state = KIND.empty()
    for patch in patches:
        state = KIND.apply(state, Patched("s", patch, "me", 1))
    return state


@pytest.mark.parametrize(
    ("patches", "value"),
    [
        ([], None),
        ([{}], {}),
        ([{"a": 1}, {"b": [1, 2]}], {"a": 1, "b": [1, 2]}),
        ([{"a": {"x": 1, "y": 2}}, {"a": {"x": None, "z": {}}}], {"a": {"y": 2, "z": {}}}),
        ([{"b": [1, 2]}, {"b": [3]}], {"b": [3]}),
    ],
)
def test_a_value_is_the_fold_of_its_patches(
    patches: list[dict[str, Any]], value: dict[str, Any] | None
) -> None:
    state = folded(*patches)
    assert (state["s"].value if "s" in state else None) == value
    assert KIND.read_state(json.loads(json.dumps(KIND.pack_state(state)))) == state
    assert KIND.apply(state, Deleted("s")) == {}
    for update in (Patched("s", {"a": None}, "me", 2), Deleted("s")):
        assert KIND.read_update(json.loads(json.dumps(KIND.pack_update(update)))) == update


def deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"d": value} if level % 2 else [value]
    return value


def test_given_a_value_as_deep_as_it_may_be_then_every_client_reads_it() -> None:
    (update,) = change_value({}, "s", lambda _value: {"a": deep(99)}, "me", 1)
    state = KIND.apply({}, KIND.read_update(json.loads(json.dumps(KIND.pack_update(update)))))
    assert state["s"].value == {"a": deep(99)}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (5, "gave 5; give a mapping of the fields to change"),
        ({"a": {1, 2}}, "cannot be written as JSON: Object of type set"),
        ({"a": float("nan")}, "cannot be written as JSON"),
        ({"a": deep(101)}, "mappings or lists in each other more than 100 deep"),
        ({"a": "x" * MAX_BYTES}, r"would have 1,048,\d\d\d bytes, and may have 1,048,576"),
    ],
)
def test_refused_changes(patch: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        change_value({}, "s", lambda _value: patch, "me", 1)


def test_given_a_change_that_changes_nothing_then_nothing_is_written() -> None:
    state = folded({"a": {"b": 1}})
    for patch in (None, {}, {"a": {"b": 1}}, {"c": None}):
        assert change_value(state, "s", lambda _value, p=patch: p, "me", 1) == ()  # type: ignore[misc]

    def spoil(value: dict[str, Any]) -> None:
        value["a"]["b"] = 2

    assert change_value(state, "s", spoil, "me", 1) == ()
    assert state["s"].value == {"a": {"b": 1}}


def test_given_an_update_of_a_later_version_then_said() -> None:
    with pytest.raises(UnsupportedError, match="'moved' of shared states are not known"):
        KIND.read_update({"kind": "moved"})


async def test_given_many_clients_then_no_change_is_lost(world: World) -> None:
    async def count(number: int) -> None:
        async with aio.connect(world.sc.address, by=f"client-{number}") as cluster:
            state = cluster.state("runs")
            for _ in range(5):
                await state.update(lambda value: {"count": value.get("count", 0) + 1})

    assert await world.cluster.state("runs").read() == {}
    await asyncio.gather(*map(count, range(6)))
    state = world.cluster.state("runs")
    assert await state.read() == {"count": 30}
    assert await state.version() == 30
    with pytest.raises(ZeroDivisionError):
        await state.update(lambda value: {"count": value["count"] // 0})
    await state.delete()
    assert await state.read() == {}
    assert await world.cluster.state("never").version() == 0


async def test_refusals(world: World) -> None:
    with pytest.raises(InvalidRequestError, match="name of a state"):
        world.cluster.state("Not a name")
    await world.cluster.state("s").update(lambda _value: {"a": 1})
    uids = world.sc.uids["_states"]
    (log,) = [world.spu.logs[uid] for uid in uids if world.spu.logs[uid].end]
    from tests.unit.runnel.records.test_cursor import batch

    log.put(bytearray(batch(log.end, 1)))
    with pytest.raises(CorruptBatchError, match="is no entry of a state log"):
        await world.cluster.state("s").read()
