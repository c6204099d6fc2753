"""What the SC and an SPU say to each other over their session.

One WebSocket per SPU, JSON text messages. Each is an `Envelope`; requests carry an ``id`` that
the reply repeats in ``reply_to``. Every envelope carries the causality id of what led to it.

The conversation: the SPU says who it is (`Identify`), the SC answers with a `Challenge`, the SPU
proves its identity (`Prove`) and sends its state: a `Hello`, and `HelloPart` for replicas that do
not fit into that; the SC answers with `Welcome`. Instead of any answer it may send `Reject` and
close. An SPU of an older version, which offers neither `PARTS_PROTOCOL` nor `IDENTIFY_PROTOCOL`,
begins with `Hello`, and one that meets an older SC does so as well.
Then the SC sends the complete `AssignPartitions` of the SPU, `LeadPartitions` for those that it
leads and `DeleteReplicas` for tombstones. The SPU sends `Report` whenever a replica's state
changes, `SpuRequest` when a leader needs another live replica set or another leader, and
`FindPeers` when it does not know how to reach another SPU.
Messages are batched per SPU. Either side may start a request; both send `Heartbeat`, an SPU sends
`Statistics` and the SC `Controllers`, which need no reply.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from schemas.control.statistics import Statistics
from schemas.ids import PartitionUid, StorageId, Term
from schemas.model import CaselessEnum, Model
from schemas.objects.partition import LiveReplica
from schemas.objects.quantities import shortened
from schemas.objects.topic import SharedLogSettings

SESSION_VERSION: Final = 1
MIN_SESSION_VERSION: Final = 1
#: The WebSocket subprotocol of an SPU that identifies itself before it sends its state.
IDENTIFY_PROTOCOL: Final = "runnel.session.identify"
#: That of one which also never sends a large message (`schemas.control.parts`). It may send a
#: `Report` or `SpuRequest` in parts to any SC: each part is complete in itself.
PARTS_PROTOCOL: Final = "runnel.session.parts"
#: That of one which also reports what keeps records from being committed. An SC that does not
#: select it is of an older version, and refuses reports with fields that it does not know.
OBSTACLES_PROTOCOL: Final = "runnel.session.obstacles"
#: That of one which also tells what it counts (`schemas.control.statistics`).
STATISTICS_PROTOCOL: Final = "runnel.session.statistics"
#: That of one which also tells how long its appends and fsyncs take. An SC that does not select it
#: is of an older version, and refuses statistics with fields that it does not know.
LATENCIES_PROTOCOL: Final = "runnel.session.latencies"
#: That of one which also keeps what no archive holds yet. An older one is told to keep everything.
ARCHIVE_PROTOCOL: Final = "runnel.session.archive"
#: That of one which also seals logs. An SC that does not select it is of an older version, and
#: refuses reports with fields that it does not know; an older SPU is not told to seal anything.
SEAL_PROTOCOL: Final = "runnel.session.seal"
#: That of one which also measures the load of segments. An older one is told no limits.
LOAD_PROTOCOL: Final = "runnel.session.load"
#: That of one which also knows that a cluster may have several SCs: which of them leads, and where
#: the others are. An older one is told neither.
CONTROLLERS_PROTOCOL: Final = "runnel.session.controllers"
#: That of one which also tells which unclean election its disk knows of.
UNCLEAN_PROTOCOL: Final = "runnel.session.unclean"
#: That of one which is also told of SCs that start while its session lasts.
NEWCOMERS_PROTOCOL: Final = "runnel.session.newcomers"
#: What an SPU offers, the newest first: each end that knows one knows those after it.
PROTOCOLS: Final = (
    *(NEWCOMERS_PROTOCOL, UNCLEAN_PROTOCOL, CONTROLLERS_PROTOCOL, LOAD_PROTOCOL),
    *(SEAL_PROTOCOL, ARCHIVE_PROTOCOL, LATENCIES_PROTOCOL, STATISTICS_PROTOCOL),
    *(OBSTACLES_PROTOCOL, PARTS_PROTOCOL, IDENTIFY_PROTOCOL),
)
#: Peers that a report says are unreachable, and characters of the reason and of the host.
MAX_UNREACHABLE: Final = 64
MAX_REASON: Final = 200
MAX_HOST: Final = 255
#: Partitions that a report says are stalled.
MAX_STALLED: Final = 10_000
#: The reason of an `ElectionRequest` of an SPU that was asked to stop: soon it is gone.
STOPS: Final = "its SPU stops"


class ReplicaRole(CaselessEnum):
    """What a replica is doing: nothing yet, leading, following its leader, or stopped for a reason
    it reports."""

    IDLE = "idle"
    LEADER = "leader"
    FOLLOWER = "follower"
    STOPPED = "stopped"


class Stamp(Model):
    """Which SC sent something: the KV revision at which it became the leader, and a random id.

    ``incarnation`` grows with each recovery of the cluster from a KV that was restored from a
    backup; revisions of different incarnations do not compare.
    """

    revision: int
    office: str
    incarnation: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """The order of stamps: an SC that led later has a higher one."""
        return self.incarnation, self.revision


class LoadReport(Model):
    """What the load of a segment asks for: to be split into ``parts``, two or more, or, with 0, to
    be merged with others. It stands until the leader says something else."""

    parts: int = Field(ge=0)

    @property
    def is_hot(self) -> bool:
        return self.parts > 0


class ReplicaReport(Model):
    """The state of one replica as its SPU sees it.

    ``term`` is the full term (with restarts) of the last leadership the replica's disk holds, 0 for
    none; ``revision`` the newest KV revision of its partition that it knows, and ``incarnation``
    that of the stamp it came with; ``leo`` where its log ends, and ``last_term`` the term of the
    last record, as far as the log is as durable as the topic asks for: what is beyond that may be
    gone when this replica leads. An unfit replica never leads; ``reason`` says why.
    ``unclean_boot``: it is unfit for the only reason that the host lost its memory while the log
    was not fsynced. It reports what it has, and it leads when an unclean election chooses it.
    ``old``: it is unfit for the only reason that its disk lacks what others know to have been on
    it; only an operator's unclean election may choose it. ``sealed``: the offset after the last
    record of a log that is sealed, once that is committed; for an SC that has selected
    `SEAL_PROTOCOL`. ``load``: what the load of a segment asks for that this SPU leads; for an SC
    that has selected `LOAD_PROTOCOL`. ``unclean_term``: the last term that an unclean election
    began, as far as this replica was told; for an SC that has selected `UNCLEAN_PROTOCOL`.
    """

    uid: PartitionUid
    storage_id: StorageId
    role: ReplicaRole = ReplicaRole.IDLE
    term: Term = Term(0)
    revision: int = 0
    incarnation: int = 0
    lrs: tuple[LiveReplica, ...] = ()
    log_start: int = 0
    leo: int = 0
    last_term: Term = Term(0)
    fit: bool = True
    unclean_boot: bool = False
    old: bool | None = None
    assigned: bool = True
    reason: str | None = None
    sealed: int | None = None
    load: LoadReport | None = None
    unclean_term: Term | None = None

    @property
    def may_lead_uncleanly(self) -> bool:
        """Whether an election that is recorded as unclean may choose it."""
        return self.fit or self.unclean_boot or bool(self.old)


class Identify(Model):
    """SPU → SC, first message: who it is, and a nonce. ``instance`` is random per process: it
    distinguishes two processes of one SPU id."""

    type: Literal["identify"] = "identify"
    min_version: int = MIN_SESSION_VERSION
    max_version: int = SESSION_VERSION
    software: str
    spu_id: int
    instance: str
    cluster_uid: str | None = None
    nonce: str


class Challenge(Model):
    """SC → SPU: prove it. With the cluster and both nonces each end knows what is proven, an
    `schemas.control.proof.Exchange`."""

    type: Literal["challenge"] = "challenge"
    cluster_uid: str
    nonce: str


class Prove(Model):
    """SPU → SC: the proof; None of an SPU without a secret."""

    type: Literal["prove"] = "prove"
    proof: str | None = None


class Hello(Model):
    """SPU → SC: its state. ``free_bytes`` is the free space of its disk; None where it is not
    known. So many `HelloPart` follow as ``more`` says. ``seals``: it seals logs when it is told to;
    for an SC that has selected `SEAL_PROTOCOL`."""

    type: Literal["hello"] = "hello"
    min_version: int = MIN_SESSION_VERSION
    max_version: int = SESSION_VERSION
    software: str
    spu_id: int
    instance: str
    cluster_uid: str | None = None
    kv_revision: int = 0
    stamp: Stamp | None = None
    free_bytes: int | None = None
    replicas: tuple[ReplicaReport, ...] = ()
    more: int | None = None
    seals: bool | None = None


class HelloPart(Model):
    """SPU → SC: more replicas, which belong to the hello before."""

    type: Literal["helloPart"] = "helloPart"
    replicas: tuple[ReplicaReport, ...]


class Welcome(Model):
    """SC → SPU: accepted. ``generation`` counts this SPU's connections. ``proof`` is the SC's, for
    an SPU that has proven itself. ``controllers``: the private addresses of all SCs that run, for
    an SPU that has selected `CONTROLLERS_PROTOCOL`."""

    type: Literal["welcome"] = "welcome"
    version: int
    cluster: str
    cluster_uid: str
    generation: int
    heartbeat_ms: int
    misses: int
    stamp: Stamp
    proof: str | None = None
    controllers: tuple[str, ...] | None = None


class Controllers(Model):
    """SC → SPU, without a reply: the private addresses of all SCs that run, among them some that
    the welcome did not name. For an SPU that has selected `NEWCOMERS_PROTOCOL`."""

    type: Literal["controllers"] = "controllers"
    addresses: tuple[str, ...]


class Reject(Model):
    """SC → SPU: not accepted, and why; the connection closes. ``leader``: the private address of
    the SC that leads, if this one knows it and the SPU has selected `CONTROLLERS_PROTOCOL`."""

    type: Literal["reject"] = "reject"
    code: str
    message: str
    leader: str | None = None


class Heartbeat(Model):
    type: Literal["heartbeat"] = "heartbeat"


class Assignment(Model):
    """A replica that the SPU is to hold, as of one KV revision of its partition.

    ``leader``, ``term`` and ``lrs`` all come from that revision. An SPU ignores an assignment that
    is older, by (incarnation of the stamp, revision), than the one it knows. An assignment without
    a leader ends every leadership of an earlier incarnation: while a cluster recovers, the SPU
    answers with the report that it knows this assignment, and its log must not grow by itself
    after that. ``unclean_term`` is the last term that an unclean election began: only for a leader
    of that term or a later one may a replica discard records that were committed before it.
    Records below ``truncate_before`` are to be removed, as far as they are committed. Where
    ``archived_before`` is given, retention removes only records below it. ``sealed``: the log is to
    take no more records, for good.
    """

    uid: PartitionUid
    name: str
    topic: str
    index: int
    replicas: tuple[int, ...]
    log: SharedLogSettings
    leader: int | None = None
    term: Term = Term(0)
    lrs: tuple[LiveReplica, ...] = ()
    unclean_term: Term | None = None
    truncate_before: int = 0
    archived_before: int | None = None
    sealed: bool | None = None
    revision: int


class AssignPartitions(Model):
    """SC → SPU request. ``complete``: these are all replicas that the SPU is to hold."""

    type: Literal["assign"] = "assign"
    complete: bool = False
    assignments: tuple[Assignment, ...] = ()
    removed: tuple[PartitionUid, ...] = ()
    stamp: Stamp


class Lead(Model):
    """Become the leader of a partition at an election term. If that is ``unclean_term``, this makes
    a replica fit that is unfit only because of an unclean boot."""

    uid: PartitionUid
    term: Term
    lrs: tuple[LiveReplica, ...]
    unclean_term: Term | None = None
    revision: int


class LeadPartitions(Model):
    """SC → SPU request."""

    type: Literal["lead"] = "lead"
    leads: tuple[Lead, ...]
    stamp: Stamp


class Tombstone(Model):
    """Permission to delete a replica; ``storage_id`` None covers every storage of that uid."""

    uid: PartitionUid
    spu_id: int
    storage_id: StorageId | None = None


class DeleteReplicas(Model):
    """SC → SPU request."""

    type: Literal["delete"] = "delete"
    tombstones: tuple[Tombstone, ...]
    stamp: Stamp


class UnreachablePeer(Model):
    """An SPU that another one has to connect to and cannot, where it tried, and why."""

    spu_id: int
    host: str = Field(max_length=MAX_HOST)
    port: int
    reason: str = Field(max_length=MAX_REASON)


class Obstacles(Model):
    """What an SPU sees that keeps records from being committed: all of it, each time.

    ``stalled`` are the partitions that it leads and has committed nothing of for a while, although
    records wait.
    """

    unreachable: tuple[UnreachablePeer, ...] = Field(default=(), max_length=MAX_UNREACHABLE)
    stalled: tuple[PartitionUid, ...] = Field(default=(), max_length=MAX_STALLED)


class Report(Model):
    """SPU → SC request: replicas whose state changed, deletions that are done, and the free space
    of its disk and the obstacles if they changed. ``obstacles`` is for an SC that has selected
    `OBSTACLES_PROTOCOL` or a later one."""

    type: Literal["report"] = "report"
    replicas: tuple[ReplicaReport, ...] = ()
    deleted: tuple[Tombstone, ...] = ()
    free_bytes: int | None = None
    obstacles: Obstacles | None = None


class LrsRequest(Model):
    """A leader needs another live replica set: ``lrs`` in place of the one of ``revision``.

    ``term`` is its full term. If the partition is still at that revision and this SPU leads it at
    that election term, the answer is a later revision: with the change, or without it and with the
    reason in its status. Otherwise a later revision exists already, and is the only answer.
    """

    uid: PartitionUid
    term: Term
    revision: int
    lrs: tuple[LiveReplica, ...]
    reason: str


class ElectionRequest(Model):
    """A leader, or an SPU that was told to lead, asks for another leader; ``term`` is its full
    term. It continues to lead if no other SPU can."""

    uid: PartitionUid
    term: Term
    reason: str


class SpuRequest(Model):
    """SPU → SC request: what its replicas ask for as leaders. The reply only confirms receipt."""

    type: Literal["ask"] = "ask"
    lrs: tuple[LrsRequest, ...] = ()
    elections: tuple[ElectionRequest, ...] = ()


class FindPeers(Model):
    """SPU → SC request: where do these SPUs listen for other SPUs? `Peers` follows."""

    type: Literal["findPeers"] = "findPeers"
    spu_ids: tuple[int, ...]


class Peer(Model):
    """Where an SPU listens for other SPUs. ``key`` is known to the two SPUs alone; the SC gives it
    if both have proven who they are, and then each accepts the other only with a proof."""

    spu_id: int
    host: str
    port: int
    key: str | None = None


class Peers(Model):
    """SC → SPU request: the answer to `FindPeers`. SPUs that are not registered are left out."""

    type: Literal["peers"] = "peers"
    peers: tuple[Peer, ...]


class Reply(Model):
    """The answer to any request; ``error`` is a `RunnelError` as JSON."""

    type: Literal["reply"] = "reply"
    error: dict[str, Any] | None = None


Message = Annotated[
    Identify
    | Challenge
    | Prove
    | Hello
    | HelloPart
    | Welcome
    | Controllers
    | Reject
    | Heartbeat
    | AssignPartitions
    | LeadPartitions
    | DeleteReplicas
    | Report
    | SpuRequest
    | FindPeers
    | Peers
    | Statistics
    | Reply,
    Field(discriminator="type"),
]


class Envelope(Model):
    """One message on the session. ``id`` is set where a reply is expected."""

    id: int | None = None
    reply_to: int | None = None
    cause: str
    body: Message

    def encode(self) -> str:
        return self.model_dump_json(by_alias=True, exclude_none=True)


def understands(protocol: str | None, needed: str) -> bool:
    """Whether an end that selected ``protocol`` knows what came with ``needed``, one of
    `PROTOCOLS`; an older one selected none."""
    return protocol in PROTOCOLS[: PROTOCOLS.index(needed) + 1]


#: More than this are only counted: to describe each takes time.
_MAX_EXPLAINED: Final = 1_000

_ENVELOPE: Final[TypeAdapter[Envelope]] = TypeAdapter(Envelope)


def misread(error: ValidationError) -> str:
    """Why a message did not parse, in a few words, however much is wrong with it."""
    count = error.error_count()
    if count > _MAX_EXPLAINED:
        return f"{count} things are wrong"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return shortened(f"{where}: {first['msg']}" if where else first["msg"], 200)


def decode_envelope(text: str | bytes) -> Envelope:
    """Parse one message. Raises pydantic.ValidationError."""
    return _ENVELOPE.validate_json(text)
