"""Lists of objects: whole from the mirror, or page by page as of one revision from the KV.

A page's token holds the revision of the first page, the last name and the selectors, so that all
pages show one moment and no server keeps state between them. `check_ours` and `check_readable`
refuse revisions of another store, and revisions that this store has compacted, both here and in a
watch (`sc.api.feeds`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sc.api.older_clients import known_to
from sc.api.routes import MAX_REVISION
from sc.api.selectors import Selection
from sc.kv.interface import KV, KeyValue
from sc.store.codec import decode_object
from schemas.errors import CompactedError, InvalidRequestError
from schemas.objects.keys import ClusterKeys
from schemas.objects.metadata import Object
from schemas.objects.quantities import check_owner_name

_READ_AT_ONCE: Final = 256
_RENDERED_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next page begins: after ``last``, as of ``revision``. ``of`` names the list."""

    revision: int
    last: str
    of: tuple[str, ...]

    def token(self) -> str:
        text = json.dumps([self.revision, self.last, *self.of], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, token: str, of: tuple[str, ...]) -> Place:
        """Raises InvalidRequestError for anything but the token of such a list."""
        try:
            text = base64.b64decode(
                (token + "=" * (-len(token) % 4)).encode("ascii"), altchars=b"-_", validate=True
            )
            revision, last, *found = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise InvalidRequestError("continue: not the `continue` of a page") from None
        whole = isinstance(revision, int) and not isinstance(revision, bool)
        if not whole or not 0 < revision <= MAX_REVISION or not _is_name(last):
            raise InvalidRequestError("continue: not the `continue` of a page")
        if tuple(found) != of:
            raise InvalidRequestError(
                "continue: belongs to another list; repeat the selectors of the previous page"
            )
        return cls(revision, last, of)


@dataclass(frozen=True, slots=True)
class Page:
    """Objects in the order of their names; ``following`` is None on the last page."""

    items: Sequence[Object]
    revision: int
    following: Place | None = None


async def read_page(
    kv: KV, keys: ClusterKeys, cls: type[Object], selection: Selection, limit: int, place: Place
) -> Page:
    """Up to ``limit`` selected objects from a place on. Raises CompactedError."""
    prefix = keys.kind(cls.PLURAL)
    items: list[Object] = []
    start_after = f"{prefix}{place.last}" if place.last else None
    while True:
        try:
            found = await kv.range(
                prefix, start_after=start_after, limit=_READ_AT_ONCE, revision=place.revision
            )
        except CompactedError as error:
            raise CompactedError(
                f"the list began at revision {place.revision}, which is compacted; begin again"
                " without continue",
                first_available=error.first_available,
            ) from error
        for stored in found.items:
            obj = _decoded(cls, stored)
            if obj is None or not selection.matches(obj.name, obj.metadata.labels):
                continue
            if len(items) == limit:
                following = Place(place.revision, items[-1].name, place.of)
                return Page(items, place.revision, following)
            items.append(obj)
        if not found.more:
            return Page(items, place.revision)
        start_after = found.items[-1].key
        # Heartbeats of SPUs do not wait for a long list.
        await asyncio.sleep(0)


async def render(page: Page, *, older: bool = False) -> str:
    """The JSON of a list, for a client that may be ``older``."""
    pieces: list[str] = []
    for index in range(0, len(page.items), _RENDERED_AT_ONCE):
        some = page.items[index : index + _RENDERED_AT_ONCE]
        pieces.extend(known_to(json.dumps(obj.to_json()), older=older) for obj in some)
        await asyncio.sleep(0)
    tail = {"revision": str(page.revision)}
    if page.following is not None:
        tail["continue"] = page.following.token()
    return f'{{"items": [{", ".join(pieces)}], {json.dumps(tail)[1:]}'


async def check_ours(kv: KV, keys: ClusterKeys, revision: int) -> None:
    """Raise CompactedError for a revision of a store that the cluster was moved from, or of before
    its last recovery.

    The last write of a move is the identity (`sc.transfer.migration`), at a revision above all of
    the source's: a lower revision means one thing there and another one here.
    """
    identity = await kv.get(keys.identity)
    if identity is not None and identity.version > 1 and revision < identity.mod_revision:
        raise CompactedError(
            f"resourceVersion {revision} is of before the cluster was moved, restored or"
            " recovered; list again",
            first_available=identity.mod_revision,
        )


async def check_readable(kv: KV, keys: ClusterKeys, after: int) -> None:
    """Raise CompactedError if changes after a revision cannot be read."""
    now = await kv.revision()
    if after > now:
        raise CompactedError(
            f"resourceVersion {after} is not in this store, which is at {now}: it was restored or"
            " moved; list again",
            first_available=now,
        )
    await check_ours(kv, keys, after)
    try:
        await kv.get(keys.identity, revision=max(after, 1))
    except CompactedError as error:
        raise CompactedError(
            f"changes after resourceVersion {after} are compacted; list again",
            first_available=error.first_available,
        ) from error


def _is_name(last: object) -> bool:
    try:
        check_owner_name(last)
    except ValueError:
        return False
    return True


def _decoded(cls: type[Object], stored: KeyValue) -> Object | None:
    """None for what does not parse: the reader reports it, and lists leave it out."""
    try:
        return decode_object(cls.PLURAL, stored.value, stored.mod_revision)[0]
    except InvalidRequestError:
        return None
