"""``runnel get controllers`` and ``runnel sc step-down``: the SCs of a cluster."""

from __future__ import annotations

import json
import sys
import time
from typing import Final
from urllib.parse import urlencode

from runnel.admin.calls import understood
from runnel.admin.one_shot import OneShotCalls
from runnel.cli.connection import who
from runnel.cli.render import Output, age, print_rows
from runnel.contexts import default_sc
from schemas.control.controllers import ControllerRole, ControllersAnswer
from schemas.errors import DeadlineExceededError, InvalidRequestError, NotReadyError

PATH: Final = "/v1/controllers"
_HEADINGS: Final = ("NAME", "ROLE", "PUBLIC", "PRIVATE", "BUCKETS", "VERSION", "AGE")
#: How long another SC has to be elected.
ELECTION_S: Final = 10.0
LOOK_S: Final = 0.1


def print_controllers(form: object, sc: str | None) -> None:
    """Print the SCs that run, as a table or JSON. Raises InvalidRequestError for another form."""
    found = _ask(_calls(sc))
    if form is Output.JSON:
        print(json.dumps(found.to_json()["items"], indent=2))
        return
    if form not in (Output.TABLE, Output.WIDE):
        raise InvalidRequestError("-o: controllers are shown as table, wide or json")
    print_rows(
        _HEADINGS,
        [
            (
                *(one.name, one.role.value, one.public, one.private),
                *(str(one.buckets), one.version, age(one.since)),
            )
            for one in found.items
        ],
    )
    if not any(one.role is ControllerRole.LEADER for one in found.items):
        print("no SC leads at the moment; why: runnel cluster check", file=sys.stderr)


def step_down(sc: str | None) -> None:
    """Have the SC that leads now step down, and wait until another one leads."""
    calls = _calls(sc)
    before = _leader(_ask(calls))
    if before is None:
        raise NotReadyError(
            "no SC leads at the moment, so none can step down; why: runnel cluster check"
        )
    _ask_to_step_down(calls, before)
    deadline = time.monotonic() + ELECTION_S
    while time.monotonic() < deadline:
        now = _leader(_ask(calls))
        if now is not None and now != before:
            print(f"{now} leads now; {before} does not lead any more")
            return
        time.sleep(LOOK_S)
    raise DeadlineExceededError(
        f"{before} has stepped down, and no other SC leads after {ELECTION_S:g} s; see:"
        " runnel get controllers"
    )


def _ask_to_step_down(calls: OneShotCalls, leader: str) -> None:
    """Have one SC step down. Another one that leads by the time that it is asked, because the first
    one is gone, leads on."""
    path = f"{PATH}/step-down"
    try:
        calls.call("POST", f"{path}?{urlencode({'leader': leader})}", repeatable=True)
    except InvalidRequestError:
        # An older SC, which cannot be told whom this means.
        calls.call("POST", path)


def _calls(sc: str | None) -> OneShotCalls:
    return OneShotCalls(default_sc() if sc is None else sc, who())


def _ask(calls: OneShotCalls) -> ControllersAnswer:
    answer = calls.call("GET", PATH)
    with understood("the list of SCs"):
        return ControllersAnswer.model_validate(answer, extra="ignore")


def _leader(found: ControllersAnswer) -> str | None:
    return next((one.name for one in found.items if one.role is ControllerRole.LEADER), None)
