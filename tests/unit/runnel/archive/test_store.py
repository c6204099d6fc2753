"""The list of files against a scripted SPU: once its topic is deleted, nothing is listed."""

from __future__ import annotations

from runnel.archive.manifest import TopicArchive, add
from runnel.archive.store import ArchiveStore
from schemas.errors import NotFoundError
from tests.unit.runnel.archive.builders import UID, added
from tests.unit.runnel.conftest import World

TOPIC = "_archive"


async def test_given_a_deleted_list_then_a_client_that_knew_it_finds_nothing_listed(
    world: World,
) -> None:
    async def make() -> None:
        world.sc.add_topic(TOPIC)
        world.cluster._leaders.forget(TOPIC)

    async def truncate(_partition: str, _before: int) -> None:
        raise AssertionError("there is not enough for a snapshot")

    store = ArchiveStore(lambda: world.cluster._route(TOPIC), make, truncate, lambda: "id")
    assert await store.archive(UID) == TopicArchive("")
    await store.update(UID, lambda state: add(state, added(None, 0, 10)))
    assert (await store.archive(UID)).partition(0).before == 10
    world.sc.remove_topic(TOPIC)
    world.spu.fetch_script.append(NotFoundError("it does not hold the partition", spu=1))
    assert await store.archive(UID) == TopicArchive("")
