"""The command ``runnel top``.

On a terminal it shows the cluster until q or Ctrl-C, and draws again when something changed;
elsewhere, and with ``--once``, it prints one picture. Neighbour: `runnel.cli.top.screen` makes the
lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from runnel.admin.http import ScClient
from runnel.cli.arguments import ScOption, TableOutputOption
from runnel.cli.render import TableOutput
from runnel.cli.top.screen import Line, lines_of
from runnel.contexts import default_sc
from runnel.status.feed import follow
from runnel.status.state import ClusterState
from runnel.status.summary import Summaries, Summary, summarize
from schemas.errors import NotFoundError, RunnelError, UnsupportedError

#: How long one picture waits for the statistics after the objects are there: an SC to which no SPU
#: has told any sends none.
STATISTICS_S: Final = 1.0
#: Changes are shown at most so often.
REDRAW_S: Final = 0.25


def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print one picture and end, as without a terminal.")
    ] = False,
    system: Annotated[
        bool, typer.Option("--show-system", help="Include topics of the system.")
    ] = False,
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
) -> None:
    """Show the cluster live: its health, what needs a person, SPUs and topics with their rates.

    Rates are those of the last second. Topics with the highest rates come first. Numbers of records
    are those of offsets, of which Runnel needs some itself: a new topic has one.
    """
    address = default_sc() if sc is None else sc
    live = sys.stdout.isatty() and not once and output is TableOutput.TABLE
    if live:
        # Ctrl-C is how this command ends; the runner of the loop closes everything then.
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_live(address, system=system))
        return
    state = asyncio.run(_once(address))
    summary = summarize(state, system=system)
    if output is TableOutput.JSON:
        print(json.dumps(_plain(summary, state), indent=2))
        return
    for line in lines_of(summary, _head(address, state)):
        print(line.text)


async def _once(address: str) -> ClusterState:
    state = ClusterState()
    whole, counted = asyncio.Event(), asyncio.Event()

    def changed() -> None:
        if state.complete:
            whole.set()
        if state.at_ms is not None:
            counted.set()

    async with _followed(address, state, changed, lambda _: None) as following:
        waiting = asyncio.create_task(whole.wait())
        await asyncio.wait([waiting, following], return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            waiting.cancel()
            following.result()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STATISTICS_S):
                await counted.wait()
    return state


async def _live(address: str, *, system: bool) -> None:
    from rich.live import Live

    state, news = ClusterState(), asyncio.Event()
    summaries = Summaries(state, system=system)
    trouble: str | None = None

    def lost(error: RunnelError | None) -> None:
        nonlocal trouble
        trouble = None if error is None else error.message
        news.set()

    asked_to_end = False

    def pressed(keys: bytes) -> None:
        nonlocal asked_to_end
        # Without keys, the terminal is gone.
        asked_to_end = asked_to_end or not keys or b"q" in keys.lower()
        news.set()

    async with _followed(address, state, news.set, lost) as following:
        with Live(screen=True, auto_refresh=False) as live, _keys(pressed):
            while not following.done():
                waiting = asyncio.create_task(news.wait())
                await asyncio.wait([waiting, following], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                news.clear()
                if asked_to_end:
                    return
                if state.complete:
                    height = live.console.size.height
                    head = f"{_head(address, state)}  q ends"
                    lines = lines_of(summaries.latest(), head, trouble, height)
                    live.update(_drawn(lines[:height]), refresh=True)
                await asyncio.sleep(REDRAW_S)
        following.result()


@contextlib.contextmanager
def _keys(pressed: Callable[[bytes], None]) -> Iterator[None]:
    """Tell the keys that are pressed on a terminal, without an echo; no keys once the terminal is
    gone. Ctrl-C goes on as ever."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def read() -> None:
        keys = b""
        with contextlib.suppress(OSError):
            keys = os.read(terminal, 64)
        if not keys:
            # It would be readable for ever.
            loop.remove_reader(terminal)
        pressed(keys)

    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.asynccontextmanager
async def _followed(
    address: str,
    state: ClusterState,
    changed: Callable[[], None],
    lost: Callable[[RunnelError | None], None],
) -> Any:
    """The task that keeps the state up to date. Raises what an SC without the stream means."""
    client = ScClient.parse(address)
    following = asyncio.create_task(follow(client, state, changed, lost), name="status")
    try:
        yield following
    except NotFoundError as error:
        raise UnsupportedError(
            f"the SC at {client.address} is of an earlier version, which has no statistics;"
            " upgrade it first"
        ) from error
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()


def _drawn(lines: Sequence[Line]) -> Any:
    from rich.text import Text

    found = Text(no_wrap=True, overflow="ellipsis")
    for number, line in enumerate(lines):
        found.append("\n" if number else "")
        found.append(line.text, style=line.tone.value)
    return found


def _head(address: str, state: ClusterState) -> str:
    if state.at_ms is None:
        return f"cluster at {address}"
    at = datetime.fromtimestamp(state.at_ms / 1000, UTC).astimezone()
    return f"cluster at {address}  {at:%H:%M:%S}"


def _plain(summary: Summary, state: ClusterState) -> dict[str, Any]:
    """A summary as JSON data, with the severity of problems by name."""
    found = {"at_ms": state.at_ms, **asdict(summary)}
    for plain, problem in zip(found["problems"], summary.problems, strict=True):
        plain["severity"] = problem.severity.name.lower()
    named: dict[str, Any] = _camel(found)
    return named


def _camel(value: Any) -> Any:
    match value:
        case dict():
            return {_camel_key(key): _camel(item) for key, item in value.items()}
        case list() | tuple():
            return [_camel(item) for item in value]
        case _:
            return value


def _camel_key(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
