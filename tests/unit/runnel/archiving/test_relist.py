"""The list that files make, once it is lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.archive.manifest import Archives
from runnel.archiving import relist
from runnel.archiving.relist import chain
from tests.unit.runnel.archive.builders import file_of

#: Base, end and term of a file; term 0 is not known.
Written = tuple[int, int, int]


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        pytest.param([], [], id="given-none"),
        pytest.param([(0, 10, 1), (10, 30, 1)], [(0, 10), (10, 30)], id="given-neighbours"),
        pytest.param([(10, 30, 1), (0, 10, 1)], [(0, 10), (10, 30)], id="given-the-first-one-late"),
        pytest.param(
            [(20, 30, 2), (0, 10, 1), (10, 20, 1)],
            [(0, 10), (10, 20), (20, 30)],
            id="given-any-order-and-an-election",
        ),
        pytest.param(
            [(10, 30, 0), (0, 10, 0)], [(0, 10), (10, 30)], id="given-no-terms-and-the-first-late"
        ),
        pytest.param([(0, 10, 1), (0, 10, 1), (10, 20, 1)], [(0, 10), (10, 20)], id="given-twice"),
        pytest.param(
            [(0, 30, 1), (0, 10, 1)], [(0, 30)], id="given-a-part-of-it-later-then-no-record-less"
        ),
        pytest.param(
            [(0, 30, 1), (30, 60, 1), (10, 50, 1)],
            [(0, 10), (10, 30), (30, 60)],
            id="given-a-part-of-two-later-then-no-record-less",
        ),
        pytest.param([(10, 20, 1), (0, 30, 1)], [(0, 30)], id="given-a-larger-one-later-then-that"),
        pytest.param([(10, 20, 0), (0, 30, 0)], [(0, 30)], id="given-the-same-without-terms"),
        pytest.param(
            [(0, 10, 1), (10, 30, 1), (5, 20, 2)],
            [(0, 5), (5, 20)],
            id="given-a-log-that-diverged",
        ),
        pytest.param(
            [(5, 20, 2), (0, 10, 1), (10, 30, 1)],
            [(0, 5), (5, 20)],
            id="given-a-log-that-diverged-and-files-in-any-order",
        ),
        pytest.param(
            [(0, 30, 1), (30, 60, 1), (20, 30, 2)],
            [(0, 20), (20, 30)],
            id="given-a-log-that-diverged-then-nothing-of-before-behind-it",
        ),
        pytest.param(
            [(0, 10, 0), (10, 30, 0), (5, 20, 0)],
            [(0, 5), (5, 20)],
            id="given-a-log-that-diverged-and-no-terms",
        ),
    ],
)
def test_chain(written: list[Written], listed: list[tuple[int, int]]) -> None:
    found = chain([file_of(base, end, term=term) for base, end, term in written], 0)
    assert [(file.base, file.until) for file in found] == listed


@pytest.mark.parametrize(("log_start", "listed"), [(0, 1), (19, 1), (20, 3), (50, 3)])
def test_given_a_gap_then_passed_over_only_if_the_log_cannot_fill_it(
    log_start: int, listed: int
) -> None:
    files = [file_of(0, 10), file_of(20, 30), file_of(30, 40)]
    assert chain(files, log_start) == files[:listed]


@pytest.mark.parametrize(("log_start", "listed"), [(0, 0), (9, 0), (10, 1), (30, 1)])
def test_given_a_first_run_whose_first_file_is_missing_then_it_is_archived_again(
    log_start: int, listed: int
) -> None:
    assert len(chain([file_of(10, 20)], log_start)) == listed


@pytest.mark.parametrize(("told", "says"), [(None, []), (0, []), (30, [0])])
async def test_given_a_lost_list_then_the_log_keeps_what_it_has_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch, told: int | None, says: list[int]
) -> None:
    done = list[object]()

    async def partition(_name: str) -> Any:
        return SimpleNamespace(spec=SimpleNamespace(archived_before=told))

    async def note(_partition: object, before: int) -> None:
        done.append(before)

    async def segments(*_: object) -> Any:
        done.append("log start")
        return SimpleNamespace(log_start=0)

    async def update(_uid: str, decide: Any) -> None:
        state: Archives = {}
        done.append([one.file.base for one in decide(state)])

    monkeypatch.setattr(relist, "_read", lambda *_: [file_of(0, 10)])
    monkeypatch.setattr(relist, "list_segments", segments)
    access: Any = SimpleNamespace(
        partition=partition,
        note=note,
        uid="0b0c",
        route=SimpleNamespace(name="orders"),
        place=SimpleNamespace(partition=lambda _index: Path("/archive")),
        store=SimpleNamespace(update=update),
    )
    assert await relist.relist(access, 0) == 1
    assert done == [*says, "log start", [0]]
