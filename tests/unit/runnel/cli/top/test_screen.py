"""The lines of ``runnel top``, and how they share a small screen."""
# ruff: noqa: E501 - the picture is as wide as it is

from __future__ import annotations

import pytest

from runnel.cli.top.screen import Line, Tone, lines_of, shares
from runnel.status.summary import Health, Problem, Severity, SpuLine, Summary, TopicLine

GOOD = Health(1, 1, 1, 3, 0, 0, 0)
PICTURE = """
cluster at x
0/1 SPUs online · topics: 1 · partitions: 3, 0 offline, 0 not writable, 0 under-replicated

NEEDS ATTENTION  STATE    REASON
partition/p-0    offline  why

SPU    ID  STATE   LEADS  HOLDS  IN/S     OUT/S    REQUESTS/S  CLIENTS  APPEND P99  FSYNC P99  LOGS     DISK USED  CANNOT REACH  RACK
spu-0  0   online  1      2      1.0 KiB  0 bytes  5           2        0.12 ms     -          4.0 KiB  50%        2,3           r/a

TOPIC  PARTITIONS  REPLICAS  STATE        ~RECORDS/S  BYTES/S  ~RECORDS  SIZE
t001   3           2         provisioned  1           1 byte   1,200     2.0 KiB
t000   3           2         provisioned  0           0 bytes  1,200     2.0 KiB
"""


def topic_line(name: str, rate: float | None = None) -> TopicLine:
    return TopicLine(name, 3, 2, "provisioned", rate, rate, 1_200, 2_048, "")


def spu_line(name: str = "spu-0", state: str = "online") -> SpuLine:
    rates = (1_024.0, 0.0, 5.0, 2)
    return SpuLine(name, 0, "r/a", state, 1, 2, *rates, 4_096, 0.5, 120, None, (2, 3), "")


def summary_of(
    topics: int = 1, problems: int = 0, severity: Severity = Severity.DEGRADED
) -> Summary:
    health = GOOD if not problems else Health(1, 0, 1, 3, 0, 0, 0)
    return Summary(
        health,
        tuple(Problem(severity, "Partition", f"p-{n}", "offline", "why") for n in range(problems)),
        (spu_line(),),
        tuple(topic_line(f"t{n:03}", float(n)) for n in range(topics)),
    )


def test_one_picture_has_everything() -> None:
    found = "\n".join(line.text for line in lines_of(summary_of(2, 1), "cluster at x"))
    assert found == PICTURE.strip()


@pytest.mark.parametrize("height", [16, 24, 40, 200])
def test_nothing_is_taller_than_the_screen_and_each_part_says_what_it_leaves_out(
    height: int,
) -> None:
    lines = lines_of(summary_of(100, 50), "cluster at x", "no answer", height)
    assert len(lines) <= max(height, 3 + 9 + 7)
    texts = [line.text for line in lines]
    rest = [text for text in texts if text.startswith("…")]
    assert len(rest) == (2 if height < 165 else 0), texts
    for text in ("partition/p-0", "spu-0", "t099"):
        assert any(line.startswith(text) for line in texts)


@pytest.mark.parametrize(
    ("wanted", "room", "expected"),
    [
        ([5, 5, 5], None, [5, 5, 5]),
        ([5, 5, 5], 100, [5, 5, 5]),
        ([50, 2, 50], 12, [5, 2, 5]),
        ([0, 1, 50], 12, [0, 1, 11]),
        ([50, 50, 50], 0, [3, 3, 3]),
        ([], 5, []),
    ],
)
def test_shares(wanted: list[int], room: int | None, expected: list[int]) -> None:
    assert shares(wanted, room) == expected


@pytest.mark.parametrize(
    ("severity", "tone"),
    [(Severity.UNAVAILABLE, Tone.BAD), (Severity.DEGRADED, Tone.WARNING)],
)
def test_a_problem_and_the_health_have_its_tone(severity: Severity, tone: Tone) -> None:
    lines = lines_of(summary_of(1, 1, severity), "x")
    assert lines[1].tone is tone
    assert [line.tone for line in lines if line.text.startswith("partition/")] == [tone]
    assert lines_of(summary_of(), "x")[1].tone is Tone.GOOD


def test_a_picture_that_is_not_live_says_why() -> None:
    assert Line("not live: no answer", Tone.BAD) in lines_of(summary_of(), "x", "no answer")


def test_what_is_not_known_is_a_dash() -> None:
    summary = Summary(GOOD, (), (), (topic_line("t"),))
    assert "-  " in lines_of(summary, "x")[-1].text
