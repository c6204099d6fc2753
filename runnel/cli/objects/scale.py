"""``scale``: more or fewer SPUs of a group, more partitions of a topic, other replica counts."""

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
from schemas.objects.stream import Stream
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
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many replicas the partitions of a topic have, or the segments of a stream.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Change the number of SPUs of a group, of partitions of a topic, or of replicas.

    SPUs that a smaller group has no place for give their replicas to others first. Replicas of a
    topic or a stream are added and removed while it is used; to wait: runnel wait topic NAME --for
    settled. For the segments of a stream, see: runnel stream scale
    """
    cls = find_kind(kind)
    field, wanted = _wanted(cls, replicas, partitions, replication_factor)
    with administered(sc) as cluster:
        found = cluster.get(cls.PLURAL, name)
        if isinstance(found, Topic) and found.spec.assignment is not None:
            raise InvalidRequestError(
                f"topic {name} names its SPUs in spec.assignment: give other rows there:"
                f" runnel edit topic {name}"
            )
        before = _number(found, field)
        tried = " (dry run)" if dry_run else ""
        label, noun = f"{cls.kind_name().lower()}/{found.name}", _NOUNS[field, cls]
        if before == wanted:
            print(f"{label} unchanged: {count(wanted, noun)}{tried}")
            return
        cluster.patch(cls.PLURAL, name, {"spec": {field: wanted}}, dry_run=dry_run)
    print(f"{label} scaled from {before:,} to {count(wanted, noun)}{tried}")


_NOUNS = {
    ("replicas", SpuGroup): "SPU",
    ("partitions", Topic): "partition",
    ("replicationFactor", Topic): "replica",
    ("replicationFactor", Stream): "replica",
}


def _wanted(
    cls: type[Object], replicas: int | None, partitions: int | None, factor: int | None
) -> tuple[str, int]:
    """The field of the spec, and its value. Raises InvalidRequestError for a kind without one."""
    given = {"replicas": replicas, "partitions": partitions, "replicationFactor": factor}
    found = [(field, value) for field, value in given.items() if value is not None]
    if len(found) == 1 and (found[0][0], cls) in _NOUNS:
        return found[0]
    if cls is SpuGroup:
        raise InvalidRequestError("for a group of SPUs, give --replicas N and nothing else")
    if cls is Topic:
        raise InvalidRequestError(
            "for a topic, give either --partitions N, or --replication-factor N for how many"
            " replicas they have"
        )
    if cls is Stream:
        raise InvalidRequestError(
            "for a stream, give --replication-factor N, for how many replicas its segments have;"
            " more or fewer segments: runnel stream scale NAME --segments N"
        )
    raise InvalidRequestError(
        f"{cls.PLURAL} have no number to change; spugroups, topics and streams have"
    )


def _number(obj: Object, field: str) -> int:
    if isinstance(obj, SpuGroup):
        return obj.spec.replicas
    if isinstance(obj, Stream):
        return obj.spec.replication_factor
    assert isinstance(obj, Topic)  # noqa: S101 - `_wanted` refuses all others
    return obj.spec.partition_count if field == "partitions" else obj.spec.replica_count
