"""Calls while no SC leads: nothing was done, so they are made again until one does, or in vain; and
calls where an SC stands still: the next one is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from runnel.admin import calls
from runnel.admin.calls import NotConnectedError, Presence, ScCalls, not_an_sc, unreachable
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.admin.sse import ServerEvent
from runnel.cli.pipelines import _sender
from runnel.client.links import Links
from runnel.manifests import Topic
from runnel.net.address import Address, parse_addresses
from schemas.errors import (
    DeadlineExceededError,
    NotFoundError,
    NotReadyError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.pipeline import PipelineReport, ReportedState
from schemas.streams.cuts import StreamCut
from tests.unit.runnel.conftest import World

BUSY = NotReadyError("no SC leads at the moment", retryAfterMs=200)


class ScriptedCalls(ScCalls):
    """Gives what it is told, and notes the addresses that were asked and the pauses."""

    def __init__(self, *answers: RunnelError | str) -> None:
        super().__init__(parse_addresses("a:1,b:2"))
        self.answers = list(answers)
        self.asked: list[str] = []
        self.silent: set[str] = set()
        self.gone: set[str] = set()
        self.away: set[str] = set()
        self.looked: list[str] = []
        self.pauses: list[float] = []
        #: Those that go on when some time has passed.
        self.back: set[str] = set()

    async def _call_one(
        self,
        address: Address,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
    ) -> Any:
        self.asked.append(address.host)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, RunnelError):
            raise found
        return found

    async def _look_at(self, address: Address) -> Presence:
        self.looked.append(address.host)
        if address.host in self.away:
            return Presence.AWAY
        if address.host in self.gone:
            return Presence.GONE
        return Presence.SILENT if address.host in self.silent else Presence.THERE

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.silent -= self.back


def result_of(scripted: ScriptedCalls, method: str = "POST") -> Any:
    return asyncio.run(scripted.call(method, "/v1/topics"))


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_given_an_election_then_the_call_waits_for_its_end(method: str) -> None:
    scripted = ScriptedCalls(BUSY, BUSY, "done")
    assert result_of(scripted, method) == "done"
    assert scripted.pauses == [0.2, 0.2]


def test_given_the_sc_that_leads_is_gone_then_another_one_says_when_to_ask_again() -> None:
    gone = NotConnectedError("connection refused")
    scripted = ScriptedCalls(gone, BUSY, gone, "done")
    assert result_of(scripted) == "done"
    assert scripted.asked == ["a", "b", "a", "b"]


def test_given_nobody_is_elected_then_the_error_comes_in_time() -> None:
    scripted = ScriptedCalls(BUSY)
    scripted.not_ready_s = -1.0
    with pytest.raises(NotReadyError, match="no SC leads"):
        result_of(scripted)
    assert scripted.pauses == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NotReadyError("the SC is starting"), id="given-another-reason"),
        pytest.param(NotReadyError("x", retryAfterMs="soon"), id="given-a-time-that-is-none"),
    ],
)
def test_given_another_error_then_it_is_raised_at_once(error: RunnelError) -> None:
    scripted = ScriptedCalls(error)
    with pytest.raises(type(error)):
        result_of(scripted)
    assert scripted.pauses == []
    assert scripted.asked == ["a"]


WRITES = ["POST", "PUT", "PATCH", "DELETE"]


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize(
    "before", [[], [BUSY], [NotConnectedError("connection refused"), BUSY]], ids=["", "2nd", "3rd"]
)
def test_given_a_write_that_may_have_been_done_then_no_other_sc_gets_it(
    method: str, before: list[RunnelError]
) -> None:
    """Another one would delete what somebody has made anew since, or undo another's write."""
    broke = unreachable(parse_addresses("a:1")[0], "the connection broke")
    scripted = ScriptedCalls(*before, broke, BUSY, "done")
    with pytest.raises(UnreachableError) as raised:
        result_of(scripted, method)
    assert not isinstance(raised.value, NotConnectedError)
    assert raised.value.message == (
        "no SC answers at a:1 (the connection broke), and whether this was done is not known: look"
        " with runnel get or describe, then repeat it if it was not"
    )
    assert len(scripted.asked) == len(before) + 1


@pytest.mark.parametrize("method", WRITES)
def test_given_a_write_that_nobody_got_then_the_next_sc_gets_it(method: str) -> None:
    scripted = ScriptedCalls(NotConnectedError("connection refused"), "done")
    assert result_of(scripted, method) == "done"
    assert scripted.asked == ["a", "b"]


def test_given_a_question_without_an_answer_then_the_next_sc_is_asked() -> None:
    scripted = ScriptedCalls(UnreachableError("it broke"), "done")
    assert result_of(scripted, "GET") == "done"
    assert scripted.asked == ["a", "b"]


UNKNOWN = DeadlineExceededError("whether a write was done is not known")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("error", [UNKNOWN, UnreachableError("it broke")], ids=["proxied", "own"])
def test_given_a_repeatable_request_then_it_is_sent_until_its_outcome_is_known(
    error: RunnelError, method: str
) -> None:
    scripted = ScriptedCalls(error, BUSY, error, "done")
    asked = scripted.call(method, "/v1/streams/s/one/seal", repeatable=True)
    assert asyncio.run(asked) == "done"
    assert scripted.pauses == [0.5, 0.2, 0.5]
    late = ScriptedCalls(error)
    late.not_ready_s = -1.0
    with pytest.raises(type(error)):
        asyncio.run(late.call("POST", "/v1/streams/s/one/seal", repeatable=True))


def test_given_an_unknown_outcome_then_it_is_said_even_if_nobody_is_there_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown, nobody = UnreachableError("it broke"), NotConnectedError("connection refused")
    back = ScriptedCalls(unknown, nobody, nobody, "done")
    assert asyncio.run(back.call("POST", "/v1/streams/s/one/seal", repeatable=True)) == "done"
    passed_s = 0.0
    monkeypatch.setattr("runnel.admin.calls.time.monotonic", lambda: passed_s)

    class LateCalls(ScriptedCalls):
        async def _pause(self, seconds: float) -> None:
            nonlocal passed_s
            await super()._pause(seconds)
            passed_s += 2 * self.not_ready_s

    gone = LateCalls(unknown, nobody)
    with pytest.raises(UnreachableError, match="it broke"):
        asyncio.run(gone.call("POST", "/v1/streams/s/one/seal", repeatable=True))
    assert gone.asked == ["a", "a", "b"]
    unled = LateCalls(unknown, BUSY)
    with pytest.raises(UnreachableError, match="it broke"):
        asyncio.run(unled.call("POST", "/v1/streams/s/one/seal", repeatable=True))


def test_given_a_first_answer_that_took_long_in_vain_then_the_request_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed_s = 0.0
    monkeypatch.setattr("runnel.admin.calls.time.monotonic", lambda: passed_s)

    class SlowCalls(ScriptedCalls):
        async def _call_one(self, *arguments: Any) -> Any:
            nonlocal passed_s
            passed_s += calls.REQUEST_TIMEOUT_S if not self.asked else 1.0
            return await super()._call_one(*arguments)

    scripted = SlowCalls(UnreachableError("no answer in time"), BUSY, "done")
    assert asyncio.run(scripted.call("POST", "/v1/streams/s/one/seal", repeatable=True)) == "done"


def test_given_a_repeatable_request_and_nobody_there_then_said_at_once() -> None:
    scripted = ScriptedCalls(NotConnectedError("connection refused"))
    with pytest.raises(NotConnectedError):
        asyncio.run(scripted.call("POST", "/v1/streams/s/one/seal", repeatable=True))
    assert scripted.pauses == []


def test_given_an_sc_that_stands_still_then_the_next_one_is_asked_from_then_on() -> None:
    scripted = ScriptedCalls("done")
    scripted.silent = {"a"}
    assert [result_of(scripted) for _ in range(3)] == ["done"] * 3
    assert (scripted.looked, scripted.asked) == (["a", "b"], ["b"] * 3)


@pytest.mark.parametrize(
    ("whys", "said"),
    [
        (("refused", "no route"), r"no SC answers at a:1 \(refused\), b:2 \(no route\); is"),
        (("refused", "refused"), r"no SC answers at a:1 and b:2 \(refused\); is"),
    ],
)
def test_given_nobody_listens_then_each_says_why(whys: tuple[str, str], said: str) -> None:
    failures = map(partial(unreachable, connected=False), parse_addresses("a:1,b:2"), whys)
    scripted = ScriptedCalls(*failures)
    scripted.gone = {"a", "b"}
    with pytest.raises(NotConnectedError, match=said):
        result_of(scripted)
    assert (scripted.asked, scripted.pauses) == (["a", "b"], [])


def test_given_only_the_second_got_the_request_then_it_is_not_said_that_nothing_was_sent() -> None:
    one, two = parse_addresses("a:1,b:2")
    broke = unreachable(two, "the connection broke")
    scripted = ScriptedCalls(unreachable(one, "refused", connected=False), broke)
    with pytest.raises(UnreachableError, match="broke") as found:
        result_of(scripted)
    assert not isinstance(found.value, NotConnectedError)


def test_given_something_else_at_the_first_address_then_that_is_said() -> None:
    one, two = parse_addresses("a:1,b:2")
    scripted = ScriptedCalls(not_an_sc(one, "it has no such page"), unreachable(two, "refused"))
    with pytest.raises(UnreachableError, match="a:1 is not the public port of an SC"):
        result_of(scripted, "GET")


@pytest.mark.parametrize("gone", ["", "b"])
def test_given_all_stand_still_then_nothing_is_sent_until_one_goes_on(gone: str) -> None:
    scripted = ScriptedCalls("done")
    scripted.silent, scripted.gone = {"a", "b"}, {gone}
    scripted.back = {"a"}
    assert result_of(scripted) == "done"
    assert (scripted.asked, scripted.pauses) == (["a"], [0.5])


def test_given_all_stand_still_for_long_then_all_are_named_and_nothing_was_sent() -> None:
    scripted = ScriptedCalls("done")
    scripted.silent = {"a", "b"}
    scripted.not_ready_s = -1.0
    with pytest.raises(NotConnectedError, match="no SC answers at a:1, b:2, so nothing was sent"):
        result_of(scripted)
    assert scripted.asked == []


@pytest.mark.parametrize(
    ("answer", "silent", "why"),
    [
        (BUSY, "", "no SC leads at the moment"),
        ("done", "ab", "no SC answers at a:1, b:2"),
        ("done", "", None),
    ],
    ids=["no leader", "all frozen", "given an answer"],
)
def test_given_a_long_wait_then_it_is_said_once_what_for(
    monkeypatch: pytest.MonkeyPatch, answer: RunnelError | str, silent: str, why: str | None
) -> None:
    passed_s = 0.0
    monkeypatch.setattr("runnel.admin.calls.time.monotonic", lambda: passed_s)

    class WaitingCalls(ScriptedCalls):
        async def _pause(self, seconds: float) -> None:
            nonlocal passed_s
            await super()._pause(seconds)
            passed_s += seconds

    scripted = WaitingCalls(answer)
    scripted.silent = set(silent)
    said: list[str] = []
    scripted.on_warning = said.append
    with suppress(RunnelError):
        result_of(scripted)
    assert said == ([f"still trying: {why}"] if why else [])
    # A client asks again and again; it is not said each time.
    for number in range(1, 5):
        with suppress(RunnelError):
            result_of(scripted)
        assert len(said) <= 1 + passed_s // calls.NOT_READY_S, number
    assert (len(said) > 1) is (why is not None)


@pytest.mark.parametrize("gone", ["", "b"])
def test_given_a_network_that_carries_nothing_then_said_at_once(gone: str) -> None:
    scripted = ScriptedCalls("done")
    scripted.away, scripted.gone = {"a", "b"} - {gone}, {gone}
    with pytest.raises(NotConnectedError, match="no SC answers at a:1, b:2, so nothing was sent"):
        result_of(scripted, "GET")
    assert (scripted.looked, scripted.asked, scripted.pauses) == (["a", "b"], [], [])


def test_given_one_that_failed_then_it_is_looked_at_before_it_is_asked_again() -> None:
    scripted = ScriptedCalls("done", UnreachableError("it broke"), "done")
    assert result_of(scripted) == "done"
    with pytest.raises(UnreachableError):
        result_of(scripted)
    scripted.silent = {"a"}
    assert result_of(scripted) == "done"
    assert scripted.asked == ["a", "a", "b"]


def test_given_one_address_then_nobody_is_looked_for() -> None:
    scripted = ScriptedCalls("done")
    scripted._addresses = scripted._addresses[:1]
    scripted.silent = {"a"}
    assert result_of(scripted) == "done"
    assert scripted.looked == []


async def test_given_an_election_then_what_only_the_leader_knows_is_waited_for(
    world: World,
) -> None:
    """Every SC answers at once; one that does not lead knows of no SPU that is turned away."""
    world.sc.divergent = [{"spu": 3, "why": "it has seen more", "incarnation": 5}]
    world.sc.leads = False
    asyncio.get_running_loop().call_later(0.05, setattr, world.sc, "leads", True)
    found = await world.cluster.divergent_spus()
    assert ([one.spu for one in found], world.sc.leads) == ([3], True)


BROKE = UnreachableError("it broke")
CUT = StreamCut("s/one", uuid4().hex, {0: 0})
REPORT = PipelineReport(run_id="the-first-run", host="h", state=ReportedState.INIT)


def _sent(scripted: ScriptedCalls, report: PipelineReport) -> object:
    class Calls:
        def __init__(self, *_arguments: object) -> None:
            pass

        def call(self, *arguments: Any, **options: Any) -> Any:
            return asyncio.run(scripted.call(*arguments, **options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.admin.one_shot.OneShotCalls", Calls)
        patch.setattr("runnel.admin.calls.parse_answer", lambda _cls, answer: answer)
        return _sender("p", "a:1")(report)


def _admin(scripted: ScriptedCalls) -> Admin:
    return Admin(cast(ScClient, scripted))


def _made(scripted: ScriptedCalls, make: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    links = SimpleNamespace(_sc=scripted, _leaders=SimpleNamespace(forget=lambda _name: None))
    asyncio.run(make(links))


@pytest.mark.parametrize(
    ("call", "again"),
    [
        (lambda sc: asyncio.run(_admin(sc).delete("topic", "t", dry_run=True)), True),
        (lambda sc: asyncio.run(_admin(sc).delete("topic", "t")), False),
        (lambda sc: asyncio.run(_admin(sc).patch("topic", "t", {}, dry_run=True)), True),
        (lambda sc: asyncio.run(_admin(sc).patch("topic", "t", {})), False),
        (lambda sc: asyncio.run(_admin(sc).create(Topic("t"), dry_run=True)), True),
        (lambda sc: asyncio.run(_admin(sc).create(Topic("t"))), False),
        (lambda sc: asyncio.run(_admin(sc).stream("s/one").subscribe("g", CUT)), True),
        (lambda sc: asyncio.run(_admin(sc).stream("s/one").unsubscribe("g")), True),
        (lambda sc: _sent(sc, REPORT), True),
        # It would take over from a run that has done so since.
        (lambda sc: _sent(sc, REPORT.model_copy(update={"take_over": True})), False),
        *(
            (partial(_made, make=make), True)
            for make in (
                Links._make_archive,
                Links._make_states,
                Links._make_groups,
                Links._make_positions,
            )
        ),
    ],
)
def test_what_is_as_good_twice_is_sent_again(
    call: Callable[[ScriptedCalls], object], again: bool
) -> None:
    scripted = ScriptedCalls(BROKE, NotFoundError("it came through"))
    with suppress(NotFoundError, UnreachableError):
        call(scripted)
    assert len(scripted.asked) == (2 if again else 1)


#: What an SC says that alone is without the KV, or does not reach the leader.
ALONE = NotReadyError("no SC leads: no KV", retryAfterMs=200, askAnother=True)


@pytest.mark.parametrize("method", ["GET", *WRITES])
def test_given_an_sc_that_may_be_the_only_one_without_the_kv_then_the_next_one_is_asked(
    method: str,
) -> None:
    scripted = ScriptedCalls(ALONE, "done")
    assert result_of(scripted, method) == "done"
    assert (scripted.asked, scripted.pauses) == (["a", "b"], [])
    # It stays with the one that knows.
    assert result_of(scripted, method) == "done"
    assert scripted.asked == ["a", "b", "b"]


def test_given_no_sc_that_knows_then_the_call_waits_and_says_what_the_first_said() -> None:
    scripted = ScriptedCalls(ALONE, NotConnectedError("connection refused"), ALONE)
    scripted.not_ready_s = -1.0
    with pytest.raises(NotReadyError, match="no KV"):
        result_of(scripted)
    scripted.not_ready_s = 15.0
    scripted.answers = [ALONE, ALONE, "done"]
    assert result_of(scripted) == "done"
    assert scripted.pauses == [0.2]


def test_given_the_next_sc_stands_still_then_nothing_is_sent_to_it() -> None:
    scripted = ScriptedCalls(ALONE, ALONE, "done")
    scripted.silent = {"b"}
    assert result_of(scripted) == "done"
    assert scripted.asked == ["a", "a", "a"]


def test_given_the_next_sc_broke_off_a_write_then_its_outcome_is_unknown() -> None:
    broke = unreachable(parse_addresses("b:1")[0], "the connection broke")
    scripted = ScriptedCalls(ALONE, broke, "done")
    with pytest.raises(UnreachableError, match="whether this was done is not known"):
        result_of(scripted)
    assert scripted.asked == ["a", "b"]


async def test_given_an_sc_that_may_be_the_only_one_then_a_stream_begins_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()

    async def one(address: Address, *_: object) -> AsyncGenerator[ServerEvent, None]:
        asked.append(address.host)
        if address.host == "a":
            raise ALONE
        yield ServerEvent("added", "{}", "1")

    async def there(_: Address) -> Presence:
        return Presence.THERE

    sc = ScClient(parse_addresses("a:1,b:2"))
    monkeypatch.setattr(sc, "_stream_one", one)
    monkeypatch.setattr(sc, "_look_at", there)
    assert [event.name async for event in sc.stream("/v1/topics", {})] == ["added"]
    assert asked == ["a", "b"]
    await sc.close()


async def test_given_an_sc_that_knows_no_leader_then_another_one_is_asked_who_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def one(address: Address, *_: object) -> dict[str, object]:
        return {"office": None if address.host == "a" else {"office": 7}}

    async def there(_: Address) -> Presence:
        return Presence.THERE

    sc = ScClient(parse_addresses("a:1,b:2"))
    monkeypatch.setattr("runnel.admin.http._ASK_AGAIN_S", 0)
    monkeypatch.setattr(sc, "not_ready_s", 5.0)
    monkeypatch.setattr(sc, "_call_one", one)
    monkeypatch.setattr(sc, "_look_at", there)
    assert await sc.cluster_of_leader() == {"office": {"office": 7}}
    await sc.close()
