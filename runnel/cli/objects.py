"""``apply``, ``create``, ``get``, ``describe``, ``delete``, ``wait``: objects of the cluster."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import yaml

import runnel
from runnel.cli.context import ScOption, connected
from runnel.cli.readiness import commits, partitions_of
from runnel.cli.tables import Output, age, object_rows, print_objects, print_rows
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.kinds import find_kind
from schemas.manifest import load_paths
from schemas.metadata import Object
from schemas.partition import Partition
from schemas.quantities import format_size, parse_duration_ms
from schemas.topic import Topic
from schemas.validation import build_object

FilesOption = Annotated[
    list[str],
    typer.Option(
        "-f", "--filename", metavar="FILE|DIR|-", help="Manifests; may be given several times."
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
KindArgument = Annotated[str, typer.Argument(metavar="KIND", help="spus, topics, partitions, …")]
TimeoutOption = Annotated[str, typer.Option(metavar="DURATION", help="How long to wait at most.")]

create_app = typer.Typer(help="Create an object from options.", no_args_is_help=True)


def apply(filename: FilesOption, sc: ScOption = None) -> None:
    """Create what manifests describe, or change it to what they say.

    The whole spec is replaced: a field left out returns to its default. Nothing is sent unless
    every manifest is right.
    """
    loaded = load_paths(filename, sys.stdin)
    with connected(sc) as cluster:
        for item in loaded:
            try:
                print(cluster.apply(item.object))
            except RunnelError as error:
                error.message = f"{item.source}:{item.line}: {error.message}"
                raise


@create_app.command("topic")
def create_topic(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p")] = 1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r")] = 1,
    min_in_sync_replicas: Annotated[int | None, typer.Option()] = None,
    retention_time: Annotated[str | None, typer.Option(metavar="DURATION")] = None,
    retention_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    segment_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    max_record_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    compression: Annotated[str | None, typer.Option(help="none, lz4 or zstd")] = None,
    durability: Annotated[str | None, typer.Option(help="fsync or replicated")] = None,
    ignore_rack_assignment: Annotated[bool, typer.Option("--ignore-rack-assignment")] = False,
    wait_for_it: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Until it is placed.")
    ] = True,
    sc: ScOption = None,
) -> None:
    """Create a topic."""
    retention = {"time": retention_time, "size": retention_size}
    spec: dict[str, object] = {
        "partitions": partitions,
        "replicationFactor": replication_factor,
        "minInSyncReplicas": min_in_sync_replicas,
        "retention": {k: v for k, v in retention.items() if v is not None} or None,
        "segment": {"size": segment_size} if segment_size is not None else None,
        "maxRecordSize": max_record_size,
        "compression": compression,
        "durability": durability,
        "ignoreRackAssignment": ignore_rack_assignment or None,
    }
    manifest = {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {k: v for k, v in spec.items() if v is not None},
    }
    topic, problems = build_object(manifest)
    if topic is None:
        raise InvalidRequestError("; ".join(str(problem) for problem in problems))
    with connected(sc) as cluster:
        cluster.create(topic)
        print(f"topic/{name} created")
        if wait_for_it:
            _explain_placement(cluster, name)


def _explain_placement(cluster: runnel.Cluster, name: str) -> None:
    """Wait a moment for the placement, and say so when it cannot be made yet."""
    try:
        cluster.wait("topic", name, "provisioned", timeout=5.0)
    except runnel.DeadlineExceededError as error:
        print(f"it is created, but not placed yet: {error.message}", file=sys.stderr)


def get(
    kind: KindArgument,
    name: Annotated[str | None, typer.Argument(help="One object; all without it.")] = None,
    output: OutputOption = Output.TABLE,
    selector: Annotated[
        str, typer.Option("-l", "--selector", metavar="KEY=VALUE,…", help="Only these labels.")
    ] = "",
    sc: ScOption = None,
) -> None:
    """List objects of a kind, or one of them."""
    cls = find_kind(kind)
    labels = _labels(selector)
    with connected(sc) as cluster:
        if name is not None:
            print_objects([cluster.get(kind, name)], output, one=True)
            return
        objects = cluster.list(kind, labels)
        if not objects and output in (Output.TABLE, Output.WIDE):
            print(f"no {cls.PLURAL} found", file=sys.stderr)
            return
        print_objects(objects, output, one=False)


def _labels(selector: str) -> dict[str, str]:
    labels = {}
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if not equals or not key:
            raise InvalidRequestError(f"-l: {term!r} is not KEY=VALUE")
        labels[key] = value
    return labels


def describe(kind: KindArgument, name: str, sc: ScOption = None) -> None:
    """Show one object in full: its spec, its status and why, and what belongs to it."""
    with connected(sc) as cluster:
        obj = cluster.get(kind, name)
        _print_head(obj)
        match obj:
            case Topic():
                _print_partitions(cluster, obj)
            case Partition():
                pass
            case _:
                _print_held(cluster, obj)


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
    for part in ("spec", "status"):
        print(f"{part.capitalize()}:")
        text = yaml.safe_dump(data[part], sort_keys=False, default_flow_style=None, width=100)
        print("  " + text.rstrip().replace("\n", "\n  "))


def _print_partitions(cluster: runnel.Cluster, topic: Topic) -> None:
    partitions = partitions_of(cluster, topic.name, topic.uid)
    if not partitions:
        return
    print("Partitions:")
    # Any other would have its offsets only once it can commit, and let us wait for that.
    answering = [p.spec.index or 0 for p in partitions if commits(p)]
    try:
        offsets = cluster.offsets(topic.name, answering) if answering else {}
    except RunnelError as error:
        offsets = {}
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


def _print_held(cluster: runnel.Cluster, obj: Object) -> None:
    spu_id = getattr(obj.spec, "spu_id", None)
    held = [
        p
        for p in cluster.list("partitions")
        if isinstance(p, Partition) and spu_id in p.spec.replicas
    ]
    if held:
        print("Replicas:")
        headings, rows = object_rows(held, wide=False)
        print_rows(headings, rows)


def delete(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND", show_default=False)] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME]", show_default=False)] = None,
    filename: FilesOption = [],  # noqa: B006 - typer wants a literal default
    wait_for_it: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it is gone.")] = True,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Delete objects by kind and name, or those that manifests describe."""
    if bool(filename) == (kind is not None) or (kind is not None and name is None):
        raise InvalidRequestError("name KIND and NAME, or manifests with -f; not both")
    if kind is not None and name is not None:
        targets = [(find_kind(kind), name)]
    else:
        loaded = load_paths(filename, sys.stdin)
        targets = [(type(item.object), item.object.name) for item in reversed(loaded)]
    seconds = parse_timeout(timeout)
    missing: list[str] = []
    with connected(sc) as cluster:
        deleted = []
        for cls, target in targets:
            label = f"{cls.kind_name().lower()}/{target}"
            try:
                cluster.delete(cls.PLURAL, target)
            except NotFoundError:
                missing.append(label)
                continue
            deleted.append((cls, target, label))
        for cls, target, label in deleted:
            if wait_for_it:
                cluster.wait(cls.PLURAL, target, "deleted", timeout=seconds)
            print(f"{label} deleted")
    if missing:
        raise NotFoundError(f"does not exist: {', '.join(missing)}")


def wait(
    kind: KindArgument,
    name: str,
    condition: Annotated[
        str, typer.Option("--for", metavar="RESOLUTION|deleted", help="What to wait for.")
    ],
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Wait until an object has a resolution, or is gone."""
    seconds = parse_timeout(timeout)
    with connected(sc) as cluster:
        cluster.wait(kind, name, condition, timeout=seconds)
    print(f"{find_kind(kind).kind_name().lower()}/{name} {condition}")


def parse_timeout(text: str) -> float:
    """Seconds of a duration option. Raises InvalidRequestError."""
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise InvalidRequestError(f"--timeout: {error}") from error
