"""Which revisions a reader may name: those that this store still knows, and that are its own."""

from __future__ import annotations

from sc.kv.interface import KV
from schemas.errors import CompactedError
from schemas.objects.keys import ClusterKeys


async def check_ours(kv: KV, keys: ClusterKeys, revision: int) -> None:
    """Raise CompactedError for a revision of a store that the cluster was moved from.

    A move ends by writing the identity anew (`sc.migration`), at a revision above all of the
    source's: what lies below it was never written here as it was written there.
    """
    identity = await kv.get(keys.identity)
    if identity is not None and identity.version > 1 and revision < identity.mod_revision:
        raise CompactedError(
            f"resourceVersion {revision} is of the store that the cluster was moved from; list"
            " again",
            first_available=identity.mod_revision,
        )


async def check_readable(kv: KV, keys: ClusterKeys, after: int) -> None:
    """Raise CompactedError where changes after a revision cannot be told."""
    now = await kv.revision()
    if after > now:
        raise CompactedError(
            f"resourceVersion {after} is none of this store, which is at {now}: it was restored"
            " or moved; list again",
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
