"""What keeps a rolling restart from beginning, and from going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from runnel.admin.one_shot import OneShotCalls
from runnel.cli.failure import EXIT_FAILED, EXIT_NOT_NOW, exit_code
from runnel.local import rolling
from runnel.local.rolling import order_of, require_kv, restart_spus
from runnel.local.state import DataDirectory, SpuProcess
from schemas.daemon.process import ProcessId
from schemas.errors import (
    DeadlineExceededError,
    NotReadyError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from tests.unit.sc.builders import partition_of


class ScriptedSc:
    """An SC whose health is an error, or good."""

    def __init__(self, error: RunnelError | None) -> None:
        self._error = error

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/health")
        if self._error is not None:
            raise self._error
        return {}


def health(error: RunnelError | None) -> dict[str, OneShotCalls]:
    return {"sc-0": cast("OneShotCalls", ScriptedSc(error))}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            NotReadyError("the SC has not reached its KV for 12 s", kvAwayMs=12_000),
            EXIT_NOT_NOW,
        ),
        (NotReadyError("etcd is full", kvUnwritable=True), EXIT_FAILED),
    ],
    ids=["away", "full"],
)
def test_given_a_kv_that_takes_nothing_then_nothing_is_restarted(
    error: RunnelError, code: int
) -> None:
    with pytest.raises(RunnelError, match=rf"^sc-0: {error.message}; it could not start") as failed:
        require_kv(health(error))
    assert exit_code(failed.value) == code


@pytest.mark.parametrize(
    "error",
    [None, NotReadyError("no SC leads yet"), UnreachableError("no answer in time")],
    ids=["healthy", "not-ready", "silent"],
)
def test_given_another_state_then_a_restart_may_help(error: RunnelError | None) -> None:
    require_kv(health(error))


def live(*spus: int) -> dict[str, Any]:
    """Led by the first of these, which are the live replicas."""
    return {
        "resolution": PartitionResolution.ONLINE,
        "leader": spus[0],
        "lrs": tuple(LiveReplica(spu_id=spu, storage_id=f"disk-{spu}") for spu in spus),
    }


@pytest.mark.parametrize(
    ("partition", "stops"),
    [
        pytest.param(partition_of(replicas=(1, 2), **live(1, 2)), True, id="all-live"),
        pytest.param(partition_of(replicas=(1, 2), **live(2)), False, id="one-is-missing"),
        pytest.param(partition_of(replicas=(1, 2, 3), **live(1, 2)), False, id="one-of-three"),
        pytest.param(partition_of(replicas=(1, 2)), False, id="nobody-leads"),
        pytest.param(partition_of(replicas=(1,), **live(1)), True, id="it-has-no-others"),
        pytest.param(partition_of(replicas=(1,)), True, id="it-has-no-others-and-no-leader"),
        pytest.param(
            partition_of(replicas=(3, 2), joining=(3,), leaving=(1,), **live(1, 2)),
            True,
            id="one-joins-and-two-are-live",
        ),
        pytest.param(
            partition_of(replicas=(3, 2), joining=(3,), leaving=(1,), **live(2)),
            False,
            id="one-joins-and-one-is-live",
        ),
        pytest.param(
            partition_of(replicas=(3, 2), joining=(3,), **live(2)),
            False,
            id="one-is-added-and-one-is-live",
        ),
        pytest.param(
            partition_of(replicas=(3,), joining=(3,), leaving=(1,), **live(1)),
            True,
            id="the-only-one-moves",
        ),
    ],
)
def test_an_spu_stops_only_while_another_one_can_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: Partition, stops: bool
) -> None:
    class Directory(DataDirectory):
        def spus(self) -> list[SpuProcess]:
            return [SpuProcess("spu-2", 2, ProcessId(1, "now"), {})]

        def runs(self, spu: SpuProcess) -> bool:
            return True

    class Partitions:
        def call(self, method: str, path: str) -> Any:
            assert (method, path) == ("GET", "/v1/partitions")
            return {"items": [partition.to_json()]}

    stopped: list[ProcessId] = []
    monkeypatch.setattr(rolling, "stop", stopped.extend)
    monkeypatch.setattr(rolling, "WHOLE_S", 0.0)
    # One that stops does not come back here.
    said = "spu-2 was stopped, and is not back" if stops else r"spu-2 was not restarted: .* t-0: "
    with pytest.raises(DeadlineExceededError, match=rf"^{said}"):
        restart_spus(Directory(tmp_path), cast("OneShotCalls", Partitions()), lambda _: None)
    assert bool(stopped) == stops


@pytest.mark.parametrize(
    ("roles", "order"),
    [
        ({"sc-0": "leader", "sc-1": "standby", "sc-2": "standby"}, ["sc-1", "sc-2", "sc-0"]),
        ({"sc-0": "standby", "sc-2": "leader"}, ["sc-1", "sc-0", "sc-2"]),
        ({}, ["sc-0", "sc-1", "sc-2"]),
    ],
    ids=["all-well", "one-says-nothing", "all-say-nothing"],
)
def test_the_order_of_a_rolling_restart(roles: dict[str, str], order: list[str]) -> None:
    running = {name: ProcessId(1, "now") for name in ("sc-2", "sc-1", "spu-1", "sc-0", "etcd-0")}
    assert order_of(roles, running) == order
