"""A start of a local cluster whose SC has some SPUs that do not come, against a stand-in for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from runnel.local import starting
from runnel.local.plan import ClusterPlan
from runnel.local.starting import Progress, Startup, without_logs
from runnel.local.state import ClusterState, DataDirectory
from schemas.errors import DeadlineExceededError, RunnelError
from schemas.objects.metadata import Metadata
from schemas.objects.spu import Spu, SpuResolution, SpuSpec, SpuStatus
from schemas.objects.spu_group import CHANGED, NOT_FOLLOWED, SpuGroupStatus
from tests.ports import free_base_port

TROUBLE = "spu-1: its process ended (exit code 1): identity.json is damaged"


def _spu(number: int, status: SpuStatus) -> Spu:
    return Spu(metadata=Metadata(name=f"spu-{number}"), spec=SpuSpec(spu_id=number), status=status)


async def _start(
    plan: ClusterPlan,
    online: tuple[int, ...],
    trouble: str | None,
    *,
    again: bool,
    progress: Progress = lambda _: None,
) -> Startup:
    """Bring up a cluster with this many SPUs online, of which all are asked for."""
    group = plan.spu_group.model_copy(update={"status": SpuGroupStatus(reason=trouble)})
    spus = [
        _spu(number, SpuStatus(resolution=SpuResolution.ONLINE))
        if number in online
        else _spu(number, SpuStatus(resolution=SpuResolution.OFFLINE, reason="no disk"))
        for number in range(plan.spus)
    ]

    def answer(body: Any) -> Any:
        async def handle(_: web.Request) -> web.Response:
            return web.json_response(body)

        return handle

    app = web.Application()
    app.router.add_get("/health", answer({"status": "ok", "revision": 7}))
    app.router.add_get("/v1/spugroups/spu", answer(group.to_json()))
    app.router.add_get("/v1/spus", answer({"items": [spu.to_json() for spu in spus]}))
    app.router.add_get("/v1/partitions", answer({"items": []}))
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", plan.base_port).start()
        directory = DataDirectory(plan.data_dir)
        startup = Startup(directory, plan, ClusterState.of(plan, {}), progress)
        startup.again = again
        await asyncio.to_thread(startup.bring_up, [])
    finally:
        await runner.cleanup()
    return startup


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterPlan:
    monkeypatch.setattr(starting, "TROUBLE_S", 0.05)
    monkeypatch.setattr(starting, "ONLINE_TIMEOUT_S", 0.3)
    return ClusterPlan(tmp_path, base_port=free_base_port(tmp_path, 2), spus=2)


def test_a_later_start_goes_on_without_an_spu_in_trouble(plan: ClusterPlan) -> None:
    startup = asyncio.run(_start(plan, (0,), TROUBLE, again=True))
    (absent,) = startup.absent
    assert "spu-1: no disk" in absent
    assert str(plan.data_dir / "logs" / "spu-1.log") in absent


def test_a_later_start_goes_on_without_an_spu_that_is_only_late(plan: ClusterPlan) -> None:
    startup = asyncio.run(_start(plan, (0,), None, again=True))
    assert len(startup.absent) == 1


def test_a_start_names_the_spus_that_it_still_waits_for(plan: ClusterPlan) -> None:
    said: list[str] = []
    asyncio.run(_start(plan, (0,), None, again=True, progress=said.append))
    assert said.index("waiting for the SPUs") < said.index("waiting for spu-1")


@pytest.mark.parametrize(("online", "again"), [((0,), False), ((), True)])
def test_a_first_start_and_one_without_any_spu_fail(
    plan: ClusterPlan, online: tuple[int, ...], again: bool
) -> None:
    with pytest.raises(RunnelError, match=r"identity.json is damaged") as failed:
        asyncio.run(_start(plan, online, TROUBLE, again=again))
    logs = plan.data_dir / "logs"
    assert failed.value.message == f"{TROUBLE}\nIts log is in {logs}"
    assert without_logs(failed.value.message) == TROUBLE


def test_a_start_in_which_all_come_misses_none(plan: ClusterPlan) -> None:
    assert asyncio.run(_start(plan, (0, 1), None, again=True)).absent == []


#: At which ports an SPU was started last, and what the SC says of it.
At = tuple[ClusterPlan, SpuResolution]


class MovingSc:
    """An SC that restarts two SPUs at other ports: the next step each time that it is asked for
    them."""

    def __init__(self, plan: ClusterPlan, steps: list[tuple[At, At]]) -> None:
        self.steps = steps
        self.reason: str | None = None
        #: The plan by which the group was made.
        self.group = plan
        self._plan = plan
        for number, (ports, _) in enumerate(steps[0]):
            self._write(number, ports)

    def _write(self, number: int, plan: ClusterPlan) -> None:
        file = self._plan.data_dir / "spus" / f"spu-{number}.process.json"
        file.parent.mkdir(exist_ok=True)
        process = {"pid": 1, "started": "now"}
        ports = plan.spu_ports(number)
        file.write_text(json.dumps({"spuId": number, "process": process, "ports": ports}))

    def call(self, _method: str, path: str, body: object = None) -> Any:
        if path == "/health":
            return {"revision": 7}
        if path == "/v1/spugroups/spu":
            status = SpuGroupStatus(reason=self.reason)
            return self.group.spu_group.model_copy(update={"status": status}).to_json()
        if path == "/v1/partitions":
            return {"items": []}
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        for number, (ports, _) in enumerate(step):
            self._write(number, ports)
        spus = [_spu(number, SpuStatus(resolution=said)) for number, (_, said) in enumerate(step)]
        return {"items": [spu.to_json() for spu in spus]}


def _start_at_other_ports(
    plan: ClusterPlan, sc: MovingSc, monkeypatch: pytest.MonkeyPatch
) -> Startup:
    monkeypatch.setattr(starting, "OneShotCalls", lambda *_: sc)
    startup = Startup(DataDirectory(plan.data_dir), plan, ClusterState.of(plan, {}), lambda _: None)
    startup.again = True
    startup.bring_up([])
    return startup


def test_a_start_at_other_ports_ends_when_all_spus_serve_there(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (replace(plan, base_port=plan.base_port + 100), SpuResolution.ONLINE)
    away, there = (plan, SpuResolution.OFFLINE), (plan, SpuResolution.ONLINE)
    steps = [(before, before), (before, away), (before, there), *[(away, there)] * 2]
    steps.append((there, there))
    sc = MovingSc(plan, steps)
    assert _start_at_other_ports(plan, sc, monkeypatch).notes == []
    assert sc.steps == [(there, there)]


def test_a_start_that_gives_the_spus_other_ports_says_which(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = (plan, SpuResolution.ONLINE)
    sc = MovingSc(plan, [(there, there)])
    sc.group = replace(plan, base_port=plan.base_port + 100)
    (note,) = _start_at_other_ports(plan, sc, monkeypatch).notes
    old, new = plan.base_port + 110, plan.base_port + 10
    assert f"spu-0 had {old} and {old + 1}, and has {new} and {new + 1}" in note


WAITS = f"{CHANGED} spu-0: waiting until spu-1 is connected"


@pytest.mark.parametrize("reason", [WAITS, f"{NOT_FOLLOWED} spu-0: waiting until spu-1 is back"])
def test_an_spu_that_moves_is_in_no_trouble(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    # Whoever is in trouble is given up at once.
    monkeypatch.setattr(starting, "TROUBLE_S", 0.0)
    monkeypatch.setattr(starting, "ONLINE_TIMEOUT_S", 1_000.0)
    away, there = (plan, SpuResolution.OFFLINE), (plan, SpuResolution.ONLINE)
    sc = MovingSc(plan, [(there, away), (there, away), (there, there)])
    sc.reason = reason
    assert _start_at_other_ports(plan, sc, monkeypatch).absent == []


def test_an_spu_in_trouble_is_not_waited_for_because_others_move(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ONLINE_TIMEOUT_S", 1_000.0)
    sc = MovingSc(plan, [((plan, SpuResolution.ONLINE), (plan, SpuResolution.OFFLINE))])
    sc.reason = f"{WAITS}; {TROUBLE}"
    (absent,) = _start_at_other_ports(plan, sc, monkeypatch).absent
    assert absent.startswith("spu-1: ")


def test_a_start_at_other_ports_says_that_an_spu_does_not_move_yet(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "MOVE_TIMEOUT_S", 0.1)
    before = replace(plan, base_port=plan.base_port + 100)
    there = (plan, SpuResolution.ONLINE)
    sc = MovingSc(plan, [(there, (before, SpuResolution.ONLINE))])
    (note,) = _start_at_other_ports(plan, sc, monkeypatch).notes
    said = f"still moving to the ports from {plan.base_port}, one after the other: spu-1; "
    assert note.startswith(said)


def test_a_start_whose_sc_never_answers_ends(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "START_TIMEOUT_S", 0.2)
    startup = Startup(DataDirectory(plan.data_dir), plan, ClusterState.of(plan, {}), lambda _: None)
    with pytest.raises(DeadlineExceededError, match=r"not ready within 0\.2 s") as failed:
        startup.bring_up([])
    assert "runnel cluster logs" in failed.value.message
    assert without_logs(failed.value.message).endswith("what its daemons said last: nothing")
