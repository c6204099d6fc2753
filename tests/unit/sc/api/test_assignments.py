"""The assignment feed: one revision in each answer, however long it takes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sc.api import assignments as assignments_module
from sc.api.assignments import assignments
from sc.mirror import Mirror
from schemas.objects.partition import PartitionResolution, taking_over
from tests.unit.sc.builders import partition_of, spu_of, topic_of, view_of


async def test_given_changes_while_an_answer_is_made_then_it_is_of_the_revision_it_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignments_module, "SLICE", 1)
    online = PartitionResolution.ONLINE
    found = [
        partition_of(topic, n, resolution=online, leader=1, revision=5)
        for topic in ("t", "u")
        for n in range(3)
    ]
    view = view_of(topic_of("t"), topic_of("u"), spu_of(1), *found)
    store = view.store
    mirror: Any = SimpleNamespace(store=store, keys=SimpleNamespace(cluster="c"), cluster_uid="u")
    before = store.revision
    answering = asyncio.create_task(assignments(cast(Mirror, mirror), frozenset()))
    await asyncio.sleep(0)
    for partition in found:
        topic = partition.spec.owner.name
        store.put(partition_of(topic, partition.spec.index or 0, revision=9))
    store.revision = before + 4
    answer = await answering
    assert answer.revision == before
    assert [[p.leader for p in one.partitions] for one in answer.topics] == [[1, 1, 1]] * 2
    again = await assignments(cast(Mirror, mirror), frozenset())
    assert again.revision == before + 4
    assert [[p.leader for p in one.partitions] for one in again.topics] == [[None] * 3] * 2


@pytest.mark.parametrize(
    ("resolution", "leader", "reason", "told"),
    [
        pytest.param(PartitionResolution.ONLINE, 1, None, 1, id="online"),
        pytest.param(PartitionResolution.SEALED, 1, None, 1, id="sealed"),
        pytest.param(PartitionResolution.OFFLINE, 1, taking_over(1), 1, id="taking-over"),
        pytest.param(PartitionResolution.OFFLINE, 1, "SPU 1 is offline", None, id="leader-lost"),
        pytest.param(PartitionResolution.OFFLINE, None, None, None, id="nobody"),
        pytest.param(PartitionResolution.OFFLINE, 9, taking_over(9), None, id="not-registered"),
    ],
)
async def test_where_clients_are_sent(
    resolution: PartitionResolution, leader: int | None, reason: str | None, told: int | None
) -> None:
    partition = partition_of("t", 0, resolution=resolution, leader=leader, reason=reason)
    store = view_of(topic_of("t"), spu_of(1), partition).store
    mirror: Any = SimpleNamespace(store=store, keys=SimpleNamespace(cluster="c"), cluster_uid="u")
    ((found,),) = [
        topic.partitions for topic in (await assignments(cast(Mirror, mirror), frozenset())).topics
    ]
    assert (found.leader, found.endpoint is not None) == (told, told is not None)
