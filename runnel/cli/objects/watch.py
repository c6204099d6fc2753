"""``get -w``: lists objects, then prints a line for every change, until Ctrl-C."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from runnel.admin.watch import WatchEvent
from runnel.cli.failure import say
from runnel.cli.render import Output, column_widths, format_row, object_rows
from schemas.errors import RunnelError
from schemas.objects.manifest.manifest import dump_yaml
from schemas.objects.metadata import Object

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin
    from runnel.cli.jsonpath import Template


def follow(
    cluster: BlockingAdmin,
    cls: type[Object],
    name: str | None,
    selector: str,
    output: Output | Template,
    *,
    system: bool,
) -> NoReturn:
    """Print the objects of a kind, or one of them, and every change, until interrupted.

    ``system``: include system objects.
    """
    printer = EventPrinter(output)

    def lost(error: RunnelError) -> None:
        say(f"waiting: {error.message}")

    with cluster.watch(
        cls.PLURAL, name, selector, show_system=system, on_trouble=Once(lost)
    ) as watch:
        objects = watch.state()
        if not objects and output in (Output.TABLE, Output.WIDE):
            print(f"no {cls.PLURAL} found; waiting for some", file=sys.stderr)
        printer.begin(objects)
        for event in watch:
            printer.change(event)
    raise AssertionError("a watch does not end by itself")


class Once:
    """Passes an error on unless it says the same as the one before."""

    def __init__(self, tell: Callable[[RunnelError], None]) -> None:
        self._tell = tell
        self._last = ""

    def __call__(self, error: RunnelError) -> None:
        if error.message != self._last:
            self._last = error.message
            self._tell(error)


class EventPrinter:
    """Prints objects and changes to standard output, each at once.

    Tables have one more column than without ``-w``: EVENT, empty for objects that existed at the
    start. ``-o json`` is one object a line: ``{"type": "added", "revision": 7, "object": {…}}``. A
    template is about the object alone, as in kubectl.
    """

    def __init__(self, output: Output | Template) -> None:
        self._output = output
        self._widths: list[int] = []

    def begin(self, objects: Sequence[Object]) -> None:
        """Print the objects that exist at the start."""
        if self._output in (Output.TABLE, Output.WIDE):
            self._print_table(objects, "")
            return
        for obj in objects:
            self.change(WatchEvent("added", obj, obj.revision))

    def change(self, event: WatchEvent) -> None:
        """Print one change."""
        obj = event.object
        if not isinstance(self._output, Output):
            print(self._output.render(obj.to_json()), end="", flush=True)
            return
        match self._output:
            case Output.JSON:
                line = {"type": event.type, "revision": event.revision, "object": obj.to_json()}
                print(json.dumps(line), flush=True)
            case Output.YAML:
                print(f"---\n# {event.type}\n{dump_yaml([obj])}", end="", flush=True)
            case Output.NAME:
                print(f"{type(obj).PLURAL}/{obj.name}", flush=True)
            case Output.TABLE | Output.WIDE:
                self._print_table([obj], event.type)

    def _print_table(self, objects: Sequence[Object], event: str) -> None:
        if not objects:
            return
        headings, rows = object_rows(objects, wide=self._output is Output.WIDE)
        headings, rows = [*headings, "EVENT"], [[*row, event] for row in rows]
        first = not self._widths
        # Columns only grow, so that lines below one another mostly line up.
        found = column_widths(headings, rows)
        self._widths = found if first else list(map(max, self._widths, found))
        for row in (headings, *rows) if first else rows:
            print(format_row(row, self._widths), flush=True)
