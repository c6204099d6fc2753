"""The client that tasks of one process share, and patience."""

from __future__ import annotations

from typing import Any

import pytest

from runnel import ClusterInfo
from schemas.errors import NotFoundError, UnreachableError
from spark_io.worker import client
from spark_io.worker.client import close_task_client, patiently, task_client


class Played:
    """A client that knows only who its cluster is."""

    def __init__(self, info: ClusterInfo) -> None:
        self.info = info
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    found: list[Played] = []

    def connect(_sc: str, *, known: ClusterInfo) -> Any:
        found.append(Played(known))
        return found[-1]

    monkeypatch.setattr("runnel.connect", connect)
    return found


def info(uid: str) -> ClusterInfo:
    return ClusterInfo("c", uid, "1", None)


def test_tasks_share_a_client_until_another_cluster_is_there(opened: list[Played]) -> None:
    first = task_client("here", info("a"))
    assert task_client("here", info("a")) is first
    assert task_client("there", info("b")) is not first
    assert task_client("here", info("b")) is not first
    assert [one.closed for one in opened] == [True, False, False]
    for sc in ("here", "there", "nowhere"):
        close_task_client(sc)
    assert all(one.closed for one in opened)


def test_a_cluster_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    asked = []

    def answer_later() -> int:
        asked.append(now[0])
        if len(asked) < 5:
            raise UnreachableError("away")
        return 7

    assert patiently(answer_later) == 7
    assert asked == [0.0, 1.0, 2.0, 3.0, 4.0]

    def never() -> int:
        raise UnreachableError("away")

    with pytest.raises(UnreachableError):
        patiently(never)
    assert now[0] > 4.0 + client.PATIENCE_S

    def refuse() -> int:
        raise NotFoundError("no such topic")

    before = now[0]
    with pytest.raises(NotFoundError):
        patiently(refuse)
    assert now[0] == before


def test_what_a_process_has_imported_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_settled", set())
    frozen: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append("once"))
    client.settle()
    client.settle()
    assert frozen == ["once"]
    # As after a fork.
    monkeypatch.setattr("os.getpid", lambda: -1)
    client.settle()
    assert len(frozen) == 2
