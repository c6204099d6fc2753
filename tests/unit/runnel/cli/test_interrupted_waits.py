"""That whoever ends a wait learns that the cluster goes on, and what ends that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runnel.cli import spu_drain
from runnel.cli.cluster import rebalance
from runnel.cli.objects import apply
from runnel.cli.partition import topic
from runnel.cli.stream import stream


class Interrupted:
    """A cluster that takes what is asked for, and is interrupted while that is waited for."""

    name = "s/a"

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def patch(self, *_: object) -> None:
        pass

    create = topic = epoch = patch

    def delete(self, _kind: str, name: str, **_: object) -> None:
        self.deleted.append(name)

    def stream(self, _name: str) -> Interrupted:
        return self

    def offsets(self, *_: object, **__: object) -> dict[int, Any]:
        return {}

    def get(self, *_: object, **__: object) -> None:
        raise KeyboardInterrupt

    wait = seal = truncate = get


WAITS: dict[str, tuple[Callable[[], None], str]] = {
    "drain": (
        lambda: spu_drain.drain(None, "spu-1", wait=True, timeout_s=60),
        "see: runnel get spu spu-1; to have it keep its replicas: runnel spu drain spu-1 --cancel",
    ),
    "rebalance": (lambda: rebalance.rebalance(), "to end it: runnel delete rebalance rebalance-"),
    "delete": (
        lambda: apply.delete("spu", ["spu-1"]),
        "the deletion of spu/spu-1 goes on",
    ),
    "seal-topic": (lambda: topic.seal("t", yes=True), "see: runnel describe topic t"),
    "truncate-topic": (
        lambda: topic.truncate("t", everything=True, yes=True),
        "see: runnel topic offsets t",
    ),
    "seal-stream": (lambda: stream.seal("s/a", yes=True), "see: runnel describe stream s/a"),
}


@pytest.mark.parametrize(("wait", "said"), WAITS.values(), ids=WAITS)
def test_given_an_interrupt_then_what_goes_on_is_said(
    wait: Callable[[], None],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def cluster(_sc: str | None) -> Iterator[Interrupted]:
        yield Interrupted()

    for module in (spu_drain, rebalance, apply, topic, stream):
        for name in ("administered", "connected"):
            monkeypatch.setattr(module, name, cluster, raising=False)
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert said in capsys.readouterr().err


def test_given_an_interrupt_then_the_plan_of_a_dry_run_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Interrupted()

    @contextmanager
    def cluster(_sc: str | None) -> Iterator[Interrupted]:
        yield found

    monkeypatch.setattr(rebalance, "administered", cluster)
    with pytest.raises(KeyboardInterrupt):
        rebalance.rebalance(dry_run=True)
    assert len(found.deleted) == 1
