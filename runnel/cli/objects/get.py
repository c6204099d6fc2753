"""``get``: lists objects of the cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.admin.one_shot import OneShotReads
from runnel.cli import completion
from runnel.cli.arguments import (
    OutputOption,
    ScOption,
    SelectorOption,
    is_consumers,
    is_controllers,
    is_events,
)
from runnel.cli.connection import administered, who
from runnel.cli.render import Output, parse_output, print_objects
from schemas.errors import InvalidRequestError
from schemas.objects.kinds import find_kind
from schemas.objects.stream import Stream

if TYPE_CHECKING:
    from runnel.cli.jsonpath import Template
    from schemas.objects.metadata import Object


def get(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND[,KIND…]",
            help="spus, topics, partitions, consumers, controllers, events, …",
            autocompletion=completion.kinds,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="One object. Default: all.", autocompletion=completion.names),
    ] = None,
    output: OutputOption = Output.TABLE.value,
    selector: SelectorOption = "",
    sort_by: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Sort by a field, for example .spec.partitions.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Watch: print a line for every change.")
    ] = False,
    show_system: Annotated[
        bool, typer.Option("--show-system", help="Include system objects: _positions.")
    ] = False,
    about: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="KIND/NAME",
            help="Of events: only those of this object.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|TIME",
            help="Of events: only those since then: 10m ago, or 2026-01-31T12:00:00 (UTC).",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPE", help="Of streams: only those of this scope."),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="Of streams: only those with this tag."),
    ] = None,
    sc: ScOption = None,
) -> None:
    """List objects of a kind, or one object; or named consumers, controllers, or events.

    Events are the last changes of all objects, the newest last: who made them, when, and why.
    """
    form = parse_output(output)
    if is_events(kind):
        if name is not None or selector or sort_by is not None:
            raise InvalidRequestError("events are no objects: leave NAME, -l and --sort-by out")
        from runnel.cli.objects.events import follow_events, print_events

        if watch:
            follow_events(about, since, form, sc)
        print_events(about, since, form, sc)
        return
    if about is not None or since is not None:
        raise InvalidRequestError("--for and --since choose events: runnel get events")
    if watch and sort_by is not None:
        raise InvalidRequestError("-w prints changes as they come: leave --sort-by out")
    if is_consumers(kind):
        if selector or sort_by is not None:
            raise InvalidRequestError("consumers are no objects: leave -l and --sort-by out")
        from runnel.cli.records.consumers import follow_consumers, print_consumers

        if watch:
            follow_consumers(name, form, sc)
        print_consumers(name, form, sc)
        return
    if is_controllers(kind):
        if name is not None or selector or sort_by is not None or watch:
            raise InvalidRequestError(
                "controllers are no objects: leave NAME, -l, --sort-by and -w out"
            )
        from runnel.cli.controllers import print_controllers

        print_controllers(form, sc)
        return
    kinds = list(dict.fromkeys(find_kind(word) for word in kind.split(",")))
    by_scope = scope is not None or tag is not None
    if by_scope and (kinds != [Stream] or name is not None or watch):
        raise InvalidRequestError("--scope and --tag choose streams: runnel get streams")
    if len(kinds) > 1 and (name is not None or watch):
        raise InvalidRequestError("with NAME or -w, give one kind")
    if name is not None and selector:
        raise InvalidRequestError("give NAME or -l, not both")
    if watch:
        _follow(kinds[0], name, form, selector, system=show_system, sc=sc)
    reads = OneShotReads(sc, who())
    if name is not None:
        print_objects([reads.get(kind, name)], form, one=True)
        return
    objects: list[Object] = []
    for cls in kinds:
        found = reads.list(cls.PLURAL, selector, show_system=show_system)
        if by_scope:
            found = [one for one in found if _is_chosen(one, scope, tag)]
        if not found and form in (Output.TABLE, Output.WIDE):
            print(f"no {cls.PLURAL} found", file=sys.stderr)
        objects += found
    if sort_by is not None:
        from runnel.cli.objects.order import sorted_by

        objects = sorted_by(objects, sort_by)
    if objects or form not in (Output.TABLE, Output.WIDE):
        print_objects(objects, form, one=False)


def _is_chosen(obj: Object, scope: str | None, tag: str | None) -> bool:
    return (
        isinstance(obj, Stream)
        and scope in (None, obj.scope)
        and (tag is None or tag in obj.spec.tags)
    )


def _follow(
    cls: type[Object],
    name: str | None,
    form: Output | Template,
    selector: str,
    *,
    system: bool,
    sc: str | None,
) -> None:
    # A watch needs a client that stays connected.
    from runnel.cli.objects.watch import follow

    with administered(sc) as cluster:
        if name is not None:
            # Raises NotFoundError if there is none of that name.
            cluster.get(cls.PLURAL, name)
        follow(cluster, cls, name, selector, form, system=system)
