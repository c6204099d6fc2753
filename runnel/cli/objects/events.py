"""``runnel get events``: the last changes of all objects, the newest last."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from runnel.admin.http import ScClient
from runnel.cli.connection import who
from runnel.cli.render import Output, print_rows
from runnel.cli.times import parse_since
from runnel.contexts import default_sc
from runnel.logs.events import ObjectEvent, list_events
from runnel.loop_thread import LoopThread
from schemas.errors import InvalidRequestError, NotFoundError

T = TypeVar("T")


def ask_sc(sc: str | None, ask: Callable[[ScClient], Awaitable[T]]) -> T:
    """What ``ask`` gives of a client that is open as long as it takes."""

    async def asked() -> T:
        client = ScClient.parse(default_sc() if sc is None else sc, who())
        try:
            return await ask(client)
        finally:
            await client.close()

    thread = LoopThread("runnel events")
    try:
        return thread.call(asked())
    finally:
        thread.stop()


def print_events(about: str | None, since: str | None, form: object, sc: str | None) -> None:
    """Print events as a table or JSON. Raises InvalidRequestError for another form."""
    if form not in (Output.TABLE, Output.WIDE, Output.JSON):
        raise InvalidRequestError("-o: events are printed as table, wide or json")
    began = parse_since(since, datetime.now(UTC)) if since is not None else None

    async def ask(client: ScClient) -> tuple[ObjectEvent, ...]:
        return await list_events(client, about=about, since=began)

    try:
        events = ask_sc(sc, ask)
    except NotFoundError as error:
        raise NotFoundError(
            "the SC is of an earlier version, which lists no events; upgrade it"
        ) from error
    if form is Output.JSON:
        print(json.dumps({"items": [event.to_json() for event in events]}, indent=2))
    elif not events:
        print("no events found", file=sys.stderr)
    else:
        headings = ["TIME", "OBJECT", "CHANGE", "BY", "CAUSE", "RESOLUTION", "DETAIL"]
        print_rows(headings, [_row(event) for event in events])


def detail(reason: str | None, changed: Sequence[str]) -> str:
    """The reason of the object's state, else which fields were written."""
    return reason or ", ".join(changed)


def _row(event: ObjectEvent) -> list[str]:
    return [
        event.at or "-",
        event.object,
        event.change,
        event.by or "-",
        event.cause,
        event.resolution or "-",
        detail(event.reason, event.changed),
    ]
