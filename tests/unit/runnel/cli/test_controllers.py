"""``sc step-down``: who is asked, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from runnel.cli import controllers
from schemas.errors import DeadlineExceededError, InvalidRequestError, NotReadyError

STEP_DOWN: Final = "/v1/controllers/step-down"


class Scs:
    """Three SCs, of which one after the other leads; None: nobody does."""

    def __init__(self, leaders: Iterable[str | None], *, is_older: bool = False) -> None:
        self._leaders: Iterator[str | None] = iter(leaders)
        self._is_older = is_older
        self.asked: list[str] = []

    def call(self, method: str, path: str, *, repeatable: bool = False) -> dict[str, Any]:
        if method == "GET":
            return listed(next(self._leaders))
        self.asked.append(path)
        if self._is_older and "?" in path:
            raise InvalidRequestError("leader: unknown parameter")
        return listed(None)


def listed(leader: str | None) -> dict[str, Any]:
    """What an SC says of all."""
    about = {"public": "a", "private": "b", "version": "1", "since": "2026-01-01T00:00:00Z"}
    names = ("h1:9", "h2:9", "h3:9")
    items = [{"name": n, "role": "leader" if n == leader else "standby"} | about for n in names]
    return {"items": items, "asked": "h1:9"}


@pytest.fixture
def having(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scs], Scs]:
    """Have the command ask these SCs."""

    def begin(scs: Scs) -> Scs:
        monkeypatch.setattr(controllers, "_calls", lambda sc: scs)
        monkeypatch.setattr(controllers, "LOOK_S", 0.0)
        return scs

    return begin


@pytest.mark.parametrize("between", [(), ("h1:9",), (None,)])
def test_given_a_leader_then_that_one_is_asked_and_the_next_one_named(
    having: Callable[[Scs], Scs],
    capsys: pytest.CaptureFixture[str],
    between: tuple[str | None, ...],
) -> None:
    scs = having(Scs(("h1:9", *between, "h3:9")))
    controllers.step_down(None)
    assert scs.asked == [f"{STEP_DOWN}?leader=h1%3A9"]
    assert capsys.readouterr().out == "h3:9 leads now; h1:9 does not lead any more\n"


def test_given_an_older_sc_then_it_is_asked_as_it_understands(
    having: Callable[[Scs], Scs],
) -> None:
    scs = having(Scs(("h1:9", "h2:9"), is_older=True))
    controllers.step_down(None)
    assert scs.asked == [f"{STEP_DOWN}?leader=h1%3A9", STEP_DOWN]


def test_given_no_leader_then_whoever_leads_next_is_left_alone(
    having: Callable[[Scs], Scs],
) -> None:
    scs = having(Scs((None,)))
    with pytest.raises(NotReadyError, match="no SC leads at the moment"):
        controllers.step_down(None)
    assert scs.asked == []


def test_given_no_other_leader_in_time_then_it_says_where_to_look(
    having: Callable[[Scs], Scs], monkeypatch: pytest.MonkeyPatch
) -> None:
    having(Scs(("h1:9",)))
    monkeypatch.setattr(controllers, "ELECTION_S", 0.0)
    with pytest.raises(DeadlineExceededError, match="see: runnel get controllers"):
        controllers.step_down(None)
