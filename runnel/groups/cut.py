"""A place of a group in all its sources, as users keep it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runnel.groups.places import Places, SourceSegment
from runnel.records.offset_and_term import OffsetAndTerm
from runnel.state_log.fold import read_number, read_text
from schemas.errors import InvalidRequestError
from schemas.streams.cuts import NOT_BEGUN, StreamCut

_HINT = "give all of what a checkpoint of a group printed or returned"


@dataclass(frozen=True, slots=True)
class TopicCut:
    """The next record of each partition of a topic; ``uid`` tells it from earlier topics of its
    name."""

    uid: str
    places: Mapping[int, OffsetAndTerm]


@dataclass(frozen=True, slots=True)
class GroupCut:
    """A place in each stream and topic that a group reads: keep it as text, ``str(cut)``, and read
    that with `GroupCut.parse`."""

    streams: Mapping[str, StreamCut] = field(default_factory=dict)
    topics: Mapping[str, TopicCut] = field(default_factory=dict)

    def __str__(self) -> str:
        topics = {
            name: {"uid": one.uid, "places": [[p, *at] for p, at in sorted(one.places.items())]}
            for name, one in sorted(self.topics.items())
        }
        streams = [str(cut) for _, cut in sorted(self.streams.items())]
        return json.dumps({"streams": streams, "topics": topics}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> GroupCut:
        """The cut that `str` gave. Raises InvalidRequestError."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.keys() != {"streams", "topics"}:
                raise ValueError("it does not say where streams and topics are")
            cuts = [StreamCut.parse(one) for one in data["streams"]]
            return cls({one.stream: one for one in cuts}, dict(map(_topic, data["topics"].items())))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"not a place of a group: {error.message}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(
                f"not a place of a group: {text!r:.60} ({error}); {_HINT}"
            ) from error

    @classmethod
    def of(cls, places: Places, uids: Mapping[str, str]) -> GroupCut:
        """The cut of the places of a group, whose sources have these uids."""
        waiting = dict.fromkeys(places.waiting, OffsetAndTerm(NOT_BEGUN))
        return cls.at({**places.open, **places.last, **waiting}, uids)

    @classmethod
    def at(
        cls, segments: Mapping[SourceSegment, OffsetAndTerm], uids: Mapping[str, str]
    ) -> GroupCut:
        """The cut that names these segments of sources that have these uids."""
        offsets: dict[str, dict[int, OffsetAndTerm]] = {name: {} for name in uids}
        for one, at in segments.items():
            offsets[one.source][one.id] = at
        streams, topics = {}, {}
        for name, found in offsets.items():
            if "/" in name:
                numbers = {one: at.offset for one, at in found.items()}
                streams[name] = StreamCut(name, uids[name], numbers)
            else:
                topics[name] = TopicCut(uids[name], found)
        return cls(streams, topics)


def _topic(item: tuple[Any, Any]) -> tuple[str, TopicCut]:
    name, data = item
    places = {
        read_number(p): OffsetAndTerm(read_number(offset), read_number(term))
        for p, offset, term in data["places"]
    }
    return read_text(name), TopicCut(read_text(data["uid"]), places)
