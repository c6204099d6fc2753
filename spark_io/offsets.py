"""Where a read begins and ends, as users write it: a word, or JSON as Kafka's source takes it.

::

    earliest | latest
    {"0": 12, "1": -2}                 by partition; -2 is earliest, -1 is latest
    {"orders": {"0": 12, "1": -2}}     the same with the topic's name around it

JSON names every partition of the topic, as it does for Kafka: a missing partition is an error, so
that no data is left out silently. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import InvalidRequestError
from schemas.wire.record_requests import EARLIEST, LATEST

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_OFFSET: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OffsetWish:
    """One position for all partitions (``by_partition`` is None), or one for each.

    A position is an offset, `EARLIEST` or `LATEST`. ``option`` is the name of the option, for
    errors that are found later.
    """

    option: str
    everywhere: int
    by_partition: tuple[tuple[int, int], ...] | None = None

    def check_partitions(self, topic: str, count: int) -> None:
        """Raise InvalidRequestError unless exactly the ``count`` partitions are named."""
        if self.by_partition is None:
            return
        named = {index for index, _ in self.by_partition}
        if unknown := sorted(named - set(range(count))):
            raise InvalidRequestError(
                f"option {self.option}: topic {topic!r} has no partition {_list(unknown)}; it has"
                f" {count} (0 to {count - 1})"
            )
        if missing := sorted(set(range(count)) - named):
            raise InvalidRequestError(
                f"option {self.option}: partition {_list(missing)} of topic {topic!r} is missing;"
                " name every partition (-2 for earliest, -1 for latest)"
            )

    def position(self, index: int) -> int:
        """The position requested for one partition."""
        return self.everywhere if self.by_partition is None else dict(self.by_partition)[index]


def parse_offsets(option: str, text: str, topic: str, *, words: tuple[str, ...]) -> OffsetWish:
    """The positions that ``text`` asks for. ``words`` are those that this option accepts.

    Raises InvalidRequestError that names the option and what is accepted.
    """
    word = text.strip()
    if word.lower() in words:
        return OffsetWish(option, _WORDS[word.lower()])
    wanted = f'give {" or ".join(words)}, or JSON such as {{"0": 12, "1": 40}}'
    if not word.startswith("{"):
        raise InvalidRequestError(f"option {option}: {text!r} is no position; {wanted}")
    try:
        data = json.loads(word, object_pairs_hook=_without_repetition)
    except ValueError as error:
        raise InvalidRequestError(f"option {option}: bad JSON: {error}; {wanted}") from error
    if data and all(isinstance(value, dict) for value in data.values()):
        data = _of_topic(option, data, topic)
    positions = [
        (_partition(option, name), _position(option, name, value, words))
        for name, value in data.items()
    ]
    if not positions:
        raise InvalidRequestError(f"option {option}: the JSON names no partition; {wanted}")
    return OffsetWish(option, EARLIEST, tuple(sorted(positions)))


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1)
        raise ValueError(f"{repeated!r} appears twice")
    return found


def _of_topic(option: str, data: dict[str, Any], topic: str) -> dict[str, Any]:
    others = sorted(set(data) - {topic})
    if others:
        raise InvalidRequestError(
            f"option {option}: names topic {_list(others)}, but the option topic is {topic!r}"
        )
    found: dict[str, Any] = data[topic]
    return found


def _partition(option: str, name: str) -> int:
    if not _NUMBER.fullmatch(name):
        raise InvalidRequestError(
            f'option {option}: {name!r} is not the number of a partition; write {{"0": 12}}'
        )
    return int(name)


def _position(option: str, name: str, value: Any, words: tuple[str, ...]) -> int:
    special = {_WORDS[word]: word for word in words}
    # Python takes JSON's true for a number; nothing else does.
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and (0 <= value <= _MAX_OFFSET or value in special):
        return int(value)
    accepted = ", ".join(f"{number} for {word}" for number, word in special.items())
    raise InvalidRequestError(
        f"option {option}: {json.dumps(value)} is no offset of partition {name}; give a whole"
        f" number from 0 on, or {accepted}"
    )


def _list(items: list[Any]) -> str:
    shown = ", ".join(str(item) for item in items[:5])
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"
