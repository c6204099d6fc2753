"""Which truncations are refused, and what one says that the SC has not noted in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.partition import truncate as module
from runnel.partition.truncate import Before, truncate
from schemas.errors import DeadlineExceededError, InvalidRequestError
from schemas.objects.manifest.validation import parse_model
from schemas.objects.partition import Truncation
from tests.unit.runnel.conftest import World


class SilentAdmin:
    """An SC that notes the truncation of some partitions, and then says nothing more."""

    def __init__(self, noted: int) -> None:
        self._left = noted

    async def truncate_partition(self, _name: str, _before: int, *, force: bool) -> None:
        if self._left == 0:
            await asyncio.Event().wait()
        self._left -= 1


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        (0, "the SC has noted no truncation of topic 'orders' within 0.0123 s; one that"),
        (1, "within 0.0123 s; the SC has noted it for partitions: 0. Those follow"),
    ],
)
async def test_given_an_sc_that_falls_silent_then_what_it_has_noted_is_said(
    monkeypatch: pytest.MonkeyPatch, noted: int, said: str
) -> None:
    async def place(*_arguments: object) -> SimpleNamespace:
        return SimpleNamespace(log_before=3, before=3)

    monkeypatch.setattr(module, "_place", place)
    admin: Any = SilentAdmin(noted)
    route: Any = SimpleNamespace(name="orders")
    with pytest.raises(DeadlineExceededError) as raised:
        await truncate(admin, route, (0, 1), 3, 0.012345)
    assert said in raised.value.message


@pytest.mark.parametrize("before", [True, {0: True}, 1 << 63, {0: 1 << 63}, -1], ids=repr)
async def test_given_what_is_no_offset_then_it_is_refused(world: World, before: Before) -> None:
    world.sc.add_topic("orders")
    with pytest.raises(InvalidRequestError, match=r"^before .*an offset is a whole number from 0"):
        await world.cluster.truncate("orders", before)


@pytest.mark.parametrize("before", [True, -1, 1 << 63], ids=repr)
def test_given_a_body_with_no_offset_then_it_is_refused(before: object) -> None:
    with pytest.raises(InvalidRequestError, match="before"):
        parse_model(Truncation, {"before": before})
