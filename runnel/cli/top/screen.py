"""The lines that ``runnel top`` shows, for a screen of a given height. Pure.

Neighbours: `runnel.cli.top.command` shows them, `runnel.status.summary` has what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from runnel.cli.render import column_widths, format_row
from runnel.status.summary import Problem, Severity, SpuLine, Summary, TopicLine
from schemas.objects.quantities import readable_size

#: At least so many lines of each part are shown, however small the screen is.
FEWEST = 3
_SPU_HEADINGS = (
    *("SPU", "ID", "STATE", "LEADS", "HOLDS", "IN/S", "OUT/S", "REQUESTS/S", "CLIENTS"),
    *("APPEND P99", "FSYNC P99", "LOGS", "DISK USED", "CANNOT REACH", "RACK"),
)
_TOPIC_HEADINGS = (
    *("TOPIC", "PARTITIONS", "REPLICAS", "STATE", "~RECORDS/S", "BYTES/S", "~RECORDS", "SIZE"),
)
_PROBLEM_HEADINGS = ("NEEDS ATTENTION", "STATE", "REASON")


class Tone(Enum):
    """How a line is meant."""

    PLAIN = ""
    TITLE = "bold"
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen."""

    text: str
    tone: Tone = Tone.PLAIN


_TONES = {
    Severity.UNAVAILABLE: Tone.BAD,
    Severity.DEGRADED: Tone.WARNING,
    Severity.NOTICE: Tone.WARNING,
}


def lines_of(
    summary: Summary, head: str, trouble: str | None = None, height: int | None = None
) -> list[Line]:
    """The screen: ``head``, health, what needs attention, SPUs, topics by their rates.

    ``trouble`` says why the picture is old. With a ``height`` each part is cut to its share, and
    says how much it leaves out; without one all is shown.
    """
    health = summary.health
    lines = [
        Line(head, Tone.TITLE),
        Line(str(health), Tone.GOOD if health.good else _worst(summary.problems)),
    ]
    if trouble is not None:
        lines.append(Line(f"not live: {trouble}", Tone.BAD))
    topics = sorted(summary.topics, key=lambda t: (-(t.bytes_per_second or 0), t.name))
    wanted = [len(summary.problems), len(summary.spus), len(topics)]
    # Each part that has lines takes one for its headings, one before it, and one for its rest.
    room = None if height is None else height - len(lines) - 3 * sum(map(bool, wanted))
    problems, spus, shown = shares(wanted, room)
    tones = [_TONES[problem.severity] for problem in summary.problems]
    lines += _part(_PROBLEM_HEADINGS, list(map(_problem, summary.problems)), problems, tones)
    lines += _part(
        _SPU_HEADINGS,
        list(map(_spu, summary.spus)),
        spus,
        [Tone.PLAIN if spu.state == "online" else Tone.BAD for spu in summary.spus],
    )
    lines += _part(
        _TOPIC_HEADINGS,
        list(map(_topic, topics)),
        shown,
        [Tone.PLAIN if topic.state == "provisioned" else Tone.BAD for topic in topics],
    )
    return lines


def shares(wanted: Sequence[int], room: int | None) -> list[int]:
    """How many of ``room`` lines each part gets: what it wants if that fits, else a fair share;
    what one does not need goes to the others."""
    if room is None:
        return list(wanted)
    given = [min(want, FEWEST) for want in wanted]
    left = room - sum(given)
    while left > 0 and given != list(wanted):
        for index, want in enumerate(wanted):
            if left > 0 and given[index] < want:
                given[index] += 1
                left -= 1
    return given


def _worst(problems: Iterable[Problem]) -> Tone:
    worst = min((problem.severity for problem in problems), default=Severity.NOTICE)
    return _TONES[worst]


def _part(
    headings: Sequence[str], rows: Sequence[Sequence[str]], shown: int, tones: Sequence[Tone]
) -> list[Line]:
    if not rows:
        return []
    widths = column_widths(headings, rows[:shown])
    found = [Line(""), Line(format_row(headings, widths), Tone.TITLE)]
    found += [
        Line(format_row(row, widths), tone) for row, tone in zip(rows[:shown], tones, strict=False)
    ]
    if shown < len(rows):
        found.append(Line(f"… and {len(rows) - shown:,} more"))
    return found


def _problem(problem: Problem) -> Sequence[str]:
    return (f"{problem.kind.lower()}/{problem.name}", problem.state, problem.reason)


def _spu(spu: SpuLine) -> Sequence[str]:
    return (
        spu.name,
        str(spu.spu_id),
        spu.state,
        f"{spu.leads:,}",
        f"{spu.holds:,}",
        _bytes(spu.received_bytes),
        _bytes(spu.sent_bytes),
        _number(spu.requests),
        _number(spu.connections),
        _latency(spu.append_p99_us),
        _latency(spu.fsync_p99_us),
        _bytes(spu.log_bytes),
        "-" if spu.disk_used is None else f"{spu.disk_used:.0%}",
        ",".join(map(str, spu.unreachable)) or "-",
        spu.place or "-",
    )


def _topic(topic: TopicLine) -> Sequence[str]:
    return (
        topic.name,
        f"{topic.partitions:,}",
        f"{topic.replicas:,}",
        topic.state,
        _number(topic.offsets_per_second),
        _bytes(topic.bytes_per_second),
        _number(topic.offsets),
        _bytes(topic.log_bytes),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _latency(value_us: int | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:,.2f} ms"


def _bytes(value: float | None) -> str:
    return "-" if value is None else readable_size(round(value))
