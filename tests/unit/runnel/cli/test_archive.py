"""`runnel archive run`: what ends it, and what does not."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.archiving.run import ArchiveRun
from runnel.cli.archive import archive
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError, UnreachableError

AWAY = UnreachableError("no SC leads at the moment")


class Over(Exception):  # noqa: N818 - it is no error
    """Enough runs."""


@pytest.mark.parametrize(
    ("every", "error", "ends"),
    [
        pytest.param("1s", AWAY, Over, id="given-an-sc-that-is-away-then-it-goes-on"),
        pytest.param(None, AWAY, UnreachableError, id="given-a-single-run-then-said"),
        pytest.param(
            "1s", InvalidRequestError("no archive"), InvalidRequestError, id="given-a-mistake"
        ),
        pytest.param("1s", NotFoundError("no topic"), NotFoundError, id="given-no-such-topic"),
    ],
)
def test_run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    every: str | None,
    error: RunnelError,
    ends: type[Exception],
) -> None:
    outcomes: list[RunnelError | ArchiveRun] = [error, ArchiveRun("t")]

    def one_run(*_: Any, **_more: Any) -> ArchiveRun:
        if not outcomes:
            raise Over
        if isinstance(found := outcomes.pop(0), RunnelError):
            raise found
        return found

    cluster = SimpleNamespace(archive=one_run)
    monkeypatch.setattr(archive, "connected", lambda _sc: nullcontext(cluster))
    monkeypatch.setattr("runnel.cli.archive.archive.time.sleep", lambda _s: None)
    with pytest.raises(ends):
        archive.run(["t"], every=every)
    assert (error.message in capsys.readouterr().err) == (ends is Over)
