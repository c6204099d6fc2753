"""What Spark tells of the batches of a query. Pure.

Spark tells of each batch in JSON (``StreamingQueryProgress``), and now and then that there was
none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from runnel.pipelines.progress import Batch
from spark_io.options.places import TERMS, UIDS

OBSERVED: Final = "runnel_result"
"""The name under which a query counts the rows of its result."""
ROWS: Final = "rows"


def read_progress(data: Mapping[str, Any]) -> Batch | None:
    """The batch that Spark tells of; None if it tells that there was none."""
    durations = data.get("durationMs") or {}
    if "addBatch" not in durations:
        return None
    observed = (data.get("observedMetrics") or {}).get(OBSERVED) or {}
    rows_out = observed.get(ROWS)
    if rows_out is None:
        told = (data.get("sink") or {}).get("numOutputRows", -1)
        rows_out = told if told >= 0 else None
    return Batch(
        int(data["batchId"]),
        int(data.get("numInputRows") or 0),
        None if rows_out is None else int(rows_out),
        lag_of(data.get("sources") or ()),
        float(durations.get("triggerExecution", 0)) / 1000,
    )


def lag_of(sources: Any) -> int | None:
    """Σ (latest − end) over the partitions of the sources; None if one does not say it."""
    # A source that a query reads twice is there twice, with the same offsets.
    by_partition: dict[tuple[str, str], int] = {}
    for source in sources:
        end, latest = _place(source.get("endOffset")), _place(source.get("latestOffset"))
        if end is None or latest is None:
            return None
        for topic, partitions in latest.items():
            for index, offset in partitions.items():
                behind = max(0, offset - end.get(topic, {}).get(index, 0))
                key = (topic, index)
                by_partition[key] = max(behind, by_partition.get(key, 0))
    return sum(by_partition.values())


def _place(told: Any) -> dict[str, dict[str, int]] | None:
    """Offsets by topic and partition; None for what is not of the format ``runnel``."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, dict) or UIDS not in told:
        return None
    return {topic: dict(offsets) for topic, offsets in told.items() if topic not in (UIDS, TERMS)}
