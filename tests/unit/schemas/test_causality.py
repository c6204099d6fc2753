"""Causality ids follow the code that runs, task by task."""

from __future__ import annotations

import asyncio

import pytest

from schemas.causality import caused_by, current_cause, new_cause


def test_outside_of_any_chain() -> None:
    assert current_cause() == "-"


def test_a_new_id_names_its_origin_and_is_unique() -> None:
    ids = {new_cause("spu3") for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(cause.startswith("spu3-") and len(cause) == 17 for cause in ids)


def test_chains_nest_and_end() -> None:
    with caused_by("api-1") as outer:
        assert current_cause() == outer == "api-1"
        with caused_by("timer-2"):
            assert current_cause() == "timer-2"
        assert current_cause() == "api-1"
    assert current_cause() == "-"


def test_given_an_error_then_the_chain_ends_too() -> None:
    with pytest.raises(KeyError), caused_by("api-1"):
        raise KeyError
    assert current_cause() == "-"


async def test_tasks_inherit_the_chain_and_do_not_leak_theirs() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> tuple[str, str]:
        inherited = current_cause()
        with caused_by("child-1"):
            entered.set()
            await leave.wait()
            return inherited, current_cause()

    with caused_by("api-1"):
        task = asyncio.create_task(work())
        await entered.wait()
        assert current_cause() == "api-1"
    leave.set()
    assert await task == ("api-1", "child-1")
