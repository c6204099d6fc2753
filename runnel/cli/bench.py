"""``runnel bench``: measures a running cluster, and compares it with the limits of this machine."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Final, Self

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from runnel.bench.cpu import spu_pids
from runnel.bench.latency import Latency
from runnel.bench.result import Result
from runnel.bench.running import measure, opened
from runnel.bench.settings import DEFAULT_RATE, Mode, Settings
from runnel.cli import completion
from runnel.cli.arguments import ScOption
from runnel.cli.connection import connected, who
from runnel.cli.failure import say, stderr
from runnel.cli.readiness import say_what_is_awaited
from runnel.cli.records.produce import AcksChoice
from runnel.cli.render import count, print_rows
from runnel.contexts import default_sc
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import format_size, parse_size
from schemas.objects.topic import Compression, Durability

app = typer.Typer(
    help="Measure a running cluster, and compare it with the limits of this machine.",
    no_args_is_help=True,
)
_REFRESH_S: Final = 0.25

_OF_ITS_OWN: Final = "For the topic that bench creates"
TopicOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.topics,
        help="Use this topic and keep it; nothing else may write to it. Default: a new topic,"
        " deleted at the end.",
        show_default=False,
    ),
]
RecordsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Number of records. Default: 256 MiB of records, at most 2,000,000 (--per-record:"
        " 500,000); for e2e, 10 s at the rate.",
        show_default=False,
    ),
]
SecondsOption = Annotated[
    float | None,
    typer.Option(metavar="S", help="Run this long, instead of --records.", show_default=False),
]
RecordSizeOption = Annotated[str, typer.Option(metavar="SIZE", help="Size of each record.")]
PartitionsOption = Annotated[
    int | None, typer.Option("--partitions", "-p", metavar="P", help=f"{_OF_ITS_OWN}. [default: 1]")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option("--replication-factor", "-r", metavar="R", help=f"{_OF_ITS_OWN}. [default: 1]"),
]
DurabilityOption = Annotated[
    Durability | None, typer.Option(help=f"{_OF_ITS_OWN}. [default: fsync]", show_default=False)
]
AcksOption = Annotated[AcksChoice, typer.Option(help="When a record counts as sent.")]
CompressionOption = Annotated[
    Compression | None, typer.Option(help="Default: that of the topic.", show_default=False)
]
BatchOption = Annotated[str, typer.Option(metavar="SIZE", help="Size at which a batch is sent.")]
LingerOption = Annotated[
    float | None,
    typer.Option(
        metavar="MS",
        help="How long a batch waits for more. Default: up to 5, while others are in flight.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def produce(
    topic: TopicOption = None,
    records: RecordsOption = None,
    seconds: SecondsOption = None,
    record_size: RecordSizeOption = "1Ki",
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    acks: AcksOption = AcksChoice.COMMITTED,
    durability: DurabilityOption = None,
    compression: CompressionOption = None,
    batch_bytes: BatchOption = "1Mi",
    linger_ms: LingerOption = None,
    columnar: Annotated[
        bool, typer.Option("--columnar/--per-record", help="send_table, or send record by record.")
    ] = True,
    as_json: JsonOption = False,
    sc: ScOption = None,
) -> None:
    """Measure how fast the cluster takes records.

    Latency is the time from sending a batch to its acknowledgement.
    """
    settings = Settings(
        mode=Mode.PRODUCE,
        topic=topic,
        records=records,
        seconds=seconds,
        record_size=_size("--record-size", record_size),
        partitions=partitions,
        replication_factor=replication_factor,
        acks=acks.value,
        durability=None if durability is None else durability.value,
        compression=None if compression is None else compression.value,
        batch_bytes=_size("--batch-bytes", batch_bytes),
        linger_ms=linger_ms,
        columnar=columnar,
    )
    _run(settings, sc, as_json=as_json)


@app.command()
def consume(
    topic: TopicOption = None,
    records: RecordsOption = None,
    seconds: SecondsOption = None,
    record_size: RecordSizeOption = "1Ki",
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    acks: AcksOption = AcksChoice.COMMITTED,
    durability: DurabilityOption = None,
    compression: CompressionOption = None,
    batch_bytes: BatchOption = "1Mi",
    columnar: Annotated[
        bool, typer.Option("--columnar/--per-record", help="Arrow batches, or record by record.")
    ] = True,
    as_json: JsonOption = False,
    sc: ScOption = None,
) -> None:
    """Measure how fast records are read, after writing them unmeasured.

    Latency is the time that a reader waits for records. With --seconds the records are read again
    and again until the time is over.
    """
    settings = Settings(
        mode=Mode.CONSUME,
        topic=topic,
        records=records,
        seconds=seconds,
        record_size=_size("--record-size", record_size),
        partitions=partitions,
        replication_factor=replication_factor,
        acks=acks.value,
        durability=None if durability is None else durability.value,
        compression=None if compression is None else compression.value,
        batch_bytes=_size("--batch-bytes", batch_bytes),
        columnar=columnar,
    )
    _run(settings, sc, as_json=as_json)


@app.command()
def e2e(
    topic: TopicOption = None,
    records: RecordsOption = None,
    seconds: SecondsOption = None,
    rate: Annotated[int, typer.Option(metavar="R", help="Records per second.")] = DEFAULT_RATE,
    record_size: RecordSizeOption = "1Ki",
    partitions: PartitionsOption = None,
    replication_factor: ReplicationOption = None,
    acks: AcksOption = AcksChoice.COMMITTED,
    durability: DurabilityOption = None,
    compression: CompressionOption = None,
    batch_bytes: BatchOption = "1Mi",
    linger_ms: LingerOption = None,
    columnar: Annotated[
        bool, typer.Option("--columnar/--per-record", help="send_table, or send record by record.")
    ] = False,
    as_json: JsonOption = False,
    sc: ScOption = None,
) -> None:
    """Measure how long records take to reach a consumer, at a steady rate.

    Latency counts from the moment at which a record was due at that rate, even if it was sent
    later.
    """
    settings = Settings(
        mode=Mode.E2E,
        topic=topic,
        records=records,
        seconds=seconds,
        record_size=_size("--record-size", record_size),
        partitions=partitions,
        replication_factor=replication_factor,
        acks=acks.value,
        durability=None if durability is None else durability.value,
        compression=None if compression is None else compression.value,
        batch_bytes=_size("--batch-bytes", batch_bytes),
        linger_ms=linger_ms,
        columnar=columnar,
        rate=rate,
    )
    _run(settings, sc, as_json=as_json)


@app.command()
def spark(
    mb: Annotated[
        int, typer.Option("--mb", min=1, metavar="MB", help="Bytes of each topic, in 10^6.")
    ] = 200,
    row_size: Annotated[
        list[str] | None,
        typer.Option(
            "--row-size",
            metavar="SIZE",
            help="Size of each value; may be given several times. [default: 100, 1Ki]",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rounds that count, after two that do not.")
    ] = 5,
    directory: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where files are written. Default: the one for temporary files.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    sc: ScOption = None,
) -> None:
    """Measure how fast Spark reads topics, from logs and from archives, beside its own Parquet
    reader.

    Needs the extra spark. Each query runs on each source in turn. MB/S is without the fixed cost,
    which is that of the same query of an empty topic.
    """
    from runnel.spark_bench import bench, table

    sizes = tuple(_size("--row-size", size) for size in row_size or ("100", "1Ki"))
    address = default_sc() if sc is None else sc
    with connected(address) as cluster:
        pids = spu_pids(cluster, address)
    with _Progress() as progress:
        found = bench(
            address,
            mb=mb,
            row_bytes=sizes,
            rounds=rounds,
            directory=directory,
            spu_pids=pids,
            report=progress,
        )
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        print_rows(*_headed(table(found)))


def _headed(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    return rows[0], rows[1:]


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise InvalidRequestError(f"{option}: {error}") from error


def _run(settings: Settings, sc: str | None, *, as_json: bool) -> None:
    settings.require_own_topic()
    with opened(default_sc() if sc is None else sc, who()) as session, _Progress() as progress:
        if settings.topic is not None:
            committing = settings.acks == "committed"
            say_what_is_awaited(session.cluster, settings.topic, committing=committing)
        result = measure(session, settings, progress, say)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print("\n".join(describe(result)))


class _Progress:
    """Shows the current step and its progress on standard error, if that is a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        # Seldom, because drawing takes processor time from the measurement.
        self._progress = Progress(
            *columns,
            console=stderr(),
            transient=True,
            refresh_per_second=2,
            disable=not stderr().is_terminal,
        )
        self._task = self._progress.add_task("connecting", total=None)
        self._next = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, what: str) -> None:
        self._progress.reset(self._task, total=None, description=what)

    def advance(self, share: float) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REFRESH_S
            self._progress.update(self._task, total=1.0, completed=share)


def describe(result: Result) -> list[str]:
    """The result as lines of text for somebody who has not read the manual."""
    mode, floor, usage, latency = (
        result.settings.mode,
        result.floor,
        result.usage,
        result.latency or Latency(math.nan, math.nan, math.nan),
    )
    cpu, used = result.cpu_s_per_million, "not known: not all daemons are on this host"
    if usage.daemons is not None:
        each = 1e6 / result.records
        daemons_s = sum(usage.daemons.values())
        used = f"client {usage.client_s * each:,.1f}, daemons {daemons_s * each:,.1f}"
    writes, fsyncs = [], []
    if mode is not Mode.CONSUME:
        note = "with an fsync at its end"
        writes.append(_against("  bare write", floor.write_mb_per_s, result.of_write, note))
        fsyncs.append(_against("  bare fsync", floor.fsync_ms, result.in_fsyncs, "of 4 KiB", 2))
    rows = [
        ["", "measured", "floor", "ratio", ""],
        ["throughput, MB/s", f"{result.mb_per_s:,.1f}", "", "", "payload; 1 MB is 10^6 bytes"],
        *writes,
        _against("  bare socket", floor.loopback_mb_per_s, result.of_loopback, "of this host"),
        ["records/s", f"{result.records_per_s:,.0f}", "", "", ""],
        ["latency p50, ms", f"{latency.p50:,.2f}", "", "", _latency_of(result.settings)],
        *fsyncs,
        ["latency p99, ms", f"{latency.p99:,.2f}", "", "", ""],
        ["latency max, ms", f"{latency.max:,.2f}", "", "", ""],
        ["CPU s/million records", "-" if cpu is None else f"{cpu:,.1f}", "", "", used],
    ]
    return [
        *_headline(result),
        "",
        *aligned(rows),
        "",
        f"floor: files in {result.floor_directory}, sockets of this host",
        f"limit: {result.limit()}",
    ]


def _headline(result: Result) -> list[str]:
    settings = result.settings
    how = "columnar" if settings.columnar else "record by record"
    topic = settings.topic or "created for this run, then deleted"
    linger = "" if settings.mode is Mode.CONSUME else _linger(settings.linger_ms)
    partitions = count(settings.partitions or 1, "partition")
    replicas = count(settings.replication_factor or 1, "replica")
    batches = format_size(settings.batch_bytes)
    records = f"{count(result.records, 'record')} of {count(settings.record_size, 'byte')}"
    producer = f"acks {settings.acks}, compression {settings.compression}"
    return [
        f"{_DONE[settings.mode]} {records}, {how}, in {result.seconds:.2f} s",
        f"topic: {topic}; {partitions}, {replicas}, durability {settings.durability}",
        f"written with {producer}, batches of {batches}{linger}",
    ]


def _linger(linger_ms: float | None) -> str:
    return "" if linger_ms is None else f", linger {linger_ms:g} ms"


_DONE: Final = {
    Mode.PRODUCE: "produced",
    Mode.CONSUME: "consumed",
    Mode.E2E: "produced and consumed",
}


def _latency_of(settings: Settings) -> str:
    what = "batch" if settings.columnar else "record"
    match settings.mode:
        case Mode.PRODUCE:
            return f"from sending a {what} to its acknowledgement"
        case Mode.CONSUME:
            return f"from asking for a {what} to receiving it"
        case Mode.E2E:
            return "from when a record was due to when the consumer received it"


def _against(
    label: str, floor: float, ratio: float | None, note: str, digits: int = 1
) -> list[str]:
    return [label, "", f"{floor:,.{digits}f}", "-" if ratio is None else f"{ratio:.2f}", note]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: numbers to the right, the first column and the last to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        cells = [first.ljust(widths[0])]
        cells += [n.rjust(width) for n, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([*cells, last]).rstrip())
    return lines
