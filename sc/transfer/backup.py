"""From a store into a file: everything of a cluster, as of one revision, while SCs work on it.

Left out is what belongs to the store alone (`sc.transfer.contents.is_copied`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from sc.dispatch.kv_updater import written_at
from sc.leadership import Identity
from sc.transfer.backup_file import FORMAT, BackupWriter, Header
from sc.transfer.contents import Store, count_keys, is_copied, pages
from sc.transfer.copying import Progress
from schemas.errors import CompactedError, ConflictError, NotFoundError
from schemas.objects.keys import ClusterKeys

#: So often the store may forget, while it is read, what it was at the revision that is read.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Written:
    """What a backup holds: keys and their bytes, and the digest of both."""

    uid: str
    revision: int
    keys: int
    bytes: int
    sha256: str


async def back_up(source: Store, keys: ClusterKeys, path: Path, progress: Progress) -> Written:
    """Write a file of everything of a cluster.

    Raises NotFoundError where the store holds no such cluster, ConflictError where it holds only a
    part of it or the file exists, and what the store and `BackupWriter` raise.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return await _attempt(source, keys, path, progress)
        except CompactedError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _attempt(source: Store, keys: ClusterKeys, path: Path, progress: Progress) -> Written:
    found = await count_keys(source.kv, keys)
    if found.uid is None:
        raise NotFoundError(f"{source.url} holds no cluster {keys.cluster!r}")
    if found.arriving_from is not None:
        raise ConflictError(
            f"{source.url} does not hold all of cluster {keys.cluster!r}: what comes from"
            f" {found.arriving_from} has not arrived"
        )
    if found.moved_to is not None:
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved to {found.moved_to}; back it up from there"
        )
    revision = await source.kv.revision()
    stored = await source.kv.get(keys.identity)
    if stored is None:
        raise ConflictError(f"{keys.identity} was deleted while the cluster was being backed up")
    header = Header(
        runnel_backup=FORMAT,
        cluster=keys.cluster,
        uid=found.uid,
        incarnation=Identity.decode(stored.value).incarnation,
        revision=revision,
        at=written_at(),
        version=version("runnel"),
    )
    with BackupWriter(path, header) as backup:
        done = 0
        async for page in pages(source.kv, keys, revision):
            for item in page.items:
                if is_copied(item, keys):
                    backup.add(item.key, item.value)
            done += len(page.items)
            progress("backing up", min(done, found.keys), found.keys)
    digest = backup.digest
    return Written(found.uid, revision, digest.keys, digest.bytes, digest.sha256)
