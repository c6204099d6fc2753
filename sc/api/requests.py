"""Query parameters and headers of a request, checked against the table of routes. Pure.

An unknown parameter is an error: with a misspelt ``dryRun``, the server would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sc.api.routes import MAX_HEADER, MAX_REVISION, STATISTICS, Form, Parameter, Route
from sc.store.codec import CONTROLLERS
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.kinds import KINDS
from schemas.objects.metadata import Object
from schemas.objects.quantities import check_name
from schemas.objects.spelling import nearest

BY_HEADER: Final = "X-Runnel-By"
CAUSE_HEADER: Final = "X-Runnel-Cause"
LAST_EVENT_HEADER: Final = "Last-Event-ID"

CAUSE_PATTERN: Final = rf"[!-~]{{1,{MAX_HEADER}}}"
_CAUSE: Final = re.compile(CAUSE_PATTERN)
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Query:
    """Query parameters by name, in the forms that the table prescribes."""

    values: dict[str, list[str]]

    def text(self, name: str) -> str | None:
        found = self.values.get(name)
        return found[0] if found else None

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    def number(self, name: str) -> int | None:
        found = self.text(name)
        return None if found is None else int(found)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write: ``by`` whom it is, and whether it is only checked."""

    by: str
    dry_run: bool = False


def read_query(route: Route, pairs: Iterable[tuple[str, str]]) -> Query:
    """Raises InvalidRequestError that names an unknown or malformed parameter."""
    known = {parameter.name: parameter for parameter in route.query}
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        parameter = known.get(name)
        if parameter is None:
            raise InvalidRequestError(_unknown(name, list(known)))
        if name in values and not parameter.many:
            raise InvalidRequestError(f"{name}: appears twice")
        _check(parameter, value)
        values.setdefault(name, []).append(value)
    return Query(values)


def read_by(header: str | None, peer: str | None) -> str:
    """The writer's name: the header, else the peer's address. Raises InvalidRequestError."""
    by = (header or "").strip()
    if not by:
        return peer or "unknown"
    if by == CONTROLLERS:
        raise InvalidRequestError(f"{BY_HEADER}: {by} is reserved for controllers")
    if len(by) > MAX_HEADER or not by.isprintable():
        raise InvalidRequestError(
            f"{BY_HEADER}: write who you are in at most {MAX_HEADER} printable characters"
        )
    return by


def read_write_options(header: str | None, peer: str | None, query: Query) -> WriteOptions:
    """See `read_by`. Raises InvalidRequestError."""
    return WriteOptions(read_by(header, peer), dry_run=query.flag("dryRun"))


def read_cause(header: str | None) -> str | None:
    """The causality id of a request that has one. Raises InvalidRequestError."""
    if not header:
        return None
    if not _CAUSE.fullmatch(header):
        raise InvalidRequestError(
            f"{CAUSE_HEADER}: use at most {MAX_HEADER} ASCII characters, without spaces"
        )
    return header


def read_last_event(header: str | None) -> int | None:
    """The revision to resume after, or None. Raises InvalidRequestError."""
    if not header:
        return None
    if not is_number(header, 0, MAX_REVISION):
        raise InvalidRequestError(f"{LAST_EVENT_HEADER}: {header!r} is not a resourceVersion")
    return int(header)


def read_kinds(text: str | None) -> tuple[tuple[type[Object], ...], bool]:
    """Kinds to watch, and whether statistics, too. Raises InvalidRequestError."""
    known = [*(cls.PLURAL for cls in KINDS), STATISTICS]
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not names:
        raise InvalidRequestError(f"kinds: say which to watch: {', '.join(known)}")
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise InvalidRequestError(
                f"kinds: {name!r} is none of {', '.join(known)}"
                + (f"; did you mean {hint}?" if hint is not None else "")
            )
    return tuple(cls for cls in KINDS if cls.PLURAL in names), STATISTICS in names


def read_media_type(header: str | None) -> str:
    """The media type of a body, without its parameters; empty where the header is left out.

    It is parsed here and not by aiohttp, whose parser is made for mail headers: it also parses
    parameters and comments, which for a header of 8 KiB takes most of a second, or exceeds Python's
    recursion limit.
    """
    return (header or "").partition(";")[0].strip().lower()


def read_name(kind: str, name: str) -> str:
    """The name in an address. Raises NotFoundError where no object can be called that."""
    try:
        return check_name(name)
    except ValueError:
        raise NotFoundError(f"{kind} {name!r} does not exist") from None


def read_object_name(cls: type[Object], parts: Mapping[str, str]) -> str:
    """The name of an object of a kind in the parts of an address. Raises NotFoundError where no
    object can be called that."""
    name = read_name(cls.kind_name(), parts["name"])
    if "scope" not in parts:
        return name
    return f"{read_name(cls.kind_name(), parts['scope'])}/{name}"


def _unknown(name: str, known: list[str]) -> str:
    hint = nearest(name, known)
    if hint is not None:
        return f"unknown query parameter {name!r}; did you mean {hint}?"
    which = f"known here: {', '.join(known)}" if known else "none is known here"
    return f"unknown query parameter {name!r}; {which}"


def _check(parameter: Parameter, value: str) -> None:
    match parameter.form:
        case Form.FLAG if value not in ("true", "false"):
            raise InvalidRequestError(f"{parameter.name}: {value!r} is neither true nor false")
        case Form.NUMBER if not is_number(value, parameter.low, parameter.high):
            raise InvalidRequestError(
                f"{parameter.name}: {value!r} is not a whole number from {parameter.low} to"
                f" {parameter.high}"
            )
        case _:
            pass


def is_number(value: str, low: int, high: int) -> bool:
    """Whether a text is a whole number in digits, within bounds."""
    return _NUMBER.fullmatch(value) is not None and low <= int(value) <= high
