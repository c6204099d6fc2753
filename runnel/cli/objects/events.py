"""``runnel get events``: the last changes of all objects, the newest last."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from time import sleep
from typing import Final, NoReturn, TypeVar

from runnel.admin.http import ScClient
from runnel.cli.connection import who
from runnel.cli.failure import warn
from runnel.cli.render import Output, column_widths, format_row, print_rows
from runnel.cli.times import parse_since
from runnel.contexts import default_sc
from runnel.logs.events import ObjectEvent, list_events
from runnel.loop_thread import LoopThread
from schemas.errors import InvalidRequestError, NotFoundError, RetryableError

T = TypeVar("T")
#: How often ``-w`` asks for new events.
LOOK_S: Final = 1.0
_HEADINGS: Final = ("TIME", "OBJECT", "CHANGE", "BY", "CAUSE", "RESOLUTION", "DETAIL")


def ask_sc(sc: str | None, ask: Callable[[ScClient], Awaitable[T]]) -> T:
    """What ``ask`` gives of a client that is open as long as it takes."""
    with _connected(sc) as (thread, client):
        return thread.call(_awaited(ask(client)))


def print_events(about: str | None, since: str | None, form: object, sc: str | None) -> None:
    """Print events as a table or JSON. Raises InvalidRequestError for another form."""
    _check(form)
    began = _began(since)
    with _connected(sc) as (thread, client):
        events = thread.call(_listed(client, about, began, None))
    if form is Output.JSON:
        print(json.dumps({"items": [event.to_json() for event in events]}, indent=2))
    elif not events:
        print("no events found", file=sys.stderr)
    else:
        print_rows(_HEADINGS, [_row(event) for event in events])


def follow_events(about: str | None, since: str | None, form: object, sc: str | None) -> NoReturn:
    """``get events -w``: the events, and then new ones as they come, until interrupted.

    JSON is printed as one object a line. While the SC does not answer, this says so and asks again.
    """
    _check(form)
    began, after = _began(since), None
    widths: list[int] = []
    answered = lost = False
    with _connected(sc) as (thread, client):
        while True:
            try:
                events = thread.call(_listed(client, about, began, after))
            except RetryableError as error:
                if not answered:
                    raise
                if not lost:
                    warn(f"{error.message}; asking again")
                lost = True
            else:
                answered, lost = True, False
                after = max((event.revision for event in events), default=after)
                widths = _print_more(events, form, widths)
            sleep(LOOK_S)


def _print_more(events: Sequence[ObjectEvent], form: object, widths: list[int]) -> list[int]:
    """Print lines below those before, whose columns are so wide. Gives their widths from now on."""
    if form is Output.JSON:
        for event in events:
            print(json.dumps(event.to_json()), flush=True)
        return widths
    rows = [_row(event) for event in events]
    if not rows:
        return widths
    found = column_widths(_HEADINGS, rows)
    lines = rows if widths else [list(_HEADINGS), *rows]
    widths = list(map(max, widths, found)) if widths else found
    for line in lines:
        print(format_row(line, widths), flush=True)
    return widths


@contextmanager
def _connected(sc: str | None) -> Iterator[tuple[LoopThread, ScClient]]:
    async def opened() -> ScClient:
        return ScClient.parse(default_sc() if sc is None else sc, who())

    thread = LoopThread("runnel events")
    try:
        client = thread.call(opened())
        try:
            yield thread, client
        finally:
            thread.call(client.close())
    finally:
        thread.stop()


async def _awaited(found: Awaitable[T]) -> T:
    return await found


async def _listed(
    client: ScClient, about: str | None, since: datetime | None, after: int | None
) -> tuple[ObjectEvent, ...]:
    try:
        return await list_events(client, about=about, since=since, after=after)
    except NotFoundError as error:
        raise NotFoundError(
            "the SC is of an earlier version, which lists no events; upgrade it"
        ) from error


def _check(form: object) -> None:
    if form not in (Output.TABLE, Output.WIDE, Output.JSON):
        raise InvalidRequestError("-o: events are printed as table, wide or json")


def _began(since: str | None) -> datetime | None:
    return parse_since(since, datetime.now(UTC)) if since is not None else None


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
