"""Where a stream is, as Spark keeps it in the checkpoint. Pure.

::

    {"orders": {"0": 361, "1": 312}, "_terms": {"orders": {"0": 7}}, "_uids": {"orders": "3f1c…"}}

Offsets are those of the next record to read; with the terms of the last batches below them, where
these are known, they identify what was read. Spark compares two places by their texts, so there is
one text for each: topics by name, partitions by number, the terms and uids last.
``startingOffsets`` takes the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runnel import OffsetAndTerm
from schemas.errors import InvalidRequestError
from spark_io.options.places import TERMS, UIDS, parse_terms


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """By topic and partition the next offset to read, and the term of the last batch below it where
    that is known; by topic its uid."""

    offsets: Mapping[str, Mapping[int, int]]
    uids: Mapping[str, str]
    terms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What Spark writes down; equal places give equal texts."""
        known = {topic: terms for topic, terms in self.terms.items() if terms}
        return {
            **_in_order(self.offsets),
            **({TERMS: _in_order(known)} if known else {}),
            UIDS: {topic: self.uids[topic] for topic in sorted(self.uids)},
        }

    def read_before(self, topic: str) -> dict[int, OffsetAndTerm]:
        """By partition the next offset to read with the term of the batch below, where known."""
        terms = self.terms.get(topic, {})
        offsets = self.offsets.get(topic, {})
        return {p: OffsetAndTerm(offsets[p], term) for p, term in terms.items() if p in offsets}

    @classmethod
    def from_json(cls, data: Any) -> StreamPlace:
        """The place that `to_json` wrote. Raises InvalidRequestError."""
        try:
            uids = {str(topic): str(uid) for topic, uid in dict(data.get(UIDS, {})).items()}
            terms = parse_terms(data.get(TERMS, {}))
            offsets = {
                str(topic): {int(index): _offset(value) for index, value in partitions.items()}
                for topic, partitions in data.items()
                if topic not in (UIDS, TERMS)
            }
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidRequestError(
                f"the checkpoint's offsets {json.dumps(data)[:200]} are not those of the format"
                " runnel; begin the query with a new checkpointLocation"
            ) from error
        return cls(offsets, uids, terms)


def _in_order(numbers: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(index): numbers[topic][index] for index in sorted(numbers[topic])}
        for topic in sorted(numbers)
    }


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value
