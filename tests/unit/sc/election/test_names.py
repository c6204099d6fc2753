"""That no two SCs run under one name, and what is known of an earlier process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from sc.election import names
from sc.election.names import claim_name, own_process
from sc.kv import open_kv
from sc.kv.interface import KV, Put
from schemas.control.controllers import ControllerEntry
from schemas.daemon.process import is_alive
from schemas.errors import ConflictError
from schemas.objects.keys import ClusterKeys
from tests.processes import half_ended
from tests.unit.sc.builders import SC

KEYS = ClusterKeys("test")
ME = SC.model_copy(update={"instance": "me"})


@pytest.fixture
async def kv(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KV]:
    monkeypatch.setattr(names, "LOOK_S", 0.01)
    monkeypatch.setattr(names, "MORE_S", 0.1)
    store = await open_kv("memory:")
    yield store
    await store.close()


async def listed(kv: KV, entry: ControllerEntry, lease_ms: int = 60_000) -> None:
    lease = await kv.lease_grant(lease_ms)
    value = entry.model_dump_json(by_alias=True).encode()
    await kv.txn([], [Put(KEYS.sc(entry.name), value, lease)])


async def test_given_nobody_then_the_name_is_free(kv: KV) -> None:
    assert await claim_name(kv, KEYS, ME, 0) is None


@pytest.fixture
def ended() -> dict[str, object]:
    """What a process says that has ended by now."""
    script = "import json; from sc.election import names; print(json.dumps(names.own_process()))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


async def test_given_a_process_of_this_machine_that_has_ended_then_it_is_known_at_once(
    kv: KV, ended: dict[str, object]
) -> None:
    await listed(kv, SC.model_copy(update={**ended, "instance": "before"}))
    assert await claim_name(kv, KEYS, ME, 0) == "before"


async def test_given_a_process_of_this_machine_that_runs_then_refused_at_once(kv: KV) -> None:
    await listed(kv, SC.model_copy(update={**own_process(), "instance": "other"}))
    with pytest.raises(ConflictError, match="set advertisedHost") as refused:
        await claim_name(kv, KEYS, ME, 3_600_000)
    assert f"process {os.getpid()} of this machine" in refused.value.message


async def test_given_a_process_of_this_machine_that_was_killed_then_its_end_is_waited_for(
    kv: KV,
) -> None:
    with half_ended(0.3) as there:
        known = {**own_process(), "pid": there.pid, "started": there.started}
        await listed(kv, SC.model_copy(update={**known, "instance": "before"}))
        assert await claim_name(kv, KEYS, ME, 60_000) == "before"
        assert not is_alive(there)


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param({}, id="given-one-that-does-not-say"),
        pytest.param({"started": "another-boot/1"}, id="given-another-machine"),
        pytest.param({"pid_namespace": "pid:[1]"}, id="given-another-container"),
    ],
)
async def test_given_one_elsewhere_then_its_lease_tells(kv: KV, elsewhere: dict[str, str]) -> None:
    known = {**own_process(), **elsewhere} if elsewhere else {}
    entry = SC.model_copy(update={**known, "instance": "other"})
    await listed(kv, entry, lease_ms=50)
    assert await claim_name(kv, KEYS, ME, 1_000) is None, "its lease has ended meanwhile"
    await listed(kv, entry)
    with pytest.raises(ConflictError, match="elsewhere"):
        await claim_name(kv, KEYS, ME, 0)


async def test_given_an_entry_of_a_later_version_then_its_lease_tells(kv: KV) -> None:
    await kv.txn([], [Put(KEYS.sc(SC.name), b"\xff")])
    with pytest.raises(ConflictError):
        await claim_name(kv, KEYS, ME, 0)
