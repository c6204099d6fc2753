"""Sealing a topic while the SC comes and goes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from runnel.admin.calls import NotConnectedError
from runnel.admin.client import Admin
from runnel.partition.sealing import Sealed, seal
from schemas.errors import DeadlineExceededError, RunnelError, UnreachableError
from schemas.objects.metadata import Metadata, OwnerReference
from schemas.objects.partition import Partition, PartitionSpec, PartitionStatus
from schemas.objects.topic import Topic, TopicSpec


class Scripted:
    """An SC whose calls fail with the next of some errors; None answers."""

    def __init__(self, *script: RunnelError | None, sealed: bool = True) -> None:
        self.script = list(script)
        self.calls: list[str] = []
        self.end = 7 if sealed else None

    def _next(self, call: str) -> None:
        self.calls.append(call)
        if self.script and (error := self.script.pop(0)) is not None:
            raise error

    async def patch(self, kind: str, name: str, change: Any) -> Any:
        self._next("patch")
        return Topic(metadata=Metadata(name=name, uid="u1"), spec=TopicSpec(partitions=1))

    async def list(self, kind: str, query: Any) -> list[Any]:
        self._next("list")
        owner = OwnerReference(kind="Topic", name="t", uid="u1")
        return [
            Partition(
                metadata=Metadata(name="t-0", uid="p"),
                spec=PartitionSpec(owner=owner, index=0, replicas=(1,), preferred_leader=1),
                status=PartitionStatus(sealed_offset=self.end),
            )
        ]


AWAY = UnreachableError("away")


@pytest.mark.parametrize("script", [(), (None, AWAY, AWAY), (AWAY, None), (AWAY, AWAY, None, AWAY)])
async def test_given_an_sc_that_restarts_then_it_is_asked_again(
    script: tuple[RunnelError | None, ...],
) -> None:
    sc = Scripted(*script)
    assert await seal(cast(Admin, sc), "t", 5) == (Sealed(0, 7),)
    assert len(sc.calls) == 2 + len([one for one in script if one])


async def test_given_no_sc_at_all_then_it_says_so_at_once() -> None:
    sc = Scripted(NotConnectedError("nobody"), None)
    with pytest.raises(UnreachableError, match="nobody"):
        await seal(cast(Admin, sc), "t", 5)
    assert sc.calls == ["patch"]


async def test_given_an_sc_that_stays_away_then_it_ends_at_the_deadline() -> None:
    sc = Scripted(None, *[AWAY] * 50)
    with pytest.raises(UnreachableError, match="away"):
        await seal(cast(Admin, sc), "t", 0.2)
    with pytest.raises(DeadlineExceededError, match="t-0 is"):
        await seal(cast(Admin, Scripted(sealed=False)), "t", 0.01)
