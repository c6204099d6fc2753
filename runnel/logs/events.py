"""The last changes of all objects, as the SC tells them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runnel.admin.answers import text_or_none
from runnel.admin.calls import ScCalls, understood


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """One change of an object: ``created``, ``modified`` or ``deleted``.

    ``at`` is its time (ISO 8601, UTC), ``by`` the writer, ``cause`` the causality id, as in logs;
    ``resolution`` and ``reason`` are those of the object from then on.
    """

    kind: str
    name: str
    change: str
    revision: int
    at: str | None
    by: str | None
    cause: str
    resolution: str | None
    reason: str | None
    changed: tuple[str, ...]

    @property
    def object(self) -> str:
        """Kind and name as ``--for`` takes them: ``topic/orders``."""
        return f"{self.kind.lower()}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """The event as ``-o json`` prints it."""
        return {
            "revision": str(self.revision),
            "at": self.at,
            "kind": self.kind,
            "name": self.name,
            "change": self.change,
            "by": self.by,
            "cause": self.cause,
            "resolution": self.resolution,
            "reason": self.reason,
            "changed": list(self.changed),
        }


async def list_events(
    sc: ScCalls,
    *,
    about: str | None = None,
    since: datetime | None = None,
    cause: str | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> tuple[ObjectEvent, ...]:
    """The newest events, the newest last. ``about`` is ``KIND/NAME``, ``after`` a revision.

    Raises InvalidRequestError; NotFoundError from an SC of an earlier version.
    """
    query = {
        "for": about,
        "since": None if since is None else since.isoformat(),
        "cause": cause,
        "after": None if after is None else str(after),
        "limit": None if limit is None else str(limit),
    }
    asked = {name: value for name, value in query.items() if value is not None}
    answer = await sc.call("GET", "/v1/events", query=asked)
    with understood("a list of events"):
        return tuple(map(_parse, answer["items"]))


def _parse(item: dict[str, Any]) -> ObjectEvent:
    return ObjectEvent(
        kind=str(item["kind"]),
        name=str(item["name"]),
        change=str(item["change"]),
        revision=int(item["revision"]),
        at=text_or_none(item.get("at")),
        by=text_or_none(item.get("by")),
        cause=str(item.get("cause") or "-"),
        resolution=text_or_none(item.get("resolution")),
        reason=text_or_none(item.get("reason")),
        changed=tuple(map(str, item.get("changed") or ())),
    )
