"""The segments of a stream as a drawing: keys to the right, epochs downwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.control.streams import EpochInfo, SegmentInfo

WIDTH = 64
"""Columns of the key space."""


def draw(epochs: Sequence[EpochInfo], width: int = WIDTH) -> list[str]:
    """One line for each epoch, the oldest first, below a scale of the key space.

    A segment shows its number where that has room; a segment that an epoch did not change is drawn
    in it as well.
    """
    label = max((len(_label(one)) for one in epochs), default=0)
    head = f"{'':{label}}  0{'key':^{width - 1}}1"
    return [head, *(f"{_label(one):>{label}}  {_line(one.segments, width)}" for one in epochs)]


def _label(epoch: EpochInfo) -> str:
    return f"epoch {epoch.epoch}"


def _line(segments: Sequence[SegmentInfo], width: int) -> str:
    cells = [" "] * (width + 1)
    for one in segments:
        begin, end = round(one.low * width), round(one.high * width)
        cells[begin] = cells[end] = "|"
        number = one.id.partition(".")[2]
        if len(number) < end - begin:
            middle = begin + 1 + (end - begin - 1 - len(number)) // 2
            cells[middle : middle + len(number)] = number
    return "".join(cells)
