"""Taking office: the cluster's identity, and the stamp that fences a deposed SC.

The first SC of a cluster gives it a uid. Every SC that takes office adds itself to a list that is
never shortened and writes itself as the current one; every write of its controllers compares that
key, so an SC that another one has replaced cannot change a status any more.

Nobody takes office over a store that the cluster was moved out of, or that it has not arrived in
yet (`sc.migration`).
"""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import dataclass

from sc.kv.interface import KV, ModRevisionIs, Put
from schemas.errors import ConflictError, DeadlineExceededError
from schemas.keys import ClusterKeys
from schemas.messages import Stamp


@dataclass(frozen=True, slots=True)
class Office:
    """What an SC in office knows: its stamp, and the compare that its writes carry."""

    cluster_uid: str
    stamp: Stamp
    guard: ModRevisionIs


async def take_office(kv: KV, keys: ClusterKeys) -> Office:
    """Become the SC in office. The uid of a new cluster is decided by a create-if-absent.

    Raises ConflictError when the cluster lives in another store.
    """
    here = [ModRevisionIs(keys.moved, 0), ModRevisionIs(keys.arriving, 0)]
    fresh = str(uuid.uuid4())
    await kv.txn(
        [*here, ModRevisionIs(keys.identity, 0)],
        [Put(keys.identity, json.dumps({"uid": fresh}).encode())],
    )
    office = secrets.token_hex(8)
    # Its own entry makes the transaction safe to repeat when an answer is lost.
    result = await kv.txn(
        [*here, ModRevisionIs(keys.office(office), 0)],
        [Put(keys.current_office, office.encode()), Put(keys.office(office), b"")],
    )
    revision = result.revision
    if not result.succeeded:
        await _check_here(kv, keys)
        entry = await kv.get(keys.office(office))
        if entry is None:
            raise DeadlineExceededError("taking office was interrupted; start the SC again")
        revision = entry.mod_revision
    identity = await kv.get(keys.identity)
    if identity is None:
        raise ConflictError(f"the identity of the cluster ({keys.identity}) was deleted")
    return Office(
        cluster_uid=str(json.loads(identity.value)["uid"]),
        stamp=Stamp(revision=revision, office=office),
        guard=ModRevisionIs(keys.current_office, revision),
    )


async def _check_here(kv: KV, keys: ClusterKeys) -> None:
    """Raise ConflictError when the cluster lives in another store."""
    if (moved := await kv.get(keys.moved)) is not None:
        to = json.loads(moved.value)["to"]
        raise ConflictError(
            f"cluster {keys.cluster!r} was moved to {to}: start the SC with `kv: {to}`"
        )
    if (arriving := await kv.get(keys.arriving)) is not None:
        source = json.loads(arriving.value)["from"]
        raise ConflictError(
            f"cluster {keys.cluster!r} is being moved here from {source}, and not all of it has"
            " arrived: repeat `runnel cluster migrate`"
        )
