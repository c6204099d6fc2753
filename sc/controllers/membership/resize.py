"""An owner that wants other replicas of its partitions: another number, or other rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sc.controllers.actions import BeginMove
from sc.controllers.membership.begin import (
    begin,
    candidates,
    lost_newcomers,
    may_move,
    respecified,
    row_of,
)
from sc.controllers.membership.budget import Budget
from sc.controllers.placing import decided_at_ms, returning
from sc.controllers.spu_group import is_draining
from sc.scheduler.row_changes import extended, shrunk
from sc.store.view import Liveness, View
from schemas.objects.partition import Partition, PartitionSpec
from schemas.objects.stream import StreamSpec
from schemas.objects.topic import LogSettings, TopicSpec

#: Progress is told in steps of so many percent: each is a write.
_STEP: Final = 10
#: What is told when the first move is about to begin.
BEGINNING: Final = "its replicas are being moved: 0 % done"


@dataclass(frozen=True, slots=True)
class Resizing:
    """What to begin now, by the name of the partition, and what to tell; None if all is as the
    owner wants it. ``until_ms``: when to look again, if nothing happens before."""

    begun: dict[str, BeginMove]
    reason: str | None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which replicas an owner wants for each of its partitions: so many, or those in ``rows``, by
    the index of the partition."""

    count: int
    ignore_racks: bool = False
    rows: Mapping[int, tuple[int, ...]] | None = None

    def row(self, partition: Partition) -> tuple[int, ...] | None:
        """The row that somebody wrote for a partition, if there is one."""
        index = partition.spec.index
        return None if self.rows is None or index is None else self.rows.get(index)

    def is_met(self, partition: Partition) -> bool:
        """Whether a partition is to be held by the SPUs that its spec names."""
        if (row := self.row(partition)) is not None:
            return row == partition.spec.replicas
        return self.rows is not None or len(partition.spec.replicas) == self.count


def of_topic(topic: TopicSpec) -> Wanted:
    """Which replicas a topic wants."""
    rows = None
    if topic.assignment is not None:
        rows = {row.id: row.replicas for row in topic.assignment}
    return Wanted(topic.replica_count, topic.ignore_rack_assignment, rows)


def of_stream(stream: StreamSpec) -> Wanted:
    """Which replicas a stream wants."""
    return Wanted(stream.replication_factor)


def resize(
    view: View,
    wanted: Wanted,
    partitions: list[Partition],
    specs: Mapping[str, PartitionSpec],
    now_ms: int,
) -> Resizing:
    """The moves of an owner's partitions, as many as may begin now. ``specs``: what each is to be
    apart from its replicas, by name, where that is another one than it has."""
    left = [p for p in partitions if not p.deleting and not wanted.is_met(p)]
    waiting = [p for p in partitions if not p.deleting and (p.spec.moves or not wanted.is_met(p))]
    if not waiting:
        return Resizing({}, None)
    begun: dict[str, BeginMove] = {}
    obstacle: str | None = None
    until_ms: int | None = None
    if left and (away := returning(view, now_ms)):
        obstacle, left = f"waiting for {', '.join(away)} to connect again", []
        until_ms = decided_at_ms(view, now_ms)
    budget = Budget(view)
    for partition in left:
        spec = specs.get(partition.name, partition.spec)
        copy = partition.model_copy(update={"spec": spec})
        if (row := wanted.row(copy)) is None:
            found = _begin(view, wanted, copy, budget, now_ms)
        else:
            why = may_move(view, copy)
            found = begin(view, copy, respecified(copy, row), budget) if why is None else why
        if isinstance(found, str):
            obstacle = obstacle or found
        elif found is not None:
            begun[partition.name] = BeginMove(partition, found.spec, found.spus)
    obstacle = obstacle or lost_newcomers(view, waiting, now_ms)
    done = 100 * (len(partitions) - len(waiting)) // max(1, len(partitions))
    reason = f"its replicas are being moved: {done // _STEP * _STEP} % done"
    said = reason if obstacle is None else f"{reason}; {obstacle}"
    return Resizing(begun, said, until_ms)


def settings_for_now(wanted: Wanted, partition: Partition, log: LogSettings) -> LogSettings:
    """The settings of a partition's log. While its replicas have yet to move, a higher minimum of
    live replicas waits until one more than that are live, or all: otherwise a partition that gets
    more replicas could do without fewer of them than before."""
    current = partition.spec.log
    higher = log.min_in_sync_replicas > current.min_in_sync_replicas
    few = len(partition.status.lrs) < min(log.min_in_sync_replicas + 1, wanted.count)
    if higher and few and (partition.spec.moves or not wanted.is_met(partition)):
        return log.model_copy(update={"min_in_sync_replicas": current.min_in_sync_replicas})
    return log


def _begin(
    view: View, wanted: Wanted, partition: Partition, budget: Budget, now_ms: int
) -> BeginMove | str | None:
    if (why := may_move(view, partition)) is not None:
        return why
    ignore_racks, count = wanted.ignore_racks, wanted.count
    seats = row_of(view, partition.spec.replicas, budget)
    if len(seats) > count:
        spus = ((i, view.store.spu(i)) for i in partition.spec.replicas)
        lost = {i for i in partition.spec.replicas if view.liveness(i, now_ms) is Liveness.OFFLINE}
        kept = shrunk(
            seats,
            count,
            keep=partition.status.leader,
            lost=lost,
            draining={i for i, spu in spus if spu is not None and is_draining(view.store, spu)},
            ignore_racks=ignore_racks,
        )
        return begin(view, partition, respecified(partition, kept), budget)
    able = candidates(view, partition, budget)
    while len(seats) < count:
        found = extended(seats, able, ignore_racks=ignore_racks)
        if found is None:
            return (
                f"replicationFactor {count} needs {count} SPUs, and {len(seats)} that are online"
                " have room"
            )
        seats.append(found)
    row = tuple(seat.spu_id for seat in seats)
    return begin(view, partition, respecified(partition, row), budget)
