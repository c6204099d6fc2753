"""The objects and statistics of a cluster, folded from the events of one stream. Pure.

The stream is that of ``GET /v1/watch``: all objects, ``synced``, and then changes; statistics come
in between. A connection that resumes brings only what changed since; one that begins anew brings
everything, and what it does not bring is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from runnel.admin.calls import parse_answer, understood
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline, PipelineStatus
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Stream
from schemas.objects.system_topics import is_system_name
from schemas.objects.topic import Topic

O = TypeVar("O", bound=Object)  # noqa: E741 - as in the store of the SC

#: The kinds that a state holds.
KINDS: Final[tuple[type[Object], ...]] = (Spu, SpuGroup, Topic, Partition, Pipeline, Stream)
STATISTICS: Final = "stats"
_BY_NAME: Final = {cls.kind_name(): cls for cls in KINDS}

Numbers = Mapping[str, Any]
"""The statistics of one SPU, topic or partition, as the SC's API names them."""


class ClusterState:
    """What is known of a cluster. ``at_ms`` is the time of the statistics, None before any came."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Object]] = {name: {} for name in _BY_NAME}
        self._whole: dict[str, dict[str, Object]] | None = None
        #: By kind, in the order of names; and partitions by topic. Made when asked for.
        self._sorted: dict[str, list[Object]] = {}
        self._partitions: dict[str, list[Partition]] | None = None
        self._numbers: dict[str, dict[str, Numbers]] = {
            name: {} for name in ("spus", "topics", "partitions", Pipeline.PLURAL)
        }
        #: The revision up to which the state is complete; None before the first whole state.
        self.revision: int | None = None
        #: Grows when objects change, so that what follows from them alone need not be made anew.
        self.objects_version = 0
        self.at_ms: int | None = None
        #: Why the SC cannot write to its KV, so that objects may be old.
        self.trouble: str | None = None

    def begin(self) -> int | None:
        """Begin a connection: the revision to ask changes after, None for everything."""
        if self.revision is None:
            self._whole = {name: {} for name in _BY_NAME}
        return self.revision

    def forget_revision(self) -> None:
        """The SC has compacted it, or its store is another one: read everything again."""
        self.revision = None

    def take(self, name: str, data: Any, revision: int | None) -> bool:
        """One event. Gives whether there is something new to show. Raises RunnelError for one that
        no SC sends; events of later versions are passed over."""
        match name:
            case "added" | "modified" | "deleted":
                self._take_object(name, data)
                if revision is not None:
                    self.revision = revision
                return self._whole is None
            case "synced":
                with understood("an event"):
                    self.revision = int(data["revision"])
                if self._whole is not None:
                    self._objects, self._whole = self._whole, None
                    self._sorted.clear()
                    self._objects_changed()
                    self._drop_numbers()
                return True
            case "stats":
                with understood("statistics"):
                    self._take_numbers(data)
                return self._whole is None
            case _:
                return False

    @property
    def complete(self) -> bool:
        """Whether all objects were read once."""
        return self.revision is not None and self._whole is None

    def objects(self, cls: type[O], *, system: bool = False) -> list[O]:
        """Objects of a kind by name; those of the system only if asked for."""
        kind = cls.kind_name()
        if (found := self._sorted.get(kind)) is None:
            known = self._objects[kind]
            found = self._sorted[kind] = [known[name] for name in sorted(known)]
        return [
            obj
            for obj in found
            if isinstance(obj, cls) and (system or not is_system_name(obj.name))
        ]

    def partitions_of(self, topic: str) -> list[Partition]:
        """The partitions of one topic, by name."""
        if self._partitions is None:
            self._partitions = {}
            for partition in self.objects(Partition, system=True):
                self._partitions.setdefault(partition.spec.owner.name, []).append(partition)
        return list(self._partitions.get(topic, ()))

    def numbers(self, plural: str, name: str) -> Numbers:
        """The statistics of an SPU, topic or partition; empty where the SC has none."""
        return self._numbers[plural].get(name, {})

    def pipelines(self) -> list[Pipeline]:
        """Pipelines by name, with the statuses of now: what is stored says only what changes with a
        run, and statistics what changes with a batch."""
        found = []
        for pipeline in self.objects(Pipeline):
            numbers = self.numbers(Pipeline.PLURAL, pipeline.name)
            if numbers:
                status = PipelineStatus.model_validate(numbers, extra="ignore")
                pipeline = pipeline.model_copy(update={"status": status})
            found.append(pipeline)
        return found

    def _take_object(self, event: str, data: Any) -> None:
        with understood("an event"):
            kind = str(data["kind"])
        cls = _BY_NAME.get(kind)
        if cls is None:
            return
        obj = parse_answer(cls, data)
        objects = self._objects if self._whole is None else self._whole
        if event == "deleted":
            objects[kind].pop(obj.name, None)
            if cls.PLURAL in self._numbers:
                self._numbers[cls.PLURAL].pop(obj.name, None)
        else:
            objects[kind][obj.name] = obj
        if self._whole is None:
            self._sorted.pop(kind, None)
            self._objects_changed()

    def _objects_changed(self) -> None:
        self._partitions = None
        self.objects_version += 1

    def _take_numbers(self, data: Any) -> None:
        self.at_ms = int(data["at"])
        trouble = data.get("trouble")
        self.trouble = None if trouble is None else str(trouble)
        for plural, known in self._numbers.items():
            # SCs of earlier versions tell nothing of pipelines.
            for numbers in data.get(plural, ()) if plural == Pipeline.PLURAL else data[plural]:
                known[str(numbers["name"])] = numbers

    def _drop_numbers(self) -> None:
        """Forget the numbers of what is gone."""
        for cls in KINDS:
            if (known := self._numbers.get(cls.PLURAL)) is not None:
                _keep(known, self._objects[cls.kind_name()])


def _keep(known: dict[str, Numbers], names: Iterable[str]) -> None:
    there = set(names)
    for name in [name for name in known if name not in there]:
        del known[name]
