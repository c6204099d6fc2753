"""The states that objects can have, whatever their kind calls them. Pure."""

from __future__ import annotations

from typing import Final

from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.spelling import nearest
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic

#: The condition that every kind has: the object is deleted.
DELETED: Final = "deleted"
#: The condition of a topic that all its partitions are sealed; a partition has a resolution for it.
SEALED: Final = str(PartitionResolution.SEALED)

#: The condition of a partition that has a leader, and that nothing is known to keep from
#: committing; of a topic, that it is placed and all its partitions are writable.
WRITABLE: Final = "writable"
#: The condition of a topic or partition that its replicas are where they are wanted.
SETTLED: Final = "settled"
#: The condition of an SPU whose replicas have moved to others.
DRAINED: Final = "drained"


def state_of(obj: Object) -> str:
    """The resolution of an object, or the state of kinds that have one instead."""
    state = getattr(obj.status, "resolution", None) or getattr(obj.status, "state", "unknown")
    return str(state)


def reason_of(obj: Object) -> str:
    """Why an object is not as it should be, in words; empty if nothing is told."""
    return obj.status.told if isinstance(obj, Stream) else obj.status.reason or ""


def is_current(obj: Object) -> bool:
    """Whether the status is about the current spec, not about an earlier generation."""
    observed: int = obj.status.observed_generation
    return observed >= obj.generation


def states_of(cls: type[Object]) -> list[str]:
    """The resolutions (or states) that objects of a kind can have."""
    fields = cls.model_fields["status"].annotation.model_fields  # type: ignore[union-attr]
    return [
        str(member)
        for field in ("resolution", "state")
        if field in fields
        for member in fields[field].annotation
    ]


def conditions_of(cls: type[Object]) -> list[str]:
    """What can be waited for: the states of a kind, and conditions besides them."""
    more = [WRITABLE, SETTLED] if cls in (Partition, Topic) else []
    more += [SETTLED] if cls is Stream else []
    more += [DRAINED] if cls is Spu else []
    more += [SEALED] if cls is Topic else []
    return [DELETED, *more, *states_of(cls)]


def find_resolution(cls: type[Object], wanted: str) -> str:
    """The condition for a text in upper or lower case. Raises InvalidRequestError with the nearest
    one.
    """
    known = conditions_of(cls)
    for name in known:
        if name.lower() == wanted.lower():
            return name
    hint = nearest(wanted, known)
    meant = f"; did you mean {hint}?" if hint else "."
    raise InvalidRequestError(
        f"{wanted!r} is no resolution of {cls.PLURAL}{meant} Known: {', '.join(known)}"
    )
