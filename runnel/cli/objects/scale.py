"""``scale``: more or fewer SPUs of a group, more partitions of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from runnel.cli.arguments import DryRunOption, KindArgument, NameArgument, ScOption
from runnel.cli.connection import administered
from runnel.cli.render import count
from schemas.errors import InvalidRequestError
from schemas.objects.kinds import find_kind
from schemas.objects.metadata import Object
from schemas.objects.spu_group import SpuGroup
from schemas.objects.topic import Topic


def scale(
    kind: KindArgument,
    name: NameArgument,
    replicas: Annotated[
        int | None, typer.Option(min=0, help="The number of SPUs of a group.", show_default=False)
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of partitions of a topic: more only.", show_default=False
        ),
    ] = None,
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Change the number of SPUs of a group, or of partitions of a topic."""
    cls = find_kind(kind)
    field, wanted = _wanted(cls, replicas, partitions)
    with administered(sc) as cluster:
        before = _number(cluster.get(cls.PLURAL, name))
        tried = " (dry run)" if dry_run else ""
        label, noun = f"{cls.kind_name().lower()}/{name}", "SPU" if cls is SpuGroup else "partition"
        if before == wanted:
            print(f"{label} unchanged: {count(wanted, noun)}{tried}")
            return
        cluster.patch(cls.PLURAL, name, {"spec": {field: wanted}}, dry_run=dry_run)
    print(f"{label} scaled from {before:,} to {count(wanted, noun)}{tried}")


def _wanted(cls: type[Object], replicas: int | None, partitions: int | None) -> tuple[str, int]:
    """The field of the spec, and its value. Raises InvalidRequestError for a kind without one."""
    if cls is SpuGroup and replicas is not None and partitions is None:
        return "replicas", replicas
    if cls is Topic and partitions is not None and replicas is None:
        return "partitions", partitions
    if cls is SpuGroup:
        raise InvalidRequestError("for a group of SPUs, give --replicas N and nothing else")
    if cls is Topic:
        raise InvalidRequestError(
            "for a topic, give --partitions N and nothing else; how many replicas they have cannot"
            " be changed in this version"
        )
    raise InvalidRequestError(f"{cls.PLURAL} have no number to change; spugroups and topics have")


def _number(obj: Object) -> int:
    if isinstance(obj, SpuGroup):
        return obj.spec.replicas
    assert isinstance(obj, Topic)  # noqa: S101 - `_wanted` refuses all others
    return obj.spec.partition_count
