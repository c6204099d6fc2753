"""``get``: lists objects of the cluster."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runnel.admin.one_shot import OneShotReads
from runnel.cli import completion
from runnel.cli.arguments import KindArgument, OutputOption, ScOption, SelectorOption, is_consumers
from runnel.cli.connection import administered, who
from runnel.cli.render import Output, print_objects
from schemas.errors import InvalidRequestError
from schemas.objects.kinds import find_kind


def get(
    kind: KindArgument,
    name: Annotated[
        str | None,
        typer.Argument(help="One object. Default: all.", autocompletion=completion.names),
    ] = None,
    output: OutputOption = Output.TABLE,
    selector: SelectorOption = "",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Watch: print a line for every change.")
    ] = False,
    show_system: Annotated[
        bool, typer.Option("--show-system", help="Include system objects: _positions.")
    ] = False,
    sc: ScOption = None,
) -> None:
    """List objects of a kind, or one object; or named consumers and their lag."""
    if is_consumers(kind):
        if selector:
            raise InvalidRequestError("-l: consumers have no labels")
        from runnel.cli.records.consumers import follow_consumers, print_consumers

        if watch:
            follow_consumers(name, output, sc)
        print_consumers(name, output, sc)
        return
    cls = find_kind(kind)
    if name is not None and selector:
        raise InvalidRequestError("give NAME or -l, not both")
    if watch:
        # A watch needs a client that stays connected.
        from runnel.cli.objects.watch import follow

        with administered(sc) as cluster:
            if name is not None:
                # Raises NotFoundError if there is none of that name.
                cluster.get(kind, name)
            follow(cluster, cls, name, selector, output, system=show_system)
    reads = OneShotReads(sc, who())
    if name is not None:
        print_objects([reads.get(kind, name)], output, one=True)
        return
    objects = reads.list(kind, selector, show_system=show_system)
    if not objects and output in (Output.TABLE, Output.WIDE):
        print(f"no {cls.PLURAL} found", file=sys.stderr)
        return
    print_objects(objects, output, one=False)
