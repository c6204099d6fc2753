"""Which epochs of a stream are shown, and what became of their segments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dashboard.answers.cluster import SharedCluster
from dashboard.answers.streams import MOST_EPOCHS, Epochs
from schemas.control.streams import EpochInfo, SegmentInfo
from schemas.objects.stream import StreamState


class Stream:
    """Epoch n has the one segment n.n."""

    def __init__(self, current: int) -> None:
        self.current = current
        self.asked: list[int | None] = []

    async def epoch(self, number: int | None = None) -> EpochInfo:
        self.asked.append(number)
        shown = self.current if number is None else number
        one = SegmentInfo(id=f"{shown}.{shown}", low=0, high=1, partition="p")
        return EpochInfo(
            stream="s/t",
            uid="u",
            state=StreamState.ACTIVE,
            epoch=shown,
            time_ms=1_000 * shown,
            segments=(one,),
        )

    async def get(self) -> Any:
        return SimpleNamespace(stream=lambda _name: self)


def epochs_of(stream: Stream) -> Epochs:
    return Epochs(cast(SharedCluster, stream))


@pytest.mark.parametrize(
    ("last", "shown"),
    [(None, range(30 - MOST_EPOCHS + 1, 31)), (3, range(4)), (99, range(31 - MOST_EPOCHS, 31))],
)
async def test_the_newest_up_to_one_are_shown_and_past_ones_asked_once(
    last: int | None, shown: range
) -> None:
    stream = Stream(30)
    epochs = epochs_of(stream)
    found = await epochs.latest("s/t", last, None)
    assert [one["epoch"] for one in found["epochs"]] == list(shown)
    assert found["current"] == 30
    stream.asked.clear()
    await epochs.latest("s/t", last, None)
    assert stream.asked == [None]


async def test_what_became_of_segments() -> None:
    exist = {(2 << 32) + 2, (3 << 32) + 3}
    found = await epochs_of(Stream(3)).latest("s/t", None, exist)
    states = [one["segments"][0]["state"] for one in found["epochs"]]
    assert states == ["truncated", "truncated", "replaced", "current"]
    unknown = await epochs_of(Stream(3)).latest("s/t", None, None)
    assert unknown["epochs"][0]["segments"][0]["state"] == "replaced"
