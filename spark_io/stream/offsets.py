"""Where a stream is, as Spark keeps it in the checkpoint. Pure.

::

    {"orders": {"0": 361, "1": 312}, "_uids": {"orders": "3f1c1a52-…"}}

Offsets are those of the next record to read. Spark compares two places by their texts, so there is
one text for each: topics by name, partitions by number, the uids last. ``startingOffsets`` takes
the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import InvalidRequestError
from spark_io.options.places import UIDS


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """By topic and partition the next offset to read; by topic its uid."""

    offsets: Mapping[str, Mapping[int, int]]
    uids: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """What Spark writes down; equal places give equal texts."""
        topics = {
            topic: {str(index): self.offsets[topic][index] for index in sorted(self.offsets[topic])}
            for topic in sorted(self.offsets)
        }
        return {**topics, UIDS: {topic: self.uids[topic] for topic in sorted(self.uids)}}

    @classmethod
    def from_json(cls, data: Any) -> StreamPlace:
        """The place that `to_json` wrote. Raises InvalidRequestError."""
        try:
            uids = {str(topic): str(uid) for topic, uid in dict(data.get(UIDS, {})).items()}
            offsets = {
                str(topic): {int(index): _offset(value) for index, value in partitions.items()}
                for topic, partitions in data.items()
                if topic != UIDS
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidRequestError(
                f"the checkpoint's offsets {json.dumps(data)[:200]} are not those of the format"
                " runnel; begin the query with a new checkpointLocation"
            ) from error
        return cls(offsets, uids)


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value
