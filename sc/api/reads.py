"""Reading objects on behalf of users, from the mirror and the KV: every SC does, whether it leads
or not."""

from __future__ import annotations

from collections.abc import Callable

from sc.api.answers import History
from sc.api.history import history
from sc.api.listing import Page, Place, check_ours, read_page
from sc.api.selectors import Selection
from sc.mirror import Mirror
from schemas.errors import NotFoundError, NotReadyError
from schemas.objects.metadata import Object


class ObjectReads:
    """Over one mirror. ``as_now`` gives an object with what is not in the KV."""

    def __init__(self, mirror: Mirror, as_now: Callable[[Object], Object]) -> None:
        self._mirror = mirror
        self._as_now = as_now

    def get(self, cls: type[Object], name: str) -> Object:
        """Raises NotFoundError."""
        found = self._mirror.store.get(cls, name)
        if found is None:
            raise absent(cls, name)
        return self._as_now(found)

    def everything(self, cls: type[Object], selection: Selection) -> Page:
        """All selected objects, in the order of their names."""
        store = self._mirror.store
        items = [
            self._as_now(obj)
            for obj in store.objects(cls)
            if selection.matches(obj.name, obj.metadata.labels)
        ]
        return Page(items, store.revision)

    async def page(
        self, cls: type[Object], selectors: tuple[str, str], limit: int, token: str | None
    ) -> Page:
        """One page of the objects that a labelSelector and a fieldSelector select.

        Raises InvalidRequestError, CompactedError when the revision of the first page is gone.
        """
        of = (cls.PLURAL, *selectors)
        if token is None and self._mirror.kv_health.away_ms:
            # The KV does not answer; what the mirror has is better than nothing.
            found = self.everything(cls, Selection.parse(*selectors))
            items = found.items[:limit]
            more = len(found.items) > limit
            return Page(
                items, found.revision, Place(found.revision, items[-1].name, of) if more else None
            )
        if token is None:
            place = Place(self._mirror.store.revision, "", of)
        else:
            place = Place.parse(token, of)
            await check_ours(self._mirror.kv, self._mirror.keys, place.revision)
        selection = Selection.parse(*selectors)
        page = await read_page(self._mirror.kv, self._mirror.keys, cls, selection, limit, place)
        return Page([self._as_now(obj) for obj in page.items], page.revision, page.following)

    async def history(self, cls: type[Object], name: str, limit: int) -> History:
        """The last writes of an object. Raises NotFoundError, and NotReadyError while the KV, which
        keeps them, is known to be away: each version would wait for it."""
        health = self._mirror.kv_health
        if health.away_ms:
            said = f"the KV keeps the history: {health.trouble}"
            raise NotReadyError(said, askAnother=True)
        label = f"{cls.kind_name()} {name!r}"
        return await history(
            self._mirror.kv, self._mirror.keys.object(cls.PLURAL, name), label, limit
        )


def absent(cls: type[Object], name: str) -> NotFoundError:
    """The error for an object that does not exist."""
    return NotFoundError(f"{cls.kind_name()} {name!r} does not exist")
