"""Objects as tables, YAML, JSON and names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import InvalidRequestError
from schemas.ids import format_term
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, is_writable
from schemas.objects.pipeline import Pipeline, PipelineState
from schemas.objects.rebalance import Rebalance
from schemas.objects.spu import Spu
from schemas.objects.spu_group import SpuGroup
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic

if TYPE_CHECKING:
    from runnel.cli.jsonpath import Template

_JSONPATH: Final = "jsonpath"


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


def parse_output(text: str) -> Output | Template:
    """What ``-o`` names. Raises InvalidRequestError."""
    name, equals, template = text.partition("=")
    if name == _JSONPATH:
        if not template:
            raise InvalidRequestError(
                "-o jsonpath: write the template behind it: -o jsonpath='{.items[*].metadata.name}'"
            )
        from runnel.cli.jsonpath import parse_template

        return parse_template(template)
    if equals or name not in set(Output):
        known = ", ".join(Output)
        raise InvalidRequestError(
            f"-o, --output: {text!r} is not one of {known}, jsonpath=TEMPLATE"
        )
    return Output(name)


class TableOutput(StrEnum):
    """For what is neither an object nor a manifest."""

    TABLE = "table"
    JSON = "json"


def count(number: int, noun: str) -> str:
    """``1 record``, ``1,000 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Text for a line of a table: nothing in it moves the cursor, begins a new line or cannot be
    printed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def age(timestamp: str | None, now: datetime | None = None) -> str:
    """How long ago, in the largest unit that fits: ``5m``."""
    if timestamp is None:
        return "-"
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(timestamp)).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _spu(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Spu):
        raise TypeError(obj)
    public = obj.spec.public_endpoint
    return [
        ("ID", str(obj.spec.spu_id), False),
        ("TYPE", obj.spec.spu_type.value, False),
        ("RACK", obj.spec.rack or "-", False),
        ("ENDPOINT", f"{public.host}:{public.port}", False),
        ("RESOLUTION", obj.status.resolution.value, False),
        ("REASON", obj.status.reason or "", False),
    ]


def _topic(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Topic):
        raise TypeError(obj)
    resolution = obj.status.resolution.value
    return [
        ("PARTITIONS", str(obj.spec.partition_count), False),
        ("REPLICAS", str(obj.spec.replica_count), False),
        ("RESOLUTION", f"{resolution}, sealed" if obj.spec.sealed else resolution, False),
        ("REASON", obj.status.reason or "", False),
        ("DURABILITY", obj.spec.durability.value, True),
        ("COMPRESSION", obj.spec.compression.value, True),
        ("PLACEMENT", " ".join(str(list(row)) for row in obj.status.replica_map), True),
    ]


def _partition(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Partition):
        raise TypeError(obj)
    status = obj.status
    return [
        ("LEADER", "-" if status.leader is None else str(status.leader), False),
        ("REPLICAS", _replicas(obj), False),
        ("LRS", ",".join(str(m.spu_id) for m in status.lrs) or "-", False),
        ("RESOLUTION", status.resolution.value, False),
        ("WRITABLE", "yes" if is_writable(obj) else "no", False),
        ("REASON", status.reason or "", False),
        ("TERM", format_term(status.term), True),
        ("UNCLEAN", "-" if status.unclean_term is None else format_term(status.unclean_term), True),
        ("UID", obj.uid, True),
    ]


def _replicas(partition: Partition) -> str:
    """The SPUs with a replica: ``1,+4,-2`` while 4 joins and 2 leaves."""
    spec = partition.spec
    staying = (f"+{i}" if i in (spec.joining or ()) else str(i) for i in spec.replicas)
    return ",".join((*staying, *(f"-{i}" for i in spec.leaving or ())))


def _rebalance(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Rebalance):
        raise TypeError(obj)
    status = obj.status
    return [
        ("RESOLUTION", status.resolution.value, False),
        ("LEFT", "-" if status.left is None else f"{status.left:,}", False),
        ("REASON", status.reason or "", False),
    ]


def _spu_group(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, SpuGroup):
        raise TypeError(obj)
    spec = obj.spec
    ids = f"{spec.min_id}-{spec.last_id}" if spec.replicas > 1 else str(spec.min_id)
    return [
        ("REPLICAS", str(spec.replicas), False),
        ("IDS", ids if spec.replicas else "-", False),
        ("RACK", spec.template.rack or "-", False),
        ("RESOLUTION", obj.status.resolution.value, False),
        ("REASON", obj.status.reason or "", False),
    ]


def _pipeline(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Pipeline):
        raise TypeError(obj)
    status = obj.status
    live = status.state in (PipelineState.INIT, PipelineState.RUNNING)
    rate = status.rows_per_second if live else None
    return [
        ("STATE", status.state.value, False),
        ("BATCH", _number(status.last_batch), False),
        ("ROWS/S", "-" if rate is None else f"{rate:,.0f}", False),
        ("LAG", _number(status.lag), False),
        ("REASON", printable(status.reason or ""), True),
        ("HOST", status.host or "-", True),
        ("RUN", status.run_id or "-", True),
        ("SEEN", age(status.last_seen), True),
        ("RESTARTS", str(status.restarts), True),
    ]


def _stream(obj: Object) -> list[tuple[str, str, bool]]:
    if not isinstance(obj, Stream):
        raise TypeError(obj)
    status = obj.status
    return [
        ("STATE", "deleting" if obj.deleting else status.state.value, False),
        ("EPOCH", _number(status.current_epoch), False),
        ("SEGMENTS", _number(status.segments), False),
        ("REPLICAS", str(obj.spec.replication_factor), False),
        ("REASON", printable(status.told), False),
        ("QUEUED", _number(status.queued), True),
        ("TAGS", printable(",".join(obj.spec.tags)) or "-", True),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


_COLUMNS: dict[str, Callable[[Object], list[tuple[str, str, bool]]]] = {
    "Spu": _spu,
    "SpuGroup": _spu_group,
    "Rebalance": _rebalance,
    "Topic": _topic,
    "Partition": _partition,
    "Pipeline": _pipeline,
    "Stream": _stream,
}


def object_rows(objects: Sequence[Object], *, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table of objects of one kind."""
    headings: list[str] = []
    rows: list[list[str]] = []
    for obj in objects:
        columns = _COLUMNS.get(obj.kind)
        cells = columns(obj) if columns is not None else []
        shown = [(heading, text) for heading, text, only_wide in cells if wide or not only_wide]
        shown.append(("AGE", age(obj.metadata.creation_timestamp)))
        headings = ["NAME", *(heading for heading, _ in shown)]
        rows.append([obj.name, *(text for _, text in shown)])
    return headings, rows


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table as kubectl prints them: no frames, nothing cut, so that it can be grepped."""
    widths = column_widths(headings, rows)
    for row in (headings, *rows):
        print(format_row(row, widths))


def column_widths(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The longest text of each column."""
    return [max(map(len, column)) for column in zip(headings, *rows, strict=True)]


def format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table; a cell longer than its column moves the rest of its line."""
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


def print_document(document: dict[str, Any], template: Template) -> None:
    """Print what a template makes of the document that ``-o json`` prints; as kubectl, without a
    newline at the end."""
    print(template.render(document), end="")


def print_objects(objects: Sequence[Object], output: Output | Template, *, one: bool) -> None:
    """Print objects, tables of them for each kind; ``one`` where a single one was asked for by
    name."""
    if output is Output.JSON or not isinstance(output, Output):
        data = [obj.to_json() for obj in objects]
        document = data[0] if one else {"items": data}
        if not isinstance(output, Output):
            print_document(document, output)
        else:
            print(json.dumps(document, indent=2))
        return
    match output:
        case Output.YAML:
            from schemas.objects.manifest.manifest import dump_yaml

            print(dump_yaml(objects), end="")
        case Output.NAME:
            for obj in objects:
                print(f"{type(obj).PLURAL}/{obj.name}")
        case Output.TABLE | Output.WIDE:
            _print_tables(objects, wide=output is Output.WIDE)


def _print_tables(objects: Sequence[Object], *, wide: bool) -> None:
    """A table for each kind; if there are several, names say the kind, as `delete` takes them."""
    kinds = list(dict.fromkeys(type(obj) for obj in objects))
    for number, kind in enumerate(kinds):
        headings, rows = object_rows([o for o in objects if type(o) is kind], wide=wide)
        if len(kinds) > 1:
            rows = [[f"{kind.kind_name().lower()}/{row[0]}", *row[1:]] for row in rows]
        if number:
            print()
        print_rows(headings, rows)
