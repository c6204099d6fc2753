"""An SC whose KV does not answer, or whose answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sc.kv.interface import KV, Compare, Op, Put, TxnResult
from sc.restored_kv import Divergence
from schemas.errors import DeadlineExceededError, UnreachableError
from schemas.objects.spu import Spu, SpuResolution
from tests.integration.sc.calls import call, created, online
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually


async def test_given_an_answer_in_a_recovery_is_lost_then_the_sc_goes_on_and_ends_it(
    kv: KV, sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for the recovery again: the SPU that made the SC begin it never returns."""
    commit, key = kv.txn, sc.controller.keys.identity
    lost = 0
    monkeypatch.setattr("sc.recoveries._AGAIN_S", 0.05)

    async def lose_answer(
        compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        nonlocal lost
        result = await commit(compares, success, failure)
        # That to its beginning, and the first two to its end.
        if lost < 3 and any(isinstance(op, Put) and op.key == key for op in success):
            lost += 1
            raise DeadlineExceededError("no answer")
        return result

    controller = sc.controller
    await created(sc, "Topic", "before", {"partitions": 1})
    await sc.until("topics", "before", "insufficientResources")
    monkeypatch.setattr(kv, "txn", lose_answer)
    with pytest.raises(DeadlineExceededError):
        await controller.recoveries._begin(Divergence(1, "it has seen more", 1), "sc")
    await eventually(lambda: controller.view.incarnation == 1)
    await eventually(lambda: not controller.view.recovering)
    assert lost == 3
    await created(sc, "Topic", "after", {"partitions": 1})
    await sc.until("topics", "after", "insufficientResources")
    assert controller.leadership.identity.recovery is not None
    assert controller.leadership.identity.recovery.why == "it has seen more"


async def metric(sc: RunningSc, name: str) -> float:
    async with sc.http.get(f"{sc.public}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SC that asks its KV often, and does not wait for it for long."""
    monkeypatch.setattr("sc.controller.PROBE_S", 0.02)
    monkeypatch.setattr("sc.mirror.PROBE_S", 0.02)
    monkeypatch.setattr("sc.store.suspicions.RECONNECT_MS", 50)
    monkeypatch.setattr("sc.controller.KV_LOST_MS", 200)
    monkeypatch.setattr("sc.controller.KV_GRACE_MS", 1_000)
    monkeypatch.setattr("sc.api.cluster_answers.KV_AWAY_MS", 100)


@pytest.mark.usefixtures("impatient")
async def test_given_the_kv_is_away_then_the_sc_says_so_and_lets_its_spus_go(
    kv: KV, sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = kv.revision

    async def no_answer() -> int:
        raise UnreachableError("etcd 10.0.0.1:2379: connection refused")

    async with online(sc, 1):
        monkeypatch.setattr(kv, "revision", no_answer)
        health: Any = None

        async def says_so() -> bool:
            nonlocal health
            status, health = await call(sc, "GET", "/health")
            return status == 503

        await eventually(says_so)
        assert health["code"] == "NOT_READY"
        assert "has not reached its KV" in health["message"]
        assert "connection refused" in health["message"]
        assert (await metric(sc, "runnel_sc_kv_up")) == 0
        assert (await metric(sc, "runnel_sc_kv_away_seconds")) >= 0.1
        await eventually(lambda: not sc.controller.view.sessions)
        # Nothing is decided about an SPU that cannot come back, however long it takes.
        await asyncio.sleep(0.4)
        spu = sc.controller.view.store.get(Spu, "spu-1")
        assert spu is not None
        assert spu.status.resolution is not SpuResolution.OFFLINE
        monkeypatch.setattr(kv, "revision", ask)
    await eventually(lambda: sc.controller.kv_health.away_ms == 0)
    assert (await call(sc, "GET", "/health"))[0] == 200
    assert (await metric(sc, "runnel_sc_kv_up")) == 1
    assert (await metric(sc, "runnel_sc_kv_away_seconds")) == 0


@pytest.mark.usefixtures("impatient")
async def test_given_the_kv_is_away_then_health_names_that_before_it_fails(
    kv: KV, sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer() -> int:
        raise UnreachableError("etcd 10.0.0.1:2379: connection refused")

    monkeypatch.setattr("sc.api.cluster_answers.KV_AWAY_MS", 3_600_000)
    with monkeypatch.context() as away:
        away.setattr(kv, "revision", no_answer)
        await eventually(lambda: sc.controller.kv_health.away_ms > 0)
        status, health = await call(sc, "GET", "/health")
        assert status == 200
        assert "has not reached its KV" in health["trouble"]
    await eventually(lambda: sc.controller.kv_health.away_ms == 0)
    assert "trouble" not in (await call(sc, "GET", "/health"))[1]


@pytest.mark.usefixtures("impatient")
async def test_given_the_kv_is_away_then_lists_come_from_the_mirror(
    kv: KV, sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await created(sc, "Topic", name, {})

    async def no_answer(*_args: object, **_options: object) -> Any:
        raise UnreachableError("etcd 10.0.0.1:2379: connection refused")

    with monkeypatch.context() as away:
        away.setattr(kv, "revision", no_answer)
        away.setattr(kv, "range", no_answer)
        await eventually(lambda: sc.controller.kv_health.away_ms > 0)
        status, found = await call(sc, "GET", "/v1/topics?limit=2")
        assert (status, [one["metadata"]["name"] for one in found["items"]]) == (200, ["a", "b"])
        # A history is in the KV alone; it is not asked, as each version would wait for it.
        status, error = await call(sc, "GET", "/v1/topics/a/history")
        assert (status, error["code"]) == (503, "NOT_READY")
        assert "the KV keeps the history" in error["message"]
        assert "retryAfterMs" not in error["details"]
    await eventually(lambda: sc.controller.kv_health.away_ms == 0)
    status, rest = await call(sc, "GET", f"/v1/topics?limit=2&continue={found['continue']}")
    assert (status, [one["metadata"]["name"] for one in rest["items"]]) == (200, ["c"])
    assert "continue" not in rest
