"""``apply``, ``create``, ``delete``, ``wait``: change objects of the cluster, or wait for them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runnel.cli import completion
from runnel.cli.arguments import (
    DryRunOption,
    FilesOption,
    KindArgument,
    NameArgument,
    RecursiveOption,
    ScOption,
    TimeoutOption,
    is_consumers,
    parse_timeout,
)
from runnel.cli.connection import administered
from runnel.cli.failure import warn
from runnel.cli.objects.pipeline_options import check_pipelines
from runnel.cli.progress import going_on, progress
from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    RunnelError,
)
from schemas.objects.kinds import find_kind
from schemas.objects.manifest.manifest import load_paths
from schemas.objects.manifest.validation import build_object
from schemas.objects.spu import Spu
from schemas.objects.system_topics import is_system_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.objects.metadata import Object

create_app = typer.Typer(help="Create an object from options.", no_args_is_help=True)


#: What `apply --wait` waits for: that the object works. Others work as soon as they are stored.
_WORKS: Final = {"topics": "provisioned", "spugroups": "reserved", "streams": "active"}


def apply(
    filename: FilesOption,
    recursive: RecursiveOption = False,
    wait_for_it: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until topics are placed, groups reserved, and streams active."
        ),
    ] = False,
    timeout: TimeoutOption = "60s",
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Create or update objects from manifests.

    The whole spec is replaced: a field left out returns to its default. Nothing is sent unless
    every manifest is valid. If the SC refuses one, the others are applied all the same.
    """
    seconds = parse_timeout(timeout)
    loaded = load_paths(filename, sys.stdin, recursive=recursive)
    check_pipelines(loaded)
    warnings: list[str] = []
    refused: list[RunnelError] = []
    with administered(sc, warnings.append) as cluster:
        for number, item in enumerate(loaded, 1):
            try:
                done = cluster.apply(item.object, dry_run=dry_run)
            except RunnelError as error:
                error.message = item.located(error.message)
                refused.append(error)
                if isinstance(error, RetryableError):
                    # Nobody is there to take the others.
                    if left := len(loaded) - number:
                        error.message = f"{error.message}; not sent: {left} more"
                    break
                continue
            while warnings:
                warn(item.located(warnings.pop(0)))
            print(done)
        _raise_all(refused)
        for item in loaded if wait_for_it and not dry_run else ():
            kind = item.object.PLURAL
            if (works := _WORKS.get(kind)) is not None:
                with progress(f"waiting for {kind}/{item.object.name}") as update:
                    cluster.wait(kind, item.object.name, works, seconds, update)


@create_app.command("topic")
def create_topic(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p")] = 1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r")] = 1,
    min_in_sync_replicas: Annotated[int | None, typer.Option()] = None,
    retention_time: Annotated[str | None, typer.Option(metavar="DURATION")] = None,
    retention_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    segment_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    segment_time: Annotated[str | None, typer.Option(metavar="DURATION")] = None,
    max_record_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    compression: Annotated[str | None, typer.Option(help="none, lz4 or zstd")] = None,
    durability: Annotated[str | None, typer.Option(help="fsync or replicated")] = None,
    ignore_rack_assignment: Annotated[bool, typer.Option("--ignore-rack-assignment")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="May be repeated.", show_default=False),
    ] = None,
    wait_for_it: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the topic is placed.")
    ] = True,
    timeout: TimeoutOption = "60s",
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Create a topic."""
    seconds = parse_timeout(timeout)
    retention = {"time": retention_time, "size": retention_size}
    segment = {"size": segment_size, "time": segment_time}
    spec: dict[str, object] = {
        "partitions": partitions,
        "replicationFactor": replication_factor,
        "minInSyncReplicas": min_in_sync_replicas,
        "retention": {k: v for k, v in retention.items() if v is not None} or None,
        "segment": {k: v for k, v in segment.items() if v is not None} or None,
        "maxRecordSize": max_record_size,
        "compression": compression,
        "durability": durability,
        "ignoreRackAssignment": ignore_rack_assignment or None,
    }
    manifest = {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {"name": name, "labels": _labels(label or [])},
        "spec": {k: v for k, v in spec.items() if v is not None},
    }
    topic, problems = build_object(manifest)
    if topic is None:
        raise InvalidRequestError("; ".join(str(problem) for problem in problems))
    with administered(sc) as cluster:
        cluster.create(topic, dry_run=dry_run)
        print(f"topic/{name} created{_tried(dry_run)}")
        if wait_for_it and not dry_run:
            with progress(f"waiting for topic/{name}") as update:
                cluster.wait("topic", name, "provisioned", seconds, update)


@create_app.command("scope")
def create_scope(
    name: Annotated[str, typer.Argument(help="The scope's name.")],
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Create a scope: a namespace of streams. The scope default exists always."""
    _create("Scope", name, {}, dry_run=dry_run, sc=sc)


@create_app.command("stream")
def create_stream(
    name: Annotated[str, typer.Argument(help="SCOPE/NAME, or NAME in the scope default.")],
    segments: Annotated[
        int, typer.Option("--segments", help="Segments to begin with, and never fewer.")
    ] = 1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r")] = 1,
    min_in_sync_replicas: Annotated[int | None, typer.Option()] = None,
    max_record_size: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    compression: Annotated[str | None, typer.Option(help="none, lz4 or zstd")] = None,
    durability: Annotated[str | None, typer.Option(help="fsync or replicated")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="May be repeated.", show_default=False)
    ] = None,
    wait_for_it: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until its segments exist.")
    ] = True,
    timeout: TimeoutOption = "60s",
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Create a stream: a log whose segments can be split and merged."""
    seconds = parse_timeout(timeout)
    spec: dict[str, object] = {
        "scaling": {"minSegments": segments},
        "replicationFactor": replication_factor,
        "minInSyncReplicas": min_in_sync_replicas,
        "maxRecordSize": max_record_size,
        "compression": compression,
        "durability": durability,
        "tags": tag,
    }
    full = _create("Stream", name, spec, dry_run=dry_run, sc=sc)
    if wait_for_it and not dry_run:
        with administered(sc) as cluster, progress(f"waiting for stream/{full}") as update:
            cluster.wait("stream", full, "active", seconds, update)


def _create(
    kind: str, name: str, spec: Mapping[str, object], *, dry_run: bool, sc: str | None
) -> str:
    """Create an object, say so, and give its name. Raises InvalidRequestError, ConflictError."""
    manifest = {
        "apiVersion": "runnel/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    obj, problems = build_object(manifest)
    if obj is None:
        raise InvalidRequestError("; ".join(str(problem) for problem in problems))
    with administered(sc) as cluster:
        cluster.create(obj, dry_run=dry_run)
    print(f"{kind.lower()}/{obj.name} created{_tried(dry_run)}")
    return obj.name


def _labels(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequestError(f"--label {text}: write NAME=VALUE")
        found[name] = value
    return found


def _tried(dry_run: bool) -> str:
    return " (dry run)" if dry_run else ""


def delete(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND|KIND/NAME]", show_default=False, autocompletion=completion.kinds
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", show_default=False, autocompletion=completion.names),
    ] = None,
    filename: FilesOption = [],  # noqa: B006 - typer wants a literal default
    recursive: RecursiveOption = False,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="For a consumer: delete only its positions in this topic.",
            autocompletion=completion.topics,
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Delete even an SPU that still holds replicas, or a system topic. What they hold"
            " is lost.",
        ),
    ] = False,
    wait_for_it: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is deleted.")
    ] = True,
    timeout: TimeoutOption = "60s",
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Delete objects by kind and name or by manifests, or delete a named consumer."""
    names = name or []
    if kind is not None and is_consumers(kind):
        if len(names) != 1 or filename or force or dry_run:
            raise InvalidRequestError(
                "delete consumer takes NAME and --topic, but not -f, --force or --dry-run"
            )
        from runnel.cli.records.consumers import delete_consumer

        delete_consumer(names[0], topic, sc)
        return
    if topic is not None:
        raise InvalidRequestError("--topic: only with delete consumer NAME")
    if bool(filename) == (kind is not None):
        raise InvalidRequestError("name KIND and NAME, or manifests with -f; not both")
    if kind is not None:
        targets = _targets(kind, names)
    else:
        loaded = load_paths(filename, sys.stdin, recursive=recursive)
        targets = [(type(item.object), item.object.name) for item in reversed(loaded)]
    others = {
        cls.PLURAL for cls, target in targets if cls is not Spu and not is_system_name(target)
    }
    if force and others:
        raise InvalidRequestError(f"--force is for SPUs, not for {', '.join(sorted(others))}")
    seconds = parse_timeout(timeout)
    missing: list[str] = []
    refused: list[RunnelError] = []
    with administered(sc) as cluster:
        deleted = []
        wanted = list(dict.fromkeys(targets))
        for number, (cls, target) in enumerate(wanted, 1):
            label = f"{cls.kind_name().lower()}/{target}"
            try:
                cluster.delete(cls.PLURAL, target, force=force, dry_run=dry_run)
            except NotFoundError:
                missing.append(f"{cls.kind_name().lower()} {target!r} does not exist")
                continue
            except RunnelError as error:
                # The API has another word for it.
                error.message = error.message.replace("force=true", "--force")
                refused.append(error)
                if isinstance(error, RetryableError):
                    # Nobody is there to delete the others.
                    if left := len(wanted) - number:
                        error.message = f"{label}: {error.message}; not sent: {left} more"
                    break
                continue
            deleted.append((cls, target, label))
        due_s = time.monotonic() + seconds
        for cls, target, label in deleted:
            try:
                if wait_for_it and not dry_run:
                    left_s = max(0.0, due_s - time.monotonic())
                    goes_on = f"the deletion of {label} goes on"
                    with going_on(goes_on), progress(f"waiting for {label} to be gone") as update:
                        cluster.wait(cls.PLURAL, target, "deleted", left_s, update)
            except RunnelError as error:
                # All of them had this time together.
                error.message = error.message.replace(f"after {left_s:g} s", f"after {seconds:g} s")
                refused.append(error)
                continue
            print(f"{label} deleted{_tried(dry_run)}")
    if missing:
        refused.insert(0, NotFoundError("; ".join(missing)))
    _raise_all(refused)


def _raise_all(errors: list[RunnelError]) -> None:
    """Raise the errors of several objects, if there are any: each is reported, and the exit code is
    the highest."""
    if len(errors) > 1:
        raise ExceptionGroup("not all was done", errors)
    if errors:
        raise errors[0]


def _targets(kind: str, names: list[str]) -> list[tuple[type[Object], str]]:
    """``topic a b`` or ``topic/a topic/b``, the form that ``get -o name`` prints."""
    if "/" not in kind:
        if not names:
            raise InvalidRequestError(f"which of the {find_kind(kind).PLURAL}? Give its name")
        return [(find_kind(kind), name) for name in names]
    found = []
    for text in (kind, *names):
        word, slash, name = text.partition("/")
        if not (slash and name):
            raise InvalidRequestError(f"{text!r}: write KIND/NAME, or once KIND and then names")
        found.append((find_kind(word), name))
    return found


def wait(
    kind: KindArgument,
    name: NameArgument,
    condition: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="RESOLUTION|deleted|writable",
            help="What to wait for.",
            autocompletion=completion.resolutions,
        ),
    ],
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Wait until an object has a resolution, is deleted, or is writable.

    A resolution counts only if it is about the object's current spec. A partition is writable if
    it has a leader and nothing keeps it from committing; a topic, if all its partitions are.
    While the SC cannot write to its KV, only `deleted` counts: other states may be old.
    """
    seconds = parse_timeout(timeout)
    with administered(sc) as cluster, progress(f"waiting for {kind}/{name}") as update:
        cluster.wait(kind, name, condition, seconds, update)
    print(f"{find_kind(kind).kind_name().lower()}/{name} {condition}")
