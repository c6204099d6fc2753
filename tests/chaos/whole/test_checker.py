"""Each broken promise is found by the checker, and a history in which all were kept is fine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.chaos.whole.checker import Broken, check
from tests.chaos.whole.daemons import tracebacks
from tests.chaos.whole.history import History
from tests.chaos.whole.progress import Calm, Silence, longest_silence
from tests.chaos.whole.report import judge, moved, summary
from tests.chaos.whole.values import RecordId, decode, encode

Entry = dict[str, Any]
Files = dict[str, list[Entry]]
Change = Callable[[Files], object]


def ended(daemon: str, at_s: float, said: str = "cannot run: No space left on device") -> Entry:
    return {"do": "ended", "daemon": daemon, "code": 1, "said": said, "t": at_s}


def fault(kind: str, in_force: bool = True) -> Entry:
    times = {"begin": 1, "repair": 2, "end": 3, "t": 3}
    return {"do": "fault", "kind": kind, "what": f"{kind} a", "host": "a", "in_force": in_force} | (
        times
    )


def files() -> Files:
    """Two partitions with gaps in their offsets; record 3 has no outcome and is there, record 5
    has none and is not."""
    return {
        "p": [
            {"do": "producer", "name": "p", "topic": "t", "t": 0},
            {"do": "sent", "below": 6, "t": 1},
            {"do": "acked", "t": 2, "rows": [[0, 0, 1, 2.0], [1, 1, 1, 2.0], [2, 0, 3, 2.0]]},
            {"do": "failed", "t": 3, "rows": [[3, "DEADLINE_EXCEEDED: no answer"]]},
            {"do": "acked", "t": 4, "rows": [[4, 0, 4, 4.0]]},
        ],
        "r": [
            {"do": "reader", "name": "r", "topic": "t", "way": "pushed", "t": 0},
            {"do": "open", "start": None, "t": 0},
            {"do": "read", "t": 3, "partition": 0, "rows": [[1, "p", 0], [3, "p", 2]]},
            {"do": "error", "error": "UNREACHABLE: no connection", "t": 3},
            {"do": "open", "start": {"0": 3, "1": 0}, "t": 4},
            {"do": "read", "t": 4, "partition": 0, "rows": [[3, "p", 2], [4, "p", 4]]},
            {"do": "read", "t": 5, "partition": 1, "rows": [[1, "p", 1], [2, "p", 3]]},
        ],
        "run": [
            fault("cut"),
            {"do": "calm", "begin": 2.0, "end": 9.0, "t": 9},
            fault("disk full"),
            ended("spu@a", 2),
            {
                "do": "log",
                "topic": "t",
                "partition": 0,
                "rows": [[1, "p", 0], [3, "p", 2], [4, "p", 4]],
            },
            {"do": "log", "topic": "t", "partition": 1, "rows": [[1, "p", 1], [2, "p", 3]]},
        ],
    }


def history(changed: Iterable[list[Entry]]) -> History:
    made = History()
    for entries in changed:
        made.add(entries)
    return made


def log(partition: int) -> Callable[[Files], list[list[Any]]]:
    def rows(of: Files) -> list[list[Any]]:
        found: list[list[Any]] = of["run"][4 + partition]["rows"]
        return found

    return rows


def added(rows: list[list[Any]], row: list[Any]) -> list[list[Any]]:
    rows.append(row)
    return rows


def without_the_last(of: Files, name: str) -> None:
    of[name].pop()


def test_given_a_clean_history_then_nothing_is_found() -> None:
    assert check(history(files().values())) == []


CHANGES: list[tuple[str, Change, set[Broken]]] = [
    (
        "an acknowledged record is not there, nor in what was read",
        lambda of: (log(0)(of).pop(), of["r"][5]["rows"].pop()),
        {Broken.LOST},
    ),
    (
        "an acknowledged record is not there, and was read",
        lambda of: log(0)(of).pop(),
        {Broken.LOST, Broken.TAKEN_BACK},
    ),
    (
        "it was acknowledged at another offset",
        lambda of: of["p"][2]["rows"][0].__setitem__(2, 2),
        {Broken.MOVED},
    ),
    (
        "it was acknowledged in another partition",
        lambda of: of["p"][2]["rows"][0].__setitem__(1, 1),
        {Broken.MOVED},
    ),
    (
        "a record is there again, in its partition",
        lambda of: (added(log(0)(of), [5, "p", 4]), added(of["r"][5]["rows"], [5, "p", 4])),
        {Broken.TWICE},
    ),
    (
        "a record is there again, in another partition",
        lambda of: (added(log(1)(of), [5, "p", 4]), added(of["r"][6]["rows"], [5, "p", 4])),
        {Broken.TWICE},
    ),
    (
        "an unknown outcome is there twice",
        lambda of: (added(log(1)(of), [5, "p", 3]), added(of["r"][6]["rows"], [5, "p", 3])),
        {Broken.TWICE},
    ),
    (
        "an offset holds two records",
        lambda of: (added(log(1)(of), [2, "p", 5]), added(of["r"][6]["rows"], [2, "p", 5])),
        {Broken.TWICE, Broken.CHANGED, Broken.SKIPPED},
    ),
    (
        "a later record is before an earlier one",
        lambda of: (
            log(1)(of).__setitem__(slice(None), [[1, "p", 3], [2, "p", 1]]),
            of["r"][6].update(rows=[[1, "p", 3], [2, "p", 1]]),
            of["p"][2]["rows"][1].__setitem__(2, 2),
        ),
        {Broken.ORDER},
    ),
    (
        "a record was never sent",
        lambda of: (added(log(1)(of), [5, "p", 6]), added(of["r"][6]["rows"], [5, "p", 6])),
        {Broken.FOREIGN},
    ),
    (
        "a record is of nobody",
        lambda of: (added(log(1)(of), [5, "x", 0]), added(of["r"][6]["rows"], [5, "x", 0])),
        {Broken.FOREIGN},
    ),
    (
        "what was read is not there",
        lambda of: added(of["r"][5]["rows"], [5, "p", 5]),
        {Broken.TAKEN_BACK},
    ),
    (
        "two reads of an offset differ",
        lambda of: of["r"][5]["rows"].__setitem__(0, [3, "p", 0]),
        {Broken.CHANGED, Broken.SKIPPED},
    ),
    (
        "a consumer passes over a record that another one had read",
        lambda of: (
            of["r"][4].update(start={"0": 1, "1": 0}),
            of["r"][5].update(rows=[[1, "p", 0], [4, "p", 4]]),
        ),
        {Broken.SKIPPED},
    ),
    (
        "a consumer from the beginning begins later",
        lambda of: of["r"][2]["rows"].pop(0),
        {Broken.SKIPPED},
    ),
    (
        "a later consumer from the beginning begins later",
        lambda of: of["r"][4].update(start=None),
        {Broken.SKIPPED},
    ),
    (
        "consumers under one name leave a gap between them",
        lambda of: (
            of["r"][2]["rows"].pop(),
            of["r"][4].update(start={}),
            of["r"][5]["rows"].pop(0),
        ),
        {Broken.SKIPPED},
    ),
    (
        "a consumer begins below its start",
        lambda of: of["r"][4].update(start={"0": 4, "1": 0}),
        {Broken.MISPLACED},
    ),
    (
        "a consumer begins above its start, at what another one had read",
        lambda of: of["r"][4].update(start={"0": 1, "1": 0}),
        {Broken.SKIPPED},
    ),
    (
        "a name begins below what was committed",
        lambda of: (
            of["r"][3].update(do="committed", offsets={"0": 4, "1": 0}),
            of["r"][4].update(start={}),
        ),
        {Broken.BACK},
    ),
    (
        "a name begins below what was committed before the last time",
        lambda of: (
            of["r"][3].update(do="committed", offsets={"0": 4, "1": 1}),
            of["r"].__setitem__(slice(4, 4), [{"do": "open", "start": {}, "t": 3}]),
            of["r"][5].update(start={}),
        ),
        {Broken.BACK},
    ),
    (
        "a consumer reads a record twice",
        lambda of: added(of["r"][5]["rows"], [4, "p", 4]),
        {Broken.REPEATED},
    ),
    (
        "a consumer goes backwards",
        lambda of: of["r"][6]["rows"].reverse(),
        {Broken.SKIPPED, Broken.REPEATED},
    ),
    ("the last record is not read", lambda of: of["r"][6]["rows"].pop(), {Broken.BEHIND}),
    ("a partition is not read", lambda of: without_the_last(of, "r"), {Broken.BEHIND}),
    (
        "a producer is told that records are lost",
        lambda of: of["p"][3]["rows"].__setitem__(0, [3, "DIVERGED: lost"]),
        {Broken.ADMITTED},
    ),
    (
        "a reader is told that records are damaged",
        lambda of: of["r"][3].update(error="CORRUPT_BATCH: damaged"),
        {Broken.ADMITTED},
    ),
]


@pytest.mark.parametrize(
    ("change", "broken"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES]
)
def test_given_a_broken_promise_then_it_is_found(change: Change, broken: set[Broken]) -> None:
    changed = files()
    change(changed)
    assert {violation.broken for violation in check(history(changed.values()))} == broken


@pytest.mark.parametrize(
    "change",
    [
        # Offsets without a record, as of truncated or aborted ones: the next one above is it.
        lambda of: of["r"][4].update(start={"0": 2, "1": 0}),
        # Where nothing was committed by a close that failed, the name goes on where it likes.
        lambda of: of["r"][4].update(start={}),
        # What was committed is read up to, and no further.
        lambda of: (
            of["r"][3].update(do="committed", offsets={"0": 3, "1": 0}),
            of["r"][4].update(start={}),
        ),
    ],
)
def test_given_a_consumer_that_begins_where_it_was_to_begin_then_nothing_is_found(
    change: Change,
) -> None:
    changed = files()
    change(changed)
    assert check(history(changed.values())) == []


def test_every_promise_is_broken_by_some_history_above() -> None:
    assert set().union(*(broken for _, _, broken in CHANGES)) == set(Broken)


def test_given_a_record_of_the_same_name_in_another_topic_then_it_is_another_record() -> None:
    other = {
        "q": [
            {"do": "producer", "name": "p", "topic": "u", "t": 0},
            {"do": "sent", "below": 1, "t": 1},
            {"do": "acked", "t": 2, "rows": [[0, 0, 1, 2.0]]},
        ],
        "more": [{"do": "log", "topic": "u", "partition": 0, "rows": [[1, "p", 0]]}],
    }
    assert check(history((files() | other).values())) == []


PLACE, OTHER = "t-0", "t-1"
CALMS = [Calm(10.0, 23.0), Calm(40.0, 53.0)]


@pytest.mark.parametrize(
    ("happened", "longest"),
    [
        # Nothing at all.
        ({PLACE: []}, Silence(PLACE, 10.0, 13.0)),
        # What was before the heal does not count, nor what comes in the next storm.
        ({PLACE: [9.0, 24.0]}, Silence(PLACE, 10.0, 13.0)),
        ({PLACE: [12.0, 14.0, 22.0, 41.0, 47.0]}, Silence(PLACE, 14.0, 8.0)),
        ({PLACE: [12.0, 14.0, 16.0, 22.0, 41.0]}, Silence(PLACE, 41.0, 12.0)),
        # Each partition by itself.
        (
            {PLACE: [float(t) for t in range(60)], OTHER: [10.5, 20.0, 41.0, 50.0]},
            Silence(OTHER, 10.5, 9.5),
        ),
    ],
)
def test_the_longest_silence_after_a_heal(
    happened: dict[str, list[float]], longest: Silence
) -> None:
    assert longest_silence(CALMS, happened) == longest


def test_given_a_partition_of_which_nothing_was_acknowledged_in_time_then_the_run_has_failed() -> (
    None
):
    changed = files()
    verdict = judge(history(changed.values()))
    assert verdict.is_good
    assert verdict.unacknowledged == Silence("t-1", 2.0, 7.0)
    changed["run"][1]["end"] = 13.0
    assert not judge(history(changed.values())).is_good


def test_given_a_partition_of_which_nothing_was_acknowledged_at_all_then_it_counts() -> None:
    changed = files()
    changed["p"][2]["rows"].pop(1)
    assert judge(history(changed.values())).unacknowledged == Silence("t-1", 2.0, 7.0)


def test_given_a_reader_that_is_stuck_then_another_one_does_not_cover_it() -> None:
    changed = files()
    changed["run"][1]["end"] = 11.0
    assert judge(history(changed.values())).unread == Silence("r of t-0", 4, 7.0)
    # From here on, this one reads nothing, and the other one all the time.
    changed["run"][1]["end"] = 16.0
    changed["p"] += [
        {"do": "acked", "t": t, "rows": [[0, 0, 1, t + 0.0], [1, 1, 1, t + 0.0]]}
        for t in range(5, 17)
    ]
    other = [entry | {"name": "o"} if entry["do"] == "reader" else entry for entry in changed["r"]]
    reads: list[Entry] = [
        {"do": "read", "t": t, "partition": n, "rows": []} for t in range(5, 17) for n in (0, 1)
    ]
    verdict = judge(history((changed | {"o": other + reads}).values()))
    assert (verdict.violations, verdict.problems) == ([], [])
    assert verdict.unread == Silence("r of t-0", 4, 12.0)
    assert not verdict.is_good
    # One that is opened again and again is not judged by that.
    changed["r"][0]["way"] = "again"
    assert judge(history((changed | {"o": other + reads}).values())).is_good


def test_given_a_problem_of_the_run_then_it_has_failed() -> None:
    assert not judge(history(files().values()), ["clerk did not end"]).is_good


@pytest.mark.parametrize(
    ("entries", "problems"),
    [
        ([fault("freeze")], []),
        ([fault("freeze"), fault("freeze", in_force=False)], []),
        ([fault("freeze", in_force=False)], ["never in force: freeze"]),
        # What an operator asks for may fail, and a kernel may not be able to do something.
        ([fault("drain", in_force=False)], []),
        ([fault("slow link", in_force=False)], ["never in force: slow link"]),
        ([{"do": "cannot", "kind": "slow link"}, fault("slow link", in_force=False)], []),
    ],
)
def test_given_a_kind_of_fault_that_never_had_force_then_the_run_has_failed(
    entries: list[Entry], problems: list[str]
) -> None:
    changed = files()
    changed["run"] += entries
    verdict = judge(history(changed.values()))
    assert verdict.problems == problems
    assert verdict.is_good == (not problems)


@pytest.mark.parametrize(
    ("placed", "count"),
    [
        ([{"t-0": [1, 2]}, {"t-0": [2, 1]}], 0),
        ([{"t-0": [1, 2]}, {}, {"t-0": [1, 3]}], 1),
        ([{"t-0": [1, 2], "u-0": [1]}, {"t-0": [3, 4], "u-0": [2]}], 3),
        # One that is made with a topic has not moved.
        ([{}, {"t-0": [1, 2]}], 0),
    ],
)
def test_how_many_replicas_have_moved(placed: list[dict[str, list[int]]], count: int) -> None:
    changed = files()
    changed["run"] += [{"do": "placed", "replicas": replicas} for replicas in placed]
    changed["run"] += [fault("drain"), fault("drain"), fault("rebalance"), fault("drain")]
    assert moved(history(changed.values())) == count
    assert judge(history(changed.values())).is_good
    changed["run"].append(fault("drain"))
    verdict = judge(history(changed.values()))
    assert verdict.is_good == bool(count)
    assert count or verdict.problems == ["no replica moved, although 4 drains were in force"]


@pytest.mark.parametrize(
    ("entry", "is_excused"),
    [
        (ended("spu@a", 1.5), True),
        # It noticed before there was room again.
        (ended("spu@a", 4.0), True),
        (ended("spu@a", 14.0), False),
        (ended("spu@a", 0.5), False),
        (ended("spu@b", 2.0), False),
        (ended("spu@a", 2.0, "MemoryError"), False),
        (ended("spu@a", 2.0, ""), False),
    ],
)
def test_given_a_daemon_that_ended_by_itself_then_only_its_full_disk_excuses_it(
    entry: Entry, is_excused: bool
) -> None:
    changed = files()
    changed["run"].append(entry)
    verdict = judge(history(changed.values()))
    assert verdict.is_good == is_excused
    assert is_excused or f"{entry['daemon']} ended by itself with 1" in verdict.problems[0]


def test_given_a_log_with_tracebacks_then_they_are_a_problem() -> None:
    assert list(tracebacks("sc@a", "all\nis\nwell\n")) == []
    begun = "Traceback (most recent call last):"
    (found,) = tracebacks("sc@a", f'fine\n{{"exception": "{begun}"}}\n{begun}')
    assert found.startswith('sc@a logged 2 tracebacks, the first one: {"exception"')


def test_given_a_fault_without_force_then_the_summary_does_not_count_it() -> None:
    changed = files()
    changed["run"] += [fault("cut", in_force=False), fault("drain", in_force=False)]
    said = summary(judge(history(changed.values())), 3, 2.0)
    assert "\nfaults: 1 cut, 1 disk full\n" in said
    assert "faults without force: 1 cut, 1 drain; never in force: drain\n" in said


def test_the_summary_says_what_was_and_what_was_broken() -> None:
    said = summary(judge(history(files().values())), 3, 2.0)
    for part in (
        "seed 3, 2 minutes, 1 storms",
        "faults: 1 cut, 1 disk full",
        "acknowledged 4, failed 1, in the log 5, read 6",
        "lost 0, twice 0, out of order 0",
        "7.0 s (t-1), at most 10 s",
        "1 UNREACHABLE",
        "1 spu@a with 1",
        "\ngood",
    ):
        assert part in said
    changed = files()
    log(0)(changed).pop()
    said = summary(judge(history(changed.values())), 3, 2.0)
    assert "lost 1," in said
    assert "acknowledged and not in the log: p:4 acknowledged as t-0@4" in said
    assert said.endswith("FAILED")


@pytest.mark.parametrize("sequence", [0, 1, 7, 12345])
def test_given_a_value_then_its_record_is_known_and_a_changed_one_is_noticed(sequence: int) -> None:
    record = RecordId("clerk", sequence)
    value = encode(record)
    assert decode(value) == record
    with pytest.raises(ValueError, match="filling"):
        decode(value + b"x")
