"""Where a read begins and ends, as users write it: a word, a time, or JSON as Kafka's source does.

::

    earliest | latest
    {"0": 12, "1": -2}                 by partition; -2 is earliest, -1 is latest
    {"orders": {"0": 12, "1": -2}}     the same with the topic's name around it
    {"orders": {"0": 1735689600000}}   times in milliseconds, in the options "…ByTimestamp"

JSON names every partition that is read, as it does for Kafka: a missing partition is an error, so
that no data is left out silently. Two more keys, as in the offsets of a stream, say what it speaks
of: ``"_uids": {"orders": "…"}`` which topics of these names, and ``"_terms": {"orders": {"0": 7}}``
which records below an offset, by the term of the last batch there. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from runnel import OffsetAndTerm, TransactionId
from schemas.errors import InvalidRequestError
from schemas.wire.batch import MAX_OFFSET
from schemas.wire.record_requests import EARLIEST, LATEST

#: Beside the topics in JSON: their uids. No topic of a user has such a name.
UIDS: Final = "_uids"
#: Beside them: by topic and partition the terms of the batches below the offsets.
TERMS: Final = "_terms"
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The last millisecond that Python has a date for.
_MAX_MS: Final = 253402300799999

#: An offset, `EARLIEST`, `LATEST`, the first record of a time or of a transaction id.
Place = int | datetime | TransactionId


@dataclass(frozen=True)
class Wish:
    """One place for all partitions (``by_topic`` is None), or one for each.

    ``by_topic``: by the topic's name; None is the name of the only one. ``option``: for errors that
    are found later.
    """

    option: str
    everywhere: Place = EARLIEST
    by_topic: tuple[tuple[str | None, tuple[tuple[int, Place], ...]], ...] | None = None
    uids: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # What was made of them is not sent to tasks.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def check(
        self, partitions: Mapping[str, Collection[int]], uids: Mapping[str, str] | None = None
    ) -> None:
        """Raise InvalidRequestError unless exactly these partitions of topics are named, and the
        topics are those of the uids."""
        for topic, uid in self.uids:
            if uids and topic in uids and uids[topic] != uid:
                raise InvalidRequestError(
                    f"option {self.option}: it is about the topic {topic!r} with the uid {uid}, and"
                    f" that was deleted; the one of this name now is {uids[topic]}"
                )
        if others := sorted({topic for topic, _ in self.terms} - partitions.keys()):
            raise InvalidRequestError(
                f"option {self.option}: {TERMS} names topic {_list(others)}, which is not read;"
                f" read are {_list(sorted(partitions))}"
            )
        if self.by_topic is None:
            return
        named = {topic for topic, _ in self.by_topic if topic is not None}
        if others := sorted(named - partitions.keys()):
            raise InvalidRequestError(
                f"option {self.option}: names topic {_list(others)}, which is not read; read are"
                f" {_list(sorted(partitions))}"
            )
        for topic, chosen in partitions.items():
            self._check_topic(topic, chosen)

    def _check_topic(self, topic: str, chosen: Collection[int]) -> None:
        found = self._of(topic)
        if found is None:
            raise InvalidRequestError(
                f"option {self.option}: topic {topic!r} is missing; name every topic that is read"
            )
        if unknown := sorted(found.keys() - set(chosen)):
            raise InvalidRequestError(
                f"option {self.option}: topic {topic!r} has no partition {_list(unknown)} to read;"
                f" there are {_list(sorted(chosen))}"
            )
        if missing := sorted(set(chosen) - found.keys()):
            raise InvalidRequestError(
                f"option {self.option}: partition {_list(missing)} of topic {topic!r} is missing;"
                " name every partition (-2 for earliest, -1 for latest)"
            )

    def place(self, topic: str, index: int) -> Place:
        """The place for one partition."""
        if self.by_topic is None:
            return self.everywhere
        return (self._of(topic) or {})[index]

    def read_before(self, topic: str) -> Mapping[int, OffsetAndTerm]:
        """By partition the offset with the term of the batch below, where that is said."""
        return self._read.get(topic, {})

    def _of(self, topic: str) -> Mapping[int, Place] | None:
        return self._places.get(topic, self._places.get(None))

    # Who plans asks for each partition of a topic: these are made once.

    @cached_property
    def _places(self) -> dict[str | None, dict[int, Place]]:
        return {topic: dict(places) for topic, places in self.by_topic or ()}

    @cached_property
    def _read(self) -> dict[str, dict[int, OffsetAndTerm]]:
        found: dict[str, dict[int, OffsetAndTerm]] = {}
        for topic, terms in self.terms:
            places = self._of(topic) or {}
            found[topic] = {
                index: OffsetAndTerm(place, term)
                for index, term in terms
                if isinstance(place := places.get(index), int) and place > 0
            }
        return found


def parse_offsets(option: str, text: str, only: str | None, *, words: tuple[str, ...]) -> Wish:
    """The offsets that ``text`` asks for. ``words`` are those that this option accepts, ``only``
    the name of the topic if one is read.

    Raises InvalidRequestError that names the option and what is accepted.
    """
    word = text.strip()
    if word.lower() in words:
        return Wish(option, _WORDS[word.lower()])
    wanted = f'give {" or ".join(words)}, or JSON such as {{"0": 12, "1": 40}}'
    if not word.startswith("{"):
        raise InvalidRequestError(f"option {option}: {text!r} is no position; {wanted}")
    special = {_WORDS[word]: word for word in words}

    def offset(partition: str, value: Any) -> int:
        # Python takes JSON's true for a number; nothing else does.
        if type(value) is int and (0 <= value <= MAX_OFFSET or value in special):
            return value
        accepted = ", ".join(f"{number} for {word}" for number, word in special.items())
        raise InvalidRequestError(
            f"option {option}: {json.dumps(value)} is no offset of partition {partition}; give a"
            f" whole number from 0 on, or {accepted}"
        )

    return _parse_json(option, word, only, wanted, offset)


def parse_times(option: str, text: str, only: str | None) -> Wish:
    """Times by partition, in milliseconds since 1970. Raises as `parse_offsets`."""
    wanted = 'give JSON such as {"0": 1735689600000}, in milliseconds since 1970'

    def moment(partition: str, value: Any) -> datetime:
        if type(value) is int and 0 <= value <= _MAX_MS:
            return _moment(value)
        raise InvalidRequestError(
            f"option {option}: {json.dumps(value)} is no time of partition {partition}; {wanted}"
        )

    return _parse_json(option, text.strip(), only, wanted, moment)


def parse_time(option: str, text: str) -> Wish:
    """One time for all partitions: milliseconds since 1970, or ISO 8601 with a time zone.

    Raises InvalidRequestError.
    """
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) < 20 and int(word) <= _MAX_MS:
        return Wish(option, _moment(int(word)))
    try:
        when = datetime.fromisoformat(word)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        zone = "" if when is None else "; it has no time zone"
        raise InvalidRequestError(
            f"option {option}: {text!r} is no time{zone}; give milliseconds since 1970, or a time"
            " with its zone, such as 2026-01-31T12:00:00Z"
        )
    return Wish(option, when)


def _moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _parse_json(option: str, text: str, only: str | None, wanted: str, value: Any) -> Wish:
    try:
        data: Any = json.loads(text, object_pairs_hook=_without_repetition)
    except ValueError as error:
        raise InvalidRequestError(f"option {option}: bad JSON: {error}; {wanted}") from error
    if not isinstance(data, dict) or not data:
        raise InvalidRequestError(f"option {option}: the JSON names no partition; {wanted}")
    uids = data.pop(UIDS, {})
    if not isinstance(uids, dict) or not all(isinstance(uid, str) for uid in uids.values()):
        raise InvalidRequestError(f"option {option}: {UIDS} is no map of topics to uids")
    try:
        terms = parse_terms(data.pop(TERMS, {}))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"option {option}: {TERMS} is no map of topics to the terms of their partitions, such"
            f' as {{"orders": {{"0": 65536}}}}, as checkpoints have it; leave it out to compare'
            f" nothing: {error}"
        ) from error
    by_topic: dict[str | None, Any] = data
    if not by_topic or not all(isinstance(inner, dict) for inner in data.values()):
        if only is None:
            raise InvalidRequestError(
                f"option {option}: several topics may be read, so put their names around the"
                ' partitions, such as {"orders": {"0": 12}}'
            )
        by_topic = {None: data}
    found = tuple(
        (
            topic,
            tuple(
                sorted(
                    (_partition(option, name), value(name, given)) for name, given in inner.items()
                )
            ),
        )
        for topic, inner in by_topic.items()
    )
    if not any(partitions for _, partitions in found):
        raise InvalidRequestError(f"option {option}: the JSON names no partition; {wanted}")
    return Wish(
        option,
        EARLIEST,
        found,
        tuple(sorted(uids.items())),
        tuple((topic, tuple(sorted(known.items()))) for topic, known in sorted(terms.items())),
    )


def parse_terms(data: Any) -> dict[str, dict[int, int]]:
    """Terms by topic and partition. Raises AttributeError, TypeError or ValueError."""
    return {
        str(topic): {int(index): _term(term) for index, term in known.items()}
        for topic, known in data.items()
    }


def _term(value: Any) -> int:
    if type(value) is not int or not 0 < value <= MAX_OFFSET:
        raise ValueError(f"{json.dumps(value)} is no term")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1)
        raise ValueError(f"{repeated!r} appears twice")
    return found


def _partition(option: str, name: str) -> int:
    if not _NUMBER.fullmatch(name):
        raise InvalidRequestError(
            f'option {option}: {name!r} is not the number of a partition; write {{"0": 12}}'
        )
    return int(name)


def _list(items: list[Any]) -> str:
    shown = ", ".join(str(item) for item in items[:5])
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"
