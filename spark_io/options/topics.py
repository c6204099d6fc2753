"""Which topics and partitions a read is of, as users write it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name
from schemas.objects.system_topics import is_system_name
from spark_io.options.table import ASSIGN, STREAM, SUBSCRIBE, SUBSCRIBE_PATTERN, TOPIC

_CHOICES: Final = (TOPIC, SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
_EXAMPLE: Final = 'spark.read.format("runnel").option("topic", "orders").load()'


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Topics by name, or all whose names match a pattern.

    ``partitions``: by name, the only partitions to read of a topic; empty for all of all topics.
    """

    option: str
    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def only(self) -> str | None:
        """The name of the topic, if it is one and was named."""
        return self.names[0] if len(self.names) == 1 else None

    @property
    def many(self) -> bool:
        """May rows of several topics be in one read?"""
        return self.only is None

    def matching(self, existing: Iterable[str]) -> tuple[str, ...]:
        """The names that a pattern chooses among those of all topics, in order."""
        if self.pattern is None:
            return self.names
        pattern = re.compile(self.pattern)
        return tuple(
            sorted(
                name for name in existing if pattern.fullmatch(name) and not is_system_name(name)
            )
        )

    def chosen(self, topic: str, count: int) -> tuple[int, ...]:
        """The partitions to read of a topic that has ``count``. Raises InvalidRequestError."""
        wanted = dict(self.partitions).get(topic)
        if wanted is None:
            return tuple(range(count))
        if unknown := [index for index in wanted if index >= count]:
            raise InvalidRequestError(
                f"option {self.option}: topic {topic!r} has no partition {unknown[0]}; it has"
                f" {count} (0 to {count - 1})"
            )
        return wanted


def parse_topics(given: Mapping[str, str]) -> TopicChoice:
    """Exactly one of the options that choose topics. Raises InvalidRequestError."""
    named = [name for name in _CHOICES if name in given]
    if not named or not given[named[0]].strip():
        raise InvalidRequestError(f"option {TOPIC} is missing: {_EXAMPLE}")
    if len(named) > 1:
        raise InvalidRequestError(
            f"options {' and '.join(named)}: give one of {', '.join(_CHOICES)}"
        )
    (option,) = named
    text = given[option].strip()
    match option:
        case "subscribePattern":
            return TopicChoice(option, pattern=_pattern(text))
        case "assign":
            return _assigned(text)
        case _:
            return TopicChoice(option, tuple(_name(option, one) for one in _parts(option, text)))


def _parts(option: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if repeated := [part for part in parts if parts.count(part) > 1]:
        raise InvalidRequestError(f"option {option}: {repeated[0]!r} is there twice")
    return parts


def _name(option: str, name: str) -> str:
    if name.count("/") == 1:
        raise InvalidRequestError(
            f"option {option}: {name!r} is a stream; give it as {STREAM}, in place of topics"
        )
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"option {option}: {error}") from error
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequestError(
            f"option {SUBSCRIBE_PATTERN}: {text!r} is no regular expression: {error}"
        ) from error
    return text


def _assigned(text: str) -> TopicChoice:
    wanted = 'give JSON such as {"orders": [0, 1]}'
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {ASSIGN}: bad JSON: {error}; {wanted}") from error
    if not isinstance(data, dict) or not data:
        raise InvalidRequestError(f"option {ASSIGN}: {text!r} names no partitions; {wanted}")
    found = []
    for name, partitions in data.items():
        _name(ASSIGN, name)
        whole = isinstance(partitions, list) and all(type(one) is int for one in partitions)
        if not whole or not partitions or min(partitions) < 0:
            raise InvalidRequestError(
                f"option {ASSIGN}: {json.dumps(partitions)} are no partitions of topic {name!r};"
                f" {wanted}"
            )
        found.append((name, tuple(sorted(set(partitions)))))
    return TopicChoice(ASSIGN, tuple(name for name, _ in found), partitions=tuple(found))
