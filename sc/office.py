"""Taking office: the cluster's identity, and the stamp that fences a deposed SC.

The first SC of a cluster gives it a uid. Every SC that takes office adds itself to a list that is
never shortened and writes itself as the current one; every write of its controllers compares that
key, so an SC that another one has replaced cannot change a status any more.
"""

from __future__ import annotations

import json
import secrets
import uuid
from dataclasses import dataclass

from sc.kv.interface import KV, ModRevisionIs, Put
from schemas.keys import ClusterKeys
from schemas.messages import Stamp


@dataclass(frozen=True, slots=True)
class Office:
    """What an SC in office knows: its stamp, and the compare that its writes carry."""

    cluster_uid: str
    stamp: Stamp
    guard: ModRevisionIs


async def take_office(kv: KV, keys: ClusterKeys) -> Office:
    """Become the SC in office. The uid of a new cluster is decided by a create-if-absent."""
    fresh = str(uuid.uuid4())
    identity = await kv.txn(
        [ModRevisionIs(keys.identity, 0)],
        [Put(keys.identity, json.dumps({"uid": fresh}).encode())],
    )
    cluster_uid = fresh
    if not identity.succeeded:
        found = await kv.get(keys.identity)
        if found is not None:
            cluster_uid = str(json.loads(found.value)["uid"])
    office = secrets.token_hex(8)
    result = await kv.txn(
        [], [Put(keys.current_office, office.encode()), Put(keys.office(office), b"")]
    )
    guard = ModRevisionIs(keys.current_office, result.revision)
    return Office(cluster_uid, Stamp(revision=result.revision, office=office), guard)
