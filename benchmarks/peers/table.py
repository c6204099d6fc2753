"""The figures of peers as a table in Markdown. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

#: For each figure, the values of each peer, one a round.
Figures = dict[str, dict[str, list[float]]]


def table(figures: Mapping[str, Mapping[str, Sequence[float]]], peers: Sequence[str]) -> str:
    """A row for each figure: the median, and in brackets the least and the most."""
    head = ["", *peers]
    rows = [
        [name, *(_cell(values.get(peer, ())) for peer in peers)] for name, values in figures.items()
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    middle = _number(statistics.median(values))
    return f"{middle} ({_number(min(values))} to {_number(max(values))})" if values[1:] else middle


def _number(value: float) -> str:
    """Three digits that count, and no more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
