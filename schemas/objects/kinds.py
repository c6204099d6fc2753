"""The registry of kinds: one place that names them all, and how users may spell them."""

from __future__ import annotations

from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline
from schemas.objects.quantities import DEFAULT_SCOPE
from schemas.objects.rebalance import Rebalance
from schemas.objects.spelling import nearest
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Scope, Stream
from schemas.objects.topic import Topic

KINDS: tuple[type[Object], ...] = (
    *(Spu, SpuGroup, Topic, Partition, Scope, Stream, Pipeline),
    Rebalance,
)
BY_KIND: dict[str, type[Object]] = {cls.kind_name(): cls for cls in KINDS}
BY_PLURAL: dict[str, type[Object]] = {cls.PLURAL: cls for cls in KINDS}


#: Kinds whose objects are named SCOPE/NAME.
SCOPED: tuple[type[Object], ...] = (Stream,)


def full_name(cls: type[Object], name: str) -> str:
    """The name of an object as it is stored: of a kind in scopes, NAME stands for default/NAME."""
    return f"{DEFAULT_SCOPE}/{name}" if cls in SCOPED and "/" not in name else name


def find_kind(word: str) -> type[Object]:
    """The kind of a singular, plural or short name in any case. Raises InvalidRequestError."""
    lower = word.lower()
    for cls in KINDS:
        if lower in {cls.kind_name().lower(), cls.PLURAL, *cls.SHORT_NAMES}:
            return cls
    hint = nearest(word, [name for cls in KINDS for name in (cls.kind_name().lower(), cls.PLURAL)])
    known = ", ".join(cls.PLURAL for cls in KINDS)
    meant = f"did you mean {hint}? Known kinds: {known}" if hint else f"known kinds: {known}"
    raise InvalidRequestError(f"unknown kind {word!r}; {meant}", kind=word)
