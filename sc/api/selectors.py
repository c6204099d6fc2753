"""Which objects a request selects: label selectors and field selectors. Pure.

The grammar of label selectors is Kubernetes'; terms are joined by commas and all must hold::

    team=x   team==x   team!=x   team in (x,y)   team notin (x,y)   team   !team

``!=`` and ``notin`` hold for objects without the label, too. Keys and values are text without
spaces and without ``, ( ) = !``; a value may be empty. The only field selector is
``metadata.name=NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from schemas.errors import InvalidRequestError

_NAME_FIELD: Final = "metadata.name"
_WORD: Final = r"[^\s,()=!]"
_SET: Final = re.compile(rf"({_WORD}+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_WORD}+)\s*(==|=|!=)\s*({_WORD}*)")
_EXISTS: Final = re.compile(rf"(!?)\s*({_WORD}+)")
_VALUE: Final = re.compile(rf"{_WORD}*")
_HINT: Final = "write a=b, a!=b, a in (b,c), a notin (b,c), a or !a"


class Operator(Enum):
    """How a label is compared with the values of a term."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on one label. ``values`` is empty for EXISTS and ABSENT."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels
            case _:
                assert_never(self.operator)


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects whose labels match all ``terms`` and, if ``name`` is given, that have this name."""

    terms: tuple[Term, ...] = ()
    name: str | None = None

    @classmethod
    def parse(cls, labels: str, fields: str) -> Selection:
        """Of a labelSelector and a fieldSelector; empty ones select everything.

        Raises InvalidRequestError that names the term.
        """
        return cls(parse_labels(labels), _parse_fields(fields))

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if self.name is not None and name != self.name:
            return False
        return all(term.matches(labels) for term in self.terms)


def parse_labels(selector: str) -> tuple[Term, ...]:
    """The terms of a label selector. Raises InvalidRequestError that names the one it cannot read.

    Nothing but space selects everything; an empty term between commas is an error.
    """
    if not selector.strip():
        return ()
    return tuple(_parse_term(text.strip()) for text in _split(selector))


def _split(selector: str) -> list[str]:
    """The terms between the commas that are outside parentheses."""
    terms, depth, start = [], 0, 0
    for index, char in enumerate(selector):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            terms.append(selector[start:index])
            start = index + 1
    return [*terms, selector[start:]]


def _parse_term(text: str) -> Term:
    if not text:
        raise InvalidRequestError(f"labelSelector: a term is empty; {_HINT}")
    if (found := _SET.fullmatch(text)) is not None:
        values = [value.strip() for value in found[3].split(",")]
        if not found[3].strip() or not all(map(_VALUE.fullmatch, values)):
            raise InvalidRequestError(f"labelSelector: {text!r}: values are written as (b,c)")
        return Term(found[1], Operator(found[2]), frozenset(values))
    if (found := _EQUAL.fullmatch(text)) is not None:
        operator = Operator.NOT_IN if found[2] == "!=" else Operator.IN
        return Term(found[1], operator, frozenset([found[3]]))
    if (found := _EXISTS.fullmatch(text)) is not None:
        return Term(found[2], Operator.ABSENT if found[1] else Operator.EXISTS)
    raise InvalidRequestError(f"labelSelector: {text!r} is not a term; {_HINT}")


def _parse_fields(selector: str) -> str | None:
    if not selector.strip():
        return None
    found = _EQUAL.fullmatch(selector.strip())
    if found is None or found[1] != _NAME_FIELD or found[2] == "!=" or not found[3]:
        raise InvalidRequestError(
            f"fieldSelector: {selector!r} is not supported; write {_NAME_FIELD}=NAME"
        )
    return found[3]
