"""``describe``: one object in full, with the reason for its state, its parts and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml

from runnel.cli.arguments import KindArgument, NameArgument, ScOption, is_consumers
from runnel.cli.connection import administered, connected
from runnel.cli.objects.reasons import explain_state
from runnel.cli.readiness import commits, partitions_of
from runnel.cli.render import age, object_rows, print_rows
from schemas.errors import RunnelError
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import PipelineProgress
from schemas.objects.quantities import format_size
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic

if TYPE_CHECKING:
    from runnel.admin.answers import HistoryEntry, PartitionOffsets, ReplicaState
    from runnel.admin.blocking import BlockingAdmin

_HISTORY_SHOWN = 10
_EPOCHS_SHOWN = 10
#: Paths that say nothing in a history: numbers of a run are stored now and then.
_UNTOLD = {
    "status.reason",
    "status.moves",
    "status.observedGeneration",
    *(f"status.{field.alias}" for field in PipelineProgress.model_fields.values()),
    "status.lastSeen",
} - {"status.restarts"}
# A description is wanted most when something does not answer.
_OFFSETS_TIMEOUT_S = 3.0


def describe(kind: KindArgument, name: NameArgument, sc: ScOption = None) -> None:
    """Show one object in full: the reason for its state, its parts, and its history."""
    if is_consumers(kind):
        from runnel.cli.records.consumers import describe_consumer

        describe_consumer(name, sc)
        return
    with administered(sc) as cluster:
        obj = cluster.get(kind, name)
        _print_head(obj)
        match obj:
            case Topic():
                _print_partitions(cluster, obj, sc)
            case Partition():
                _print_replicas(cluster, obj, sc)
            case Spu():
                _print_held(cluster, obj)
            case Stream():
                _print_segments(cluster, obj)
            case SpuGroup():
                _print_belonging("SPUs", cluster.list("spus", f"spugroup={obj.name}"))
            case _:
                pass
        _print_history(cluster, obj)


def _print_head(obj: Object) -> None:
    data = obj.to_json()
    print(f"Name:         {obj.name}")
    print(f"Kind:         {obj.kind}")
    print(f"Uid:          {obj.uid}")
    created = obj.metadata.creation_timestamp
    print(f"Created:      {created} ({age(created)} ago)")
    for title, values in (
        ("Labels", obj.metadata.labels),
        ("Annotations", obj.metadata.annotations),
    ):
        if values:
            print(f"{title + ':':13} " + ", ".join(f"{k}={v}" for k, v in values.items()))
    first, *rest = explain_state(obj)
    print(f"State:        {first}")
    for line in rest:
        print(f"              {line}")
    for part in ("spec", "status"):
        print(f"{part.capitalize()}:")
        text = yaml.safe_dump(data[part], sort_keys=False, default_flow_style=None, width=100)
        print("  " + text.rstrip().replace("\n", "\n  "))


def _print_partitions(cluster: BlockingAdmin, topic: Topic, sc: str | None) -> None:
    partitions = partitions_of(cluster, topic.name, topic.uid)
    if not partitions:
        return
    print("Partitions:")
    # Any other partition would keep us waiting until it can commit.
    answering = [p.spec.index or 0 for p in partitions if commits(p)]
    offsets: dict[int, PartitionOffsets] = {}
    if answering:
        try:
            with connected(sc) as records:
                offsets = records.offsets(topic.name, answering, timeout=_OFFSETS_TIMEOUT_S)
        except RunnelError as error:
            print(f"  (offsets are not known: {error.message})")
    rows = []
    for p in partitions:
        found = offsets.get(p.spec.index or 0)
        rows.append(
            [
                f"  {p.spec.index}",
                "-" if p.status.leader is None else str(p.status.leader),
                ",".join(map(str, p.spec.replicas)),
                p.status.resolution.value,
                str(found.earliest) if found else "-",
                str(found.latest) if found else "-",
                format_size(found.size_bytes) if found else "-",
                p.status.reason or "",
            ]
        )
    headings = ["  ID", "LEADER", "REPLICAS", "RESOLUTION", "EARLIEST", "NEXT", "BYTES", "REASON"]
    print_rows(headings, rows)


def _print_replicas(cluster: BlockingAdmin, partition: Partition, sc: str | None) -> None:
    try:
        replicas = cluster.replicas(partition.name)
    except RunnelError as error:
        print(f"Replicas:\n  (not known: {error.message})")
        return
    end: int | None = None
    of_topic = partition.spec.owner.kind == Topic.kind_name()
    if of_topic and partition.spec.index is not None and commits(partition):
        try:
            with connected(sc) as records:
                found = records.offsets(
                    partition.spec.owner.name, [partition.spec.index], timeout=_OFFSETS_TIMEOUT_S
                )
                end = found[partition.spec.index].latest
        except RunnelError as error:
            print(f"(the committed offset is not known: {error.message})")
    print("Replicas:")
    headings = ["  SPU", "STATE", "FROM", "NEXT", "BEHIND", "REASON"]
    print_rows(headings, [replica_row(replica, end) for replica in replicas])


def replica_row(replica: ReplicaState, end: int | None) -> list[str]:
    """A row of a table of replicas; ``end`` is the offset after the last committed record, None
    where that is not known. Live replicas hold every committed record.
    """
    if replica.role is None:
        state = "away"
    elif not replica.fit:
        state = "unfit"
    elif replica.role == "leader":
        state = "leader"
    else:
        state = "live" if replica.live else "catching up"
    behind = "-"
    if state == "catching up" and end is not None and replica.next_offset is not None:
        behind = f"{max(0, end - replica.next_offset):,}"
    known = state in {"catching up", "unfit"}
    return [
        f"  {replica.spu}",
        state,
        "-" if replica.log_start is None else str(replica.log_start),
        # For a replica that is up to date, the report is older than the last append.
        str(replica.next_offset) if known and replica.next_offset is not None else "-",
        behind,
        _printable(replica.reason or ""),
    ]


def _print_segments(cluster: BlockingAdmin, stream: Stream) -> None:
    """The last epochs as a drawing, and the partitions of the current segments."""
    current = stream.status.current_epoch
    if current is None:
        return
    from runnel.cli.stream.stream import print_beginning, print_map, print_subscribers

    of = cluster.stream(stream.name)
    try:
        print_map([of.epoch(n) for n in range(max(0, current - _EPOCHS_SHOWN + 1), current + 1)])
        print_beginning(of.head())
        print_subscribers(of.subscribers())
    except RunnelError as error:
        print(f"Segments:\n  (not known: {error.message})")


def _print_held(cluster: BlockingAdmin, spu: Spu) -> None:
    held = [
        p
        for p in cluster.list("partitions", show_system=True)
        if isinstance(p, Partition) and spu.spec.spu_id in p.spec.replicas
    ]
    _print_belonging("Replicas", held)


def _print_belonging(title: str, objects: Sequence[Object]) -> None:
    if objects:
        print(f"{title}:")
        headings, rows = object_rows(objects, wide=False)
        print_rows([f"  {headings[0]}", *headings[1:]], [[f"  {r[0]}", *r[1:]] for r in rows])


def _print_history(cluster: BlockingAdmin, obj: Object) -> None:
    try:
        history = cluster.history(obj.kind, obj.name, _HISTORY_SHOWN)
    except RunnelError as error:
        print(f"History:\n  (not known: {error.message})")
        return
    if not history.entries:
        return
    print("History:" if history.complete else "History (the last of it):")
    headings = ["  AGE", "REVISION", "BY", "CHANGE", "REASON", "CAUSE"]
    print_rows(headings, history_rows(history.entries, complete=history.complete))


def history_rows(entries: Sequence[HistoryEntry], *, complete: bool) -> list[list[str]]:
    """Rows of a table of writes, the newest first; the last one is the creation if ``complete``."""
    return [
        [
            f"  {age(entry.at)}",
            str(entry.revision),
            _printable(entry.by or "-"),
            "created" if complete and entry is entries[-1] else _change(entry),
            _printable(entry.reason or ""),
            _printable(entry.cause or "-"),
        ]
        for entry in entries
    ]


def _change(entry: HistoryEntry) -> str:
    """``spec.partitions, resolution → pending``"""
    words = []
    for path in entry.changed:
        _, _, field = path.partition(".")
        if path in {"status.resolution", "status.state"} and entry.resolution is not None:
            words.append(f"{field} → {entry.resolution}")
        elif path not in _UNTOLD:
            words.append(path)
    return ", ".join(words) or ", ".join(entry.changed) or "-"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
