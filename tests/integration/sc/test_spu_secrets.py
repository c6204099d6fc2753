"""Secrets of SPUs over a real SC: made, put in force by their first use, asked for from then on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from sc.kv.interface import KV, Compare, Op, Put, TxnResult, range_all
from schemas.control.messages import FindPeers
from schemas.errors import (
    DeadlineExceededError,
    NotFoundError,
    RunnelError,
    StorageFailedError,
)
from schemas.objects.keys import ClusterKeys
from tests.integration.sc.calls import call, register, secret_of
from tests.integration.sc.conftest import RunningSc, run_sc
from tests.polling import eventually
from tests.simulated_spu import SimulatedSpu

KEYS = ClusterKeys("test")


async def connects(sc: RunningSc, secret: str | None, spu_id: int = 1) -> str:
    """What comes of connecting as an SPU: "proven", "unproven", or why it is turned away."""
    spu = SimulatedSpu(spu_id, sc.private)
    spu.held_secret = secret
    async with spu:
        await eventually(
            lambda: spu.session is not None or spu.link.trouble not in (None, "not connected yet")
        )
        if spu.session is None:
            return str(spu.link.trouble)
        unproven = (await sc.call("GET", "/v1/cluster"))[1]["unproven"]
    await sc.until("spus", f"spu-{spu_id}", "offline")
    return "unproven" if unproven == [spu_id] else "proven"


async def test_given_no_secret_then_connected_as_before(sc: RunningSc) -> None:
    await register(sc, 1)
    assert await connects(sc, None) == "unproven"
    assert await connects(sc, "x" * 43) == "unproven", "of a cluster whose KV was restored"


async def test_given_secret_then_in_force_once_it_was_used(sc: RunningSc) -> None:
    await register(sc, 1)
    secret = await secret_of(sc, 1)
    assert await connects(sc, None) == "unproven", "it was not brought to the SPU yet"
    assert await connects(sc, secret) == "proven"
    assert "SPU 1 has not proven itself" in await connects(sc, None)
    assert "SPU 1 does not know its secret" in await connects(sc, "x" * 43)
    assert await connects(sc, secret) == "proven"


async def test_given_another_secret_then_the_first_one_holds_until_the_other_is_used(
    sc: RunningSc,
) -> None:
    await register(sc, 1)
    first = await secret_of(sc, 1)
    assert await connects(sc, first) == "proven"
    lost, second = await secret_of(sc, 1), await secret_of(sc, 1)
    assert "does not know its secret" in await connects(sc, lost)
    assert await connects(sc, first) == "proven"
    assert await connects(sc, second) == "proven"
    assert "does not know its secret" in await connects(sc, first)


FULL = StorageFailedError("etcd h:1: database space exceeded; compact, defragment, then disarm")
SLOW = DeadlineExceededError("no answer in time, the outcome is unknown")


def refuse_secrets(kv: KV, patch: pytest.MonkeyPatch, error: RunnelError) -> None:
    """The KV takes no write of a secret."""
    txn = kv.txn

    async def refused(
        compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        if any(isinstance(op, Put) and op.key == KEYS.spu_secret(1) for op in success):
            raise error
        return await txn(compares, success, failure)

    patch.setattr(kv, "txn", refused)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        pytest.param(FULL, 500, "SPU 1 gets no new secret", id="given-a-full-kv"),
        pytest.param(
            SLOW, 504, "whether SPU 1 has a new secret is not known", id="given-no-answer"
        ),
    ],
)
async def test_given_a_kv_that_takes_no_new_secret_then_the_one_in_force_stays_and_the_error_helps(
    sc: RunningSc,
    kv: KV,
    monkeypatch: pytest.MonkeyPatch,
    error: RunnelError,
    status: int,
    said: str,
) -> None:
    await register(sc, 1)
    first = await secret_of(sc, 1)
    assert await connects(sc, first) == "proven"
    with monkeypatch.context() as patch:
        refuse_secrets(kv, patch, error)
        found, answer = await call(sc, "POST", "/v1/spus/spu-1/secret", by="ann")
    assert (found, answer["code"]) == (status, error.code.name)
    assert said in answer["message"]
    assert error.message in answer["message"]
    assert "stays valid" in answer["message"]
    assert "runnel spu secret NAME" in answer["message"]
    assert await connects(sc, first) == "proven"


async def test_given_a_kv_that_cannot_put_a_new_secret_in_force_then_its_spu_is_let_in(
    sc: RunningSc, kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(sc, 1)
    first = await secret_of(sc, 1)
    assert await connects(sc, first) == "proven"
    second = await secret_of(sc, 1)
    with monkeypatch.context() as patch:
        refuse_secrets(kv, patch, FULL)
        assert await connects(sc, second) == "proven"
        assert await connects(sc, first) == "proven", "the other one is not in force yet"
    assert await connects(sc, second) == "proven"
    assert "does not know its secret" in await connects(sc, first)


async def test_given_secret_then_nothing_shows_it(sc: RunningSc, kv: KV) -> None:
    await register(sc, 1)
    secret = await secret_of(sc, 1)
    assert await connects(sc, secret) == "proven"
    pages = [i async for page in range_all(kv, KEYS.root) for i in page.items]
    assert not any(secret.encode() in item.value for item in pages)
    stored = next(item for item in pages if item.key == KEYS.spu_secret(1))
    assert json.loads(stored.value)["by"] == "ann"
    verifier = json.loads(stored.value)["current"]
    for path in ("/v1/spus/spu-1", "/v1/spus", "/v1/spus/spu-1/history", "/v1/cluster"):
        answer = json.dumps((await sc.call("GET", path))[1])
        assert secret not in answer
        assert verifier not in answer


async def test_given_sc_restarted_then_the_secret_is_in_force(kv: KV) -> None:
    async with run_sc(kv) as sc:
        await register(sc, 1)
        secret = await secret_of(sc, 1)
        assert await connects(sc, secret) == "proven"
    async with run_sc(kv) as sc:
        assert "has not proven itself" in await connects(sc, None)
        assert await connects(sc, secret) == "proven"


async def test_given_spu_deleted_then_its_secret_goes_with_it(sc: RunningSc, kv: KV) -> None:
    await register(sc, 1)
    secret = await secret_of(sc, 1)
    assert await connects(sc, secret) == "proven"
    assert (await call(sc, "DELETE", "/v1/spus/spu-1"))[0] in (200, 202)
    assert await kv.get(KEYS.spu_secret(1)) is None
    await register(sc, 1)
    assert await connects(sc, None) == "unproven"


async def test_given_secret_without_an_spu_then_the_repair_removes_it(
    sc: RunningSc, kv: KV
) -> None:
    await kv.txn([], [Put(KEYS.spu_secret(9), b"{}")])
    await sc.controller.repair()
    assert await kv.get(KEYS.spu_secret(9)) is None


async def test_given_no_such_spu_then_no_secret(sc: RunningSc) -> None:
    assert (await call(sc, "POST", "/v1/spus/absent/secret"))[0] == 404
    with pytest.raises(NotFoundError):
        await sc.controller.secrets.issue(9, "ann")


async def test_given_secret_that_cannot_be_read_then_turned_away_and_told_what_to_do(
    sc: RunningSc, kv: KV
) -> None:
    await register(sc, 1)
    await kv.txn([], [Put(KEYS.spu_secret(1), b"?")])
    assert f"({KEYS.spu_secret(1)}) cannot be read" in await connects(sc, None)


async def test_given_secrets_required_then_spus_without_one_are_turned_away(kv: KV) -> None:
    async with run_sc(kv, require_secrets=True) as sc:
        await register(sc, 1)
        assert "requireSpuSecrets is set" in await connects(sc, None)
        assert await connects(sc, await secret_of(sc, 1)) == "proven"


async def keys_of(sc: RunningSc, secrets: dict[int, str]) -> dict[int, dict[int, str | None]]:
    """The keys that SPUs 1 to 3 get for each other, with these secrets in their files."""
    async with AsyncExitStack() as stack:
        spus = {}
        for spu_id in (1, 2, 3):
            spus[spu_id] = SimulatedSpu(spu_id, sc.private)
            spus[spu_id].held_secret = secrets.get(spu_id)
            await stack.enter_async_context(spus[spu_id])
        await eventually(lambda: all(spu.session is not None for spu in spus.values()))
        keys: dict[int, dict[int, str | None]] = {}
        for spu_id, spu in spus.items():
            assert spu.session is not None
            await spu.session.request(FindPeers(spu_ids=(1, 2, 3)))
            await eventually(lambda spu=spu: len(spu.peers) == 1)
            keys[spu_id] = {peer.spu_id: peer.key for peer in spu.peers[0].peers}
    return keys


async def test_given_a_secret_that_is_not_in_force_yet_then_its_spu_and_its_peers_get_no_key(
    sc: RunningSc, kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(sc, 1, 2, 3)
    secrets = {spu_id: await secret_of(sc, spu_id) for spu_id in (1, 2, 3)}
    for spu_id in (2, 3):
        assert await connects(sc, secrets[spu_id], spu_id) == "proven"
    with monkeypatch.context() as patch:
        refuse_secrets(kv, patch, FULL)
        keys = await keys_of(sc, secrets)
    assert keys[1] == {1: None, 2: None, 3: None}
    assert keys[2][1] is keys[3][1] is None
    assert keys[2][3] == keys[3][2] is not None
    keys = await keys_of(sc, secrets)
    assert keys[1][2] == keys[2][1] is not None


async def test_given_both_proven_then_they_get_the_same_key_and_others_get_none(
    sc: RunningSc, kv: KV
) -> None:
    await register(sc, 1, 2, 3)
    secrets = {spu_id: await secret_of(sc, spu_id) for spu_id in (1, 2)}
    await secret_of(sc, 3)  # It is not brought to the SPU.
    keys = await keys_of(sc, secrets)
    assert keys[1][2] == keys[2][1]
    assert keys[1][2] is not None
    assert keys[1][1] != keys[1][2] != keys[2][2]
    assert keys[1][3] is keys[2][3] is None
    assert keys[3] == {1: None, 2: None, 3: None}
    pages = [i async for page in range_all(kv, KEYS.root) for i in page.items]
    assert not any(str(keys[1][2]).encode() in item.value for item in pages)
