"""The contract on an etcd in a container, and what can be done to a container only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sc.kv.interface import Put
from schemas.errors import DeadlineExceededError

from .etcd_container import (
    EtcdContainer,
    etcd_container,
    require_docker,
    skip_without_docker,
    static_programs,
)
from .etcd_server import require_client

require_client()
skip_without_docker()

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402 - after the check that it can be imported

from .etcd_traffic import traffic  # noqa: E402
from .test_etcd import EtcdContract, empty  # noqa: E402

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdContainer]:
    require_docker()
    with etcd_container(tmp_path_factory.mktemp("image")) as container:
        yield container


@pytest.fixture(scope="module")
def etcd_binary() -> Path:
    return static_programs()[0]


@pytest.fixture(scope="module")
def endpoint(container: EtcdContainer) -> str:
    return container.endpoint


@pytest.mark.slow
class TestEtcdContainer(EtcdContract):
    pass


@pytest.fixture
async def kv(endpoint: str) -> AsyncIterator[EtcdKV]:
    store = await EtcdKV.open(EtcdOptions((endpoint,), request_timeout_ms=3_000))
    await empty(store)
    yield store
    await store.close()


async def test_given_what_the_client_wrote_then_the_own_program_of_etcd_reads_it(
    kv: EtcdKV, container: EtcdContainer
) -> None:
    await kv.txn((), [Put("ctl/a", b"one"), Put("ctl/b", b"two")])
    printed = await asyncio.to_thread(container.etcdctl, "get", "--prefix", "ctl/")
    assert printed.splitlines() == ["ctl/a", "one", "ctl/b", "two"]


async def test_given_container_paused_while_a_watch_follows_then_every_write_is_told_once(
    kv: EtcdKV, container: EtcdContainer, endpoint: str
) -> None:
    async with traffic(EtcdOptions((endpoint,))):
        await asyncio.to_thread(container.pause)
        with pytest.raises(DeadlineExceededError, match="unknown"):
            await kv.txn((), [Put("paused", b"")])
        await asyncio.to_thread(container.unpause)


async def test_given_container_restarted_then_data_stay_and_the_client_resumes(
    kv: EtcdKV, container: EtcdContainer, endpoint: str
) -> None:
    kept = await kv.txn((), [Put("kept", b"!")])
    async with traffic(EtcdOptions((endpoint,))):
        started = container.started_at
        await asyncio.to_thread(container.restart)
        assert container.started_at > started
        assert container.endpoint == endpoint
    found = await kv.get("kept")
    assert found is not None
    assert (found.value, found.mod_revision) == (b"!", kept.revision)
