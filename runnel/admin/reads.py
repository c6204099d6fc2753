"""Reading objects: one of them, or all of a kind page by page, over any way to call the SC.

Neighbours: `runnel.admin.client.Admin` adds changes and watches; `runnel.admin.one_shot` reads
without an event loop, so nothing here may await anything but a call.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Final

from runnel.admin.answers import text_or_none
from runnel.admin.calls import ScCalls, object_path, parse_answer, understood
from schemas.errors import CompactedError, NotFoundError
from schemas.objects.kinds import find_kind
from schemas.objects.metadata import Object
from schemas.objects.spelling import nearest
from schemas.objects.system_topics import is_system_name

#: A selector as text (``team=a,tier in (gold,silver),!old``), or labels that must all be there.
Selector = str | Mapping[str, str]
PAGE_OBJECTS: Final = 500
_LIST_ATTEMPTS: Final = 3


class ObjectReads:
    """Reads objects. Kinds are named in any spelling that `runnel get` takes."""

    def __init__(self, calls: ScCalls) -> None:
        self._calls = calls

    async def get(self, kind: str, name: str) -> Object:
        """One object. Raises NotFoundError that suggests the nearest name."""
        cls = find_kind(kind)
        try:
            return await self._get(cls, name)
        except NotFoundError as error:
            known, _ = await self._page(cls, {"limit": str(PAGE_OBJECTS)})
            hint = nearest(name, [obj.name for obj in known if obj.name != name])
            meant = f"; did you mean {hint!r}?" if hint else ""
            raise NotFoundError(
                f"{cls.kind_name().lower()} {name!r} does not exist{meant}"
            ) from error

    async def list(
        self, kind: str, selector: Selector | None = None, *, show_system: bool = False
    ) -> builtins.list[Object]:
        """All objects of a kind, or those that a selector of labels chooses, as of one moment.

        Objects of the system (``_positions``) are left out without ``show_system``. Raises
        InvalidRequestError for a selector that does not parse.
        """
        cls = find_kind(kind)
        for attempt in range(_LIST_ATTEMPTS):
            query = {"limit": str(PAGE_OBJECTS), **selection(selector)}
            found, more = await self._page(cls, query)
            try:
                while more:
                    page, more = await self._page(cls, {**query, "continue": more})
                    found += page
            except CompactedError:
                # The revision of the pages was compacted: read all pages of a newer one.
                if attempt == _LIST_ATTEMPTS - 1:
                    raise
                continue
            return [obj for obj in found if show_system or not is_system_name(obj.name)]
        raise AssertionError("the last attempt returns or raises")

    async def _get(self, cls: type[Object], name: str) -> Object:
        return parse_answer(cls, await self._calls.call("GET", object_path(cls, name)))

    async def _page(
        self, cls: type[Object], query: Mapping[str, str]
    ) -> tuple[builtins.list[Object], str | None]:
        """Objects, and the token of the page after them."""
        answer = await self._calls.call("GET", f"/v1/{cls.PLURAL}", query=query)
        with understood(f"a list of {cls.PLURAL}"):
            items, more = builtins.list(answer["items"]), text_or_none(answer.get("continue"))
            if more and not items:
                raise ValueError("a page that goes on is empty")
        return [parse_answer(cls, item) for item in items], more


def selection(selector: Selector | None) -> dict[str, str]:
    """The query that chooses objects by a selector."""
    if isinstance(selector, Mapping):
        selector = ",".join(f"{name}={value}" for name, value in selector.items())
    return {"labelSelector": selector} if selector else {}
