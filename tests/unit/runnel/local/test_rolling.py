"""What keeps a rolling restart from beginning."""

from __future__ import annotations

from typing import Any, cast

import pytest

from runnel.admin.one_shot import OneShotCalls
from runnel.local.rolling import order_of, require_kv
from schemas.daemon.process import ProcessId
from schemas.errors import ConflictError, NotReadyError, RunnelError, UnreachableError


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
    "error",
    [
        NotReadyError("the SC has not reached its KV for 12 s", kvAwayMs=12_000),
        NotReadyError("etcd is full", kvUnwritable=True),
    ],
    ids=["away", "full"],
)
def test_given_a_kv_that_takes_nothing_then_nothing_is_restarted(error: RunnelError) -> None:
    with pytest.raises(ConflictError, match=rf"^sc-0: {error.message}; it could not start again"):
        require_kv(health(error))


@pytest.mark.parametrize(
    "error",
    [None, NotReadyError("no SC leads yet"), UnreachableError("no answer in time")],
    ids=["healthy", "not-ready", "silent"],
)
def test_given_another_state_then_a_restart_may_help(error: RunnelError | None) -> None:
    require_kv(health(error))


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
