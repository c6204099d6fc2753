"""The replicas of a stream's segments, where the stream wants another number of them. Pure.

Replicas are moved by the SC that leads, whoever works for the stream: how many may move at once is
counted for the whole cluster. So this is no step of the stream's workflows, which go on meanwhile.
What is told is in the stream's status, `moves`.
"""

from __future__ import annotations

from typing import Final

from sc.controllers.actions import Action, Key, TellMoves, WakeAt, WritePartitionSpec
from sc.controllers.membership.resize import of_stream, resize, settings_for_now
from sc.store.view import View
from schemas.objects.partition import Partition, PartitionSpec
from schemas.objects.stream import Stream

#: The kind of the keys of this controller; their names are those of streams.
KIND: Final = "StreamReplicas"


def reconcile(view: View, key: Key, now_ms: int) -> tuple[Action, ...]:
    """Begin the moves of a stream's segments that may begin now."""
    stream = view.store.get(Stream, key.name)
    if stream is None or stream.deleting:
        return ()
    found = view.store.partitions_of("Stream", stream.name)
    partitions = [p for p in found if p.spec.owner.uid == stream.uid and not p.deleting]
    specs = {p.name: spec for p in partitions if (spec := _with_minimum(stream, p)) != p.spec}
    resizing = resize(view, of_stream(stream.spec), partitions, specs, now_ms)
    actions: list[Action] = [*resizing.begun.values()]
    actions += [
        WritePartitionSpec(p, specs[p.name])
        for p in partitions
        if p.name in specs and p.name not in resizing.begun
    ]
    if resizing.until_ms is not None:
        actions.append(WakeAt(key, resizing.until_ms))
    if resizing.reason != stream.status.moves:
        actions.append(TellMoves(stream, resizing.reason))
    return tuple(actions)


def _with_minimum(stream: Stream, partition: Partition) -> PartitionSpec:
    """The spec of a segment with the minimum of live replicas that it may have by now. All other
    settings are for the stream's workflow, which leaves sealed segments alone: their minimum counts
    when replicas go."""
    log, spec = stream.spec.log_settings, partition.spec
    least = log.min_in_sync_replicas
    if spec.log.min_in_sync_replicas == least:
        return spec
    wanted = spec.log.model_copy(update={"min_in_sync_replicas": least})
    now = settings_for_now(of_stream(stream.spec), partition, wanted)
    return spec if now == spec.log else spec.model_copy(update={"log": now})
