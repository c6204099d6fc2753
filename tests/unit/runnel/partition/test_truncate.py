"""What a truncation says that the SC has not noted, or not all of it, in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.partition import truncate as module
from runnel.partition.truncate import truncate
from schemas.errors import DeadlineExceededError


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
