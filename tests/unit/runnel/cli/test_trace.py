"""``trace``: lines of all daemons and changes of objects with one causality id, by time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from runnel.logs.spans import trace_id
from runnel.loop_thread import LoopThread
from tests.unit.runnel.cli.cluster.test_logs import log, spu_at
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.cli.objects.test_events import event
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeSpu


@pytest.fixture
def daemons(sc: FakeSc, spu: FakeSpu) -> tuple[FakeSc, FakeSpu]:
    sc._store(spu_at("edge", 1, spu.port))
    sc.events = [
        event(1, change="created", by="ann"),
        event(5, kind="Partition", name="orders-0", resolution="online", reason=None),
        event(6, cause="api-2"),
    ]
    log(sc.log_ring, 2, "sc", cause="api-1", object="Topic/orders")
    log(sc.log_ring, 3, "sc", cause="api-2")
    log(spu.log_ring, 4, "spu-1", cause="api-1", partition="orders-0")
    return sc, spu


EXPECTED = """\
2026-01-31T12:00:01.000Z sc    topic/orders created by ann: pending (placing partitions)
2026-01-31T12:00:02.500Z sc    info     event 2 object=Topic/orders
2026-01-31T12:00:04.500Z spu-1     info     event 4 partition=orders-0
2026-01-31T12:00:05.000Z sc      partition/orders-0 modified by sc: online (status.reason)
"""


@pytest.mark.usefixtures("daemons")
def test_given_an_id_then_what_it_led_to(command: CommandLine) -> None:
    done = command("trace", "api-1")
    assert (done.code, done.err) == (0, "")
    assert done.out == EXPECTED


@pytest.mark.usefixtures("daemons")
def test_given_json_then_an_object_a_line(command: CommandLine) -> None:
    steps = [json.loads(line) for line in command("trace", "api-1", "-o", "json").out.splitlines()]
    assert [(step["process"], step["object"]) for step in steps] == [
        ("sc", "topic/orders"),
        ("sc", "topic/orders"),
        ("spu-1", "partition/orders-0"),
        ("sc", "partition/orders-0"),
    ]
    assert steps[0]["change"]["by"] == "ann"
    assert steps[1]["line"]["event"] == "event 2"


def test_given_a_change_that_only_the_history_has_then_shown_once(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    sc, _spu = daemons
    sc.add_topic("orders")
    assert sc.events is not None
    older = event(3, by="bob")
    sc.history["topics", "orders"] = [event(9, cause="api-9"), older, sc.events[0]]
    out = command("trace", "api-1").out
    assert out.count("modified by bob") == 1
    assert out.count("created by ann") == 1
    assert len(out.splitlines()) == 5


def test_given_an_spu_that_does_not_answer_then_named_and_5(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    daemons[0]._store(spu_at("far", 2, 1))
    done = command("trace", "api-1")
    assert (done.code, done.out) == (5, EXPECTED)
    assert "warning: spu-2 does not answer" in done.err


def test_given_an_sc_without_events_then_lines_and_a_warning(
    daemons: tuple[FakeSc, FakeSpu], command: CommandLine
) -> None:
    daemons[0].events = None
    done = command("trace", "api-1")
    assert (done.code, len(done.out.splitlines())) == (0, 2)
    assert "the SC is of an earlier version, which lists no events" in done.err


@pytest.mark.usefixtures("daemons")
@pytest.mark.parametrize(("cause", "code"), [("api-9", 3), ("", 2), ("x" * 300, 2)])
def test_given_no_such_id_then_an_error(cause: str, code: int, command: CommandLine) -> None:
    done = command("trace", cause)
    assert (done.code, done.out) == (code, "")
    assert "error: " in done.err


@dataclass
class Collector:
    """Takes traces as OTLP over HTTP, and answers as it is told."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    answer: str = "{}"
    port: int = 0

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        self.requests.append(await request.json())
        return web.Response(status=self.status, text=self.answer)


@pytest.fixture
def collector() -> Iterator[Collector]:
    thread, found = LoopThread("collector"), Collector()
    runner = thread.call(found.start())
    yield found
    thread.call(runner.cleanup())
    thread.stop()


@pytest.mark.usefixtures("daemons")
def test_given_a_collector_then_it_gets_the_trace(
    command: CommandLine, collector: Collector
) -> None:
    done = command("trace", "api-1", "--otlp", f"http://127.0.0.1:{collector.port}")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"sent as trace {trace_id('api-1')}\n"
    (request,) = collector.requests
    shown = {
        entry["resource"]["attributes"][0]["value"]["stringValue"]: [
            span["name"] for scope in entry["scopeSpans"] for span in scope["spans"]
        ]
        for entry in request["resourceSpans"]
    }
    assert shown == {
        "sc": ["api-1", "topic/orders", "partition/orders-0"],
        "spu-1": ["partition/orders-0"],
    }


@pytest.mark.usefixtures("daemons")
@pytest.mark.parametrize(
    ("status", "answer", "code", "message"),
    [
        (503, "later", 5, "answers 503: later"),
        (404, "no such page", 2, "does not take spans of OTLP as JSON: it answers 404"),
        (200, "<html>", 2, "is no collector of OTLP: it answers <html>"),
        (
            *(200, '{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "full"}}'),
            *(2, "refused 2 spans: full"),
        ),
        (200, '{"partialSuccess": {}}', 0, ""),
        (200, "", 0, ""),
    ],
)
def test_what_a_collector_answers(
    status: int,
    answer: str,
    code: int,
    message: str,
    command: CommandLine,
    collector: Collector,
) -> None:
    collector.status, collector.answer = status, answer
    done = command("trace", "api-1", "--otlp", f"http://127.0.0.1:{collector.port}/v1/traces")
    assert done.code == code, done.err
    assert message in done.err
    assert bool(done.out) == (code == 0)


@pytest.mark.usefixtures("daemons")
@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("http://127.0.0.1:1", 5, "no collector answers at http://127.0.0.1:1/v1/traces"),
        ("localhost:4318", 2, "is no URL of a collector; write http://HOST:4318"),
        ("http://[x", 2, "is no URL"),
        ("http://ann:hidden@127.0.0.1:1", 5, "no collector answers at http://127.0.0.1:1/"),
    ],
)
def test_no_collector(url: str, code: int, message: str, command: CommandLine) -> None:
    done = command("trace", "api-1", "--otlp", url)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "hidden" not in done.err
