"""``runnel trace``: what one causality id led to, on all daemons."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import runnel
from runnel.admin.http import ScClient
from runnel.cli.arguments import ScOption, TableOutputOption
from runnel.cli.failure import EXIT_NOT_NOW, warn
from runnel.cli.objects.events import ask_sc, detail
from runnel.cli.render import TableOutput
from runnel.logs.events import ObjectEvent
from runnel.logs.otlp import otlp_url, send_spans
from runnel.logs.spans import otlp_request, trace_id
from runnel.logs.trace import Trace, TraceStep
from runnel.logs.trace import trace as gather
from schemas.daemon.log_text import format_line
from schemas.errors import InvalidRequestError, NotFoundError

_MAX_CAUSE = 256


def trace(
    cause: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The causality id, as in logs, events and the header X-Runnel-Cause.",
            show_default=False,
        ),
    ],
    output: TableOutputOption = TableOutput.TABLE,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send it as spans to a collector of OpenTelemetry instead of printing it, for"
            " example http://localhost:4318 of Jaeger or Tempo.",
            show_default=False,
        ),
    ] = None,
    sc: ScOption = None,
) -> None:
    """Show what one causality id led to: changes of objects, and log lines of all daemons.

    In the order of time; what belongs to an object, and what SPUs do for it, is indented. A daemon
    that cannot be reached is named on standard error; the exit code is 5 then. -o json prints one
    object a line.
    """
    if not 0 < len(cause) <= _MAX_CAUSE:
        raise InvalidRequestError(f"ID: a causality id has 1 to {_MAX_CAUSE} characters")
    url = None if otlp is None else otlp_url(otlp)

    async def ask(client: ScClient) -> Trace:
        found = await gather(client, cause)
        if url is not None and found.steps:
            await send_spans(url, otlp_request(cause, found.steps, runnel.__version__))
        return found

    found = ask_sc(sc, ask)
    for name, why in found.away.items():
        warn(f"{name} does not answer: {why}")
    if not found.steps and not found.away:
        raise NotFoundError(
            f"no daemon knows {cause!r}; they keep their last log lines and changes only, and the"
            " files of the daemons may have more"
        )
    for note in found.notes:
        warn(note)
    if url is None:
        _print(found, output)
    elif found.steps:
        print(f"sent as trace {trace_id(cause)}")
    if found.away:
        raise typer.Exit(EXIT_NOT_NOW)


def _print(found: Trace, output: TableOutput) -> None:
    width = max((len(step.process) for step in found.steps), default=0)
    for step in found.steps:
        print(json.dumps(step.to_json()) if output is TableOutput.JSON else _line(step, width))


def _line(step: TraceStep, width: int) -> str:
    at = step.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{at} {step.process:<{width}} {'  ' * step.depth}{_what(step)}"


def _what(step: TraceStep) -> str:
    if isinstance(step.what, ObjectEvent):
        event = step.what
        state = f" {event.resolution}" if event.resolution else ""
        more = detail(event.reason, event.changed)
        by = f" by {event.by}" if event.by else ""
        return f"{event.object} {event.change}{by}:{state}" + (f" ({more})" if more else "")
    shown = {
        name: value
        for name, value in step.what.items()
        if name not in ("timestamp", "process", "cause")
    }
    return format_line(shown).strip()
