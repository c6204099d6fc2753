"""Valid documents: records of ``_positions``, a log directory's own, messages, values in a KV."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from runnel.positions.state import (
    Closed,
    Committed,
    Forgotten,
    Opened,
    PositionsState,
    Reset,
    Update,
)
from runnel.state_log.fold import Entry, StateFold
from sc.store.codec import encode_object, encode_tombstone
from schemas.control.messages import (
    AssignPartitions,
    DeleteReplicas,
    Envelope,
    FindPeers,
    Heartbeat,
    Hello,
    Lead,
    LeadPartitions,
    LrsRequest,
    Message,
    Peer,
    Peers,
    ReplicaReport,
    Reply,
    SpuRequest,
    Tombstone,
)
from schemas.errors import TransactionIdTooLowError
from schemas.ids import StorageId
from schemas.objects.partition import LiveReplica
from spu.storage.data_dir import PartitionMeta
from tests.fuzz.document_targets import PLURALS
from tests.unit.sc.builders import TERM_1, group_of, live, partition_of, spu_of, topic_of
from tests.unit.spu.builders import (
    CLUSTER,
    NOW_US,
    STAMP,
    TERM,
    UID,
    assignment_of,
    settings_of,
)

_STORAGE: Final = StorageId("3f1c1a52-0000-4000-8000-0000000000bb")


def positions() -> list[bytes]:
    fold = StateFold(PositionsState())

    def appended(name: str, *updates: Update) -> bytes:
        value = fold.entry(name, updates).pack()
        fold.take(fold.position, Entry.unpack(value), len(value))
        return value + b"\n"

    opened = Opened("billing", "orders", UID, 2, "s1", "me", NOW_US, {0: 3})
    committed = Committed("billing", "orders", NOW_US, {0: 7, 1: 2})
    rest = appended("a", opened) + appended("b", committed, Closed("billing", "orders"))
    snapshot = fold.snapshot("c").pack() + b"\n"
    reset = Reset("billing", "orders", UID, 2, "me", NOW_US, {1: 0})
    rest += appended("d", reset, Opened("mail", "orders", UID, 1, "s2", "me", NOW_US, {}))
    rest += snapshot + appended("e", Forgotten("billing", "orders"))
    return [bytes([0]) + rest, bytes([2]) + snapshot + appended("f", committed)]


def data_dir() -> list[bytes]:
    identity = {"formatVersion": 1, "clusterUid": CLUSTER, "spuId": 1}
    run = {"boot": "b", "stopped": True}
    meta = PartitionMeta(CLUSTER, UID, _STORAGE, "orders-0", "orders", 0, settings_of())
    documents: list[list[dict[str, Any]]] = [
        [identity, run, meta.to_json()],
        [identity | {"clusterUid": None}, run | {"stopped": False}, meta.to_json()],
    ]
    return [b"\n".join(json.dumps(one).encode() for one in lines) for lines in documents]


def session() -> list[bytes]:
    me = LiveReplica(spu_id=1, storage_id=_STORAGE)
    report = ReplicaReport(uid=UID, storage_id=_STORAGE, lrs=(me,))
    lrs = LrsRequest(uid=UID, term=TERM, lrs=(me,), revision=7, reason="lost")
    tombstone = Tombstone(uid=UID, spu_id=1)
    error = TransactionIdTooLowError("below 9", last_transaction_id=9).to_json()
    bodies: list[Message] = [
        Hello(software="1", spu_id=1, instance="i", stamp=STAMP, replicas=(report,)),
        AssignPartitions(complete=True, assignments=(assignment_of(),), stamp=STAMP),
        LeadPartitions(leads=(Lead(uid=UID, term=TERM, lrs=(me,), revision=6),), stamp=STAMP),
        DeleteReplicas(tombstones=(tombstone,), stamp=STAMP),
        SpuRequest(lrs=(lrs,)),
        FindPeers(spu_ids=(2,)),
        Peers(peers=(Peer(spu_id=2, host="h", port=9006),)),
        Heartbeat(),
    ]
    envelopes = [Envelope(id=number, cause="c", body=body) for number, body in enumerate(bodies)]
    envelopes.append(Envelope(reply_to=3, cause="c", body=Reply(error=error)))
    return [one.encode().encode() for one in envelopes]


def stored() -> list[bytes]:
    objects = [
        spu_of(3, rack="a"),
        group_of("main"),
        topic_of(partitions=3, factor=2, deleting=True),
        partition_of("t", 2, (1, 2), leader=1, term=TERM_1, lrs=(live(1),), reason="why"),
    ]
    found = [
        bytes([PLURALS.index(one.PLURAL)]) + encode_object(one, "api-1", by="me", at="t")
        for one in objects
    ]
    tombstone = Tombstone(uid=UID, spu_id=1, storage_id=_STORAGE)
    return [*found, bytes([PLURALS.index("tombstones")]) + encode_tombstone(tombstone)]


def events() -> list[bytes]:
    stream = (
        b"event: added\nid: 7\ndata: {\ndata: }\n\n: still there\n\nevent:synced\r\ndata:1\r\n\r\n"
    )
    return [bytes([step]) + stream for step in (0, 9, 255)]


DOCUMENTS: Final[dict[str, Callable[[], list[bytes]]]] = {
    "positions": positions,
    "data_dir": data_dir,
    "session": session,
    "stored": stored,
    "events": events,
}
