"""The etcd of a cluster has no space left: the SC says so and what to do, records flow on, nothing
is decided until there is space again, and then everything is."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.chaos.attacks.beside import Neighbours, health
from tests.chaos.attacks.scene import Scene, scene_in, until
from tests.chaos.etcd.test_faults import disarm, fill, maintenance
from tests.chaos.etcd.test_stopped_kv import metrics
from tests.chaos.replication.clients import check_acknowledged, read_back
from tests.contract.kv.etcd_server import Member, require_client, require_etcd, single_member

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402 - after the check above
from schemas.errors import StorageFailedError  # noqa: E402 - after the check above

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]

QUOTA = f"--quota-backend-bytes={16 << 20}"
SAID = "its space is used up, and it takes no writes; compact, defragment, then disarm"


def test_given_an_etcd_without_space_then_it_is_said_and_mended_by_space(tmp_path: Path) -> None:
    with (
        single_member(require_etcd(), tmp_path / "etcd", arguments=[QUOTA]) as etcd,
        scene_in(tmp_path / "home", kv=f"etcd://{etcd.endpoint}") as scene,
        Neighbours(scene.address) as neighbours,
    ):
        until(lambda: len(neighbours.read_at) > 100, "records flow")
        asyncio.run(use_up(etcd))
        until(lambda: health(scene.exposed.sc) == 503, "/health says so")
        assert SAID in health_text(scene)
        assert metrics(scene)["runnel_sc_kv_up"] == 0
        assert metrics(scene)["runnel_sc_leads"] == 1
        checked = scene.command.run("cluster", "check")
        assert checked.returncode == 1
        assert SAID in checked.stdout.decode()
        refused = scene.command.run("create", "topic", "more")
        assert refused.returncode == 1
        assert "disarm the NOSPACE alarm" in refused.stderr.decode()

        assert metrics(scene)["runnel_sc_spu_sessions"] == 3
        read = len(neighbours.read_at)
        until(lambda: len(neighbours.read_at) > read + 500, "records flow on")
        before = leaders(scene)
        os.kill(scene.processes["spu-0"], signal.SIGKILL)
        until(lambda: metrics(scene)["runnel_sc_spu_sessions"] == 3, "the SPU is started again")
        assert leaders(scene) == before, "nothing can be decided"

        asyncio.run(make_room(etcd))
        until(lambda: health(scene.exposed.sc) == 200, "/health is well again")
        until(scene.is_whole, "all is live again")
        scene.command("create", "topic", "more")
        neighbours.stop()
        check_acknowledged(neighbours.acknowledged, read_back(scene.address)[0])


async def use_up(etcd: Member) -> None:
    kv = await EtcdKV.open(EtcdOptions((etcd.endpoint,), keep_revisions=10_000))
    with pytest.raises(StorageFailedError):
        await fill(kv)
    await kv.close()


async def make_room(etcd: Member) -> None:
    """As etcd's documentation says: compact, defragment, disarm."""
    kv = await EtcdKV.open(EtcdOptions((etcd.endpoint,), keep_revisions=10_000))
    await kv.compact(await kv.revision())
    # Compaction frees space in the background, and only then can it be given back.
    for _ in range(3):
        await asyncio.sleep(1)
        await maintenance(kv, "Defragment", "DefragmentRequest")
    await disarm(kv)
    await kv.close()


def leaders(scene: Scene) -> dict[str, object]:
    items = scene.get("/v1/partitions")["items"]
    return {one["metadata"]["name"]: one["status"].get("leader") for one in items}


def health_text(scene: Scene) -> str:
    try:
        with urllib.request.urlopen(f"http://{scene.address}/health", timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
