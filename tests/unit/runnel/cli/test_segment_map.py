"""The drawing of a stream's segments."""

from __future__ import annotations

from runnel.cli.stream.segment_map import draw
from schemas.control.streams import EpochInfo, SegmentInfo
from schemas.objects.stream import StreamState


def epoch(number: int, *segments: tuple[str, float, float]) -> EpochInfo:
    return EpochInfo(
        stream="s/t",
        uid="u",
        state=StreamState.ACTIVE,
        epoch=number,
        time_ms=0,
        segments=tuple(
            SegmentInfo(id=name, low=low, high=high, partition="p") for name, low, high in segments
        ),
    )


def test_given_epochs_then_each_is_a_line_to_scale() -> None:
    lines = draw(
        [
            epoch(9, ("0.0", 0, 0.5), ("0.1", 0.5, 1)),
            epoch(10, ("10.2", 0, 0.25), ("10.3", 0.25, 0.5), ("0.1", 0.5, 1)),
        ],
        width=16,
    )
    assert lines == [
        "          0      key      1",
        " epoch 9  |   0   |   1   |",
        "epoch 10  | 2 | 3 |   1   |",
    ]


def test_given_more_segments_than_columns_then_numbers_are_left_out() -> None:
    many = tuple((f"0.{i}", i / 64, (i + 1) / 64) for i in range(64))
    (_, line) = draw([epoch(0, *many)], width=32)
    assert line == f"epoch 0  {'|' * 33}"
    assert draw([]) == ["  0" + f"{'key':^63}" + "1"]
