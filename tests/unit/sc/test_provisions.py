"""Two SCs that would each start the SPUs of the same groups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sc.config import ScConfig
from sc.main import _entry, _watching_provisions, check_provisions
from sc.mirror import Mirror
from schemas.errors import InvalidRequestError

WHY = r"starts managed SPUs in .*leave provisioning out here"


def config(port: int, directory: Path | None) -> ScConfig:
    provisioning = {} if directory is None else {"provisioning": {"directory": str(directory)}}
    return ScConfig.model_validate({"kv": "memory:", "public": {"port": port}, **provisioning})


@pytest.mark.parametrize(
    ("here", "there", "is_refused"),
    [("a", "a", False), ("a", None, False), (None, "a", False), ("a", "b", True)],
    ids=["one-directory", "not-there", "not-here", "both"],
)
def test_who_may_start_managed_spus(
    tmp_path: Path, here: str | None, there: str | None, is_refused: bool
) -> None:
    mine, other = (
        config(port, None if name is None else tmp_path / name)
        for port, name in ((9003, here), (9005, there))
    )
    me, listed = _entry(mine, 9003, 9004), _entry(other, 9005, 9006)
    if is_refused:
        with pytest.raises(InvalidRequestError, match=WHY):
            check_provisions(me, [listed])
    else:
        check_provisions(me, [listed])


@pytest.mark.parametrize(
    ("since", "ends"),
    [("2026-01-01T00:00:00Z", True), ("2026-01-01T00:00:09Z", False)],
    ids=["earlier", "later"],
)
async def test_given_two_that_were_started_together_then_the_later_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str, ends: bool
) -> None:
    monkeypatch.setattr("sc.main.LOOK_AT_OTHERS_S", 0.001)
    me = _entry(config(9003, tmp_path / "a"), 9003, 9004)
    other = _entry(config(9005, tmp_path / "b"), 9005, 9006)
    me = me.model_copy(update={"since": "2026-01-01T00:00:05Z"})
    other = other.model_copy(update={"since": since})
    mirror = SimpleNamespace(controllers={me.name: me})
    over = asyncio.Event()

    async def working() -> None:
        await over.wait()

    running = asyncio.create_task(_watching_provisions(working(), cast(Mirror, mirror), me))
    await asyncio.sleep(0.01)
    mirror.controllers[other.name] = other
    await asyncio.sleep(0.01)
    assert running.done() is ends
    over.set()
    if ends:
        with pytest.RaisesGroup(pytest.RaisesExc(InvalidRequestError, match=WHY)):
            await running
    else:
        await running
