"""Whether the log goes on from a file of the archive: leaders say so, who may be deposed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runnel.archive.manifest import PartitionArchive
from runnel.archiving import run
from schemas.errors import DivergedError, NotReadyError, RunnelError
from tests.unit.runnel.archive.builders import file_of

DIVERGED = DivergedError("another log", diverged_at=5)


class Leaders:
    """A route that gives the answers of leaders in turn; the SC names ``others`` that were not
    asked yet, and is behind ``behind`` times."""

    name = "orders"

    def __init__(self, answers: list[RunnelError | None], others: int, behind: int) -> None:
        self._answers = answers
        self._others = others
        self._behind = behind

    async def retrying(self, *_: Any, **_more: Any) -> None:
        error = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if error is not None:
            raise error

    async def another_leads(self, _index: int) -> bool:
        self._others -= 1
        return self._others >= 0

    async def leads_below(self, _index: int, term: int) -> bool:
        assert term == 1
        self._behind -= 1
        return self._behind >= 0


@pytest.mark.parametrize(
    ("answers", "others", "behind", "give_up_s", "error"),
    [
        pytest.param([None], 0, 0, 30.0, None, id="given-the-same-log"),
        pytest.param([DIVERGED], 0, 0, 30.0, DivergedError, id="given-another-log"),
        pytest.param([DIVERGED, None], 1, 0, 30.0, None, id="given-a-deposed-leader"),
        pytest.param([DIVERGED], 1, 0, 30.0, DivergedError, id="given-both-say-so"),
        pytest.param([DIVERGED, DIVERGED, None], 0, 2, 30.0, None, id="given-an-sc-that-is-behind"),
        pytest.param([DIVERGED], 0, 99, -1.0, NotReadyError, id="given-it-stays-behind-then-later"),
    ],
)
async def test_compare(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[RunnelError | None],
    others: int,
    behind: int,
    give_up_s: float,
    error: type[RunnelError] | None,
) -> None:
    monkeypatch.setattr(run, "BEHIND_PAUSE_S", 0.0)
    monkeypatch.setattr(run, "_GIVE_UP_S", give_up_s)
    access: Any = SimpleNamespace(route=Leaders([*answers], others, behind))
    if error is None:
        await run._compare(access, 0, file_of(0, 10))
        return
    with pytest.raises(error):
        await run._compare(access, 0, file_of(0, 10))


FILE = file_of(0, 10)
CUT = file_of(0, 20, until=10)


@pytest.mark.parametrize(
    ("known", "unclean", "told", "unproven"),
    [
        pytest.param(PartitionArchive(), True, 0, False, id="given-nothing-archived"),
        pytest.param(PartitionArchive((FILE,), 10), True, 0, False, id="given-a-file-that-ends"),
        pytest.param(PartitionArchive((CUT,), 10), True, 0, True, id="given-a-cut-inside-of-one"),
        pytest.param(PartitionArchive((CUT,), 10), False, 0, False, id="given-no-such-election"),
        pytest.param(PartitionArchive((), 10), True, 10, False, id="given-the-sc-was-told"),
        pytest.param(
            PartitionArchive((file_of(0, 10, term=0),), 10), True, 0, True, id="given-no-term"
        ),
    ],
)
async def test_unproven(known: PartitionArchive, unclean: bool, told: int, unproven: bool) -> None:
    async def partition(_name: str) -> Any:
        return SimpleNamespace(
            spec=SimpleNamespace(archived_before=told),
            status=SimpleNamespace(unclean_term=object() if unclean else None),
        )

    access: Any = SimpleNamespace(route=SimpleNamespace(name="orders"), partition=partition)
    assert await run._is_unproven(access, 0, known) is unproven
