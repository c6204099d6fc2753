"""Random small worlds that the laws of the controllers are tried in."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from sc.store.local_store import LocalStore
from sc.store.view import Provisioned
from schemas.control.messages import (
    ElectionRequest,
    LrsRequest,
    ReplicaReport,
    ReplicaRole,
    SpuRequest,
)
from schemas.ids import PartitionUid, StorageId, make_term
from schemas.objects.metadata import Object
from schemas.objects.partition import LiveReplica, Partition, PartitionResolution
from schemas.objects.spu import Encryption, PublicEndpoint, Spu, SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupResolution, SpuGroupStatus, SpuTemplate
from schemas.objects.topic import Topic, TopicResolution
from tests.unit.sc.builders import (
    NO_TERM,
    TERM_1,
    group_of,
    live,
    member_of,
    partition_of,
    spu_of,
    tombstone_of,
    topic_of,
)
from tests.unit.sc.world import ModelSpu, World

CUSTOM_IDS = (1, 2, 3, 4)
#: Ids of groups overlap with those of custom SPUs and with one another.
GROUP_IDS = (4, 5, 6, 7)
SPU_IDS = (1, 2, 3, 4, 5, 6, 7)
GROUPS = ("east", "west")
TEMPLATES = (
    SpuTemplate(),
    SpuTemplate(rack="a"),
    SpuTemplate(public_endpoint=PublicEndpoint(port=65_530)),
    SpuTemplate(public_endpoint=PublicEndpoint(encryption=Encryption.TLS)),
)
COMPUTED = ("alpha", "beta")
MANUAL = ("gamma", "delta")


@dataclass(frozen=True)
class Wish:
    """What an SPU asks for of a partition, right or wrong: another live replica set, made from a
    revision and in a term that are mostly those of now, or another leader."""

    lrs: tuple[LiveReplica, ...] | None
    behind: int = 0
    terms_ahead: int = 0
    restarts: int = 1

    def ask(self, partition: Partition | None) -> SpuRequest:
        if partition is None:
            return SpuRequest()
        election = max(0, (partition.status.term >> 16) + self.terms_ahead)
        term, uid = make_term(0, election, self.restarts), PartitionUid(partition.uid)
        if self.lrs is None:
            return SpuRequest(
                elections=(ElectionRequest(uid=uid, term=term, reason="too few are live"),)
            )
        revision = partition.revision - self.behind
        change = LrsRequest(uid=uid, term=term, revision=revision, lrs=self.lrs, reason="asked")
        return SpuRequest(lrs=(change,))


@st.composite
def wishes(draw: st.DrawFn, members: tuple[LiveReplica, ...]) -> Wish:
    """Any set of these members, often all of them or all but one."""
    near = [members, *(tuple(m for m in members if m != one) for one in members)]
    some = st.lists(st.sampled_from(members or (live(1),)), max_size=4).map(tuple)
    return Wish(
        draw(st.none() | st.sampled_from(near) | some),
        behind=draw(st.sampled_from([0, 0, 0, 1])),
        terms_ahead=draw(st.sampled_from([0, 0, 0, -1, 1])),
        restarts=draw(st.sampled_from([0, 1, 7])),
    )


@dataclass(frozen=True)
class Setting:
    """How a random world is built: the same setting twice gives the same world twice."""

    spus: tuple[Spu, ...]
    groups: tuple[SpuGroup, ...]
    provisioned: tuple[tuple[str, Provisioned], ...]
    registered: frozenset[int]
    connected: frozenset[int]
    complete: frozenset[int]
    unfit: frozenset[int]
    wiped: frozenset[int]
    topics: tuple[Topic, ...]
    partitions: tuple[Partition, ...]
    holding: frozenset[tuple[int, str]]
    leading: frozenset[str]
    graves: tuple[tuple[int, str], ...]
    grace_until_ms: int
    #: Who asks for what, of partitions by name.
    asks: tuple[tuple[int, str, Wish], ...] = ()

    def build(self, order: random.Random | None = None) -> World:
        """The world; ``order`` shuffles in which order things came to be."""
        world = World(grace_until_ms=self.grace_until_ms)
        objects: list[Object] = [*self.spus, *self.groups, *self.topics, *self.partitions]
        spus = list(self.spus)
        world.provisioned.update(self.provisioned)
        if order is not None:
            order.shuffle(objects)
            order.shuffle(spus)
        # Revisions are part of what is reported: they follow the name and not the order.
        rank = {(o.kind, o.name): n for n, o in enumerate(sorted(objects, key=_name), 1)}
        for obj in objects:
            revision = rank[(obj.kind, obj.name)]
            world.store.put(obj.with_metadata(resource_version=str(revision)))
        world.store.revision = len(objects) + 1
        for spu in spus:
            spu_id = spu.spec.spu_id
            if spu_id in self.registered:
                world.registered[spu.name] = spu_id
            world.spus[spu_id] = self._spu(spu_id, world.store, order)
            if spu_id in self.connected:
                world.connect(spu_id, complete=spu_id in self.complete)
        for spu_id, name in self.graves:
            world.store.put_tombstone(tombstone_of(partition_of(name), spu_id))
        for spu_id, name, wish in self.asks:
            world.ask(spu_id, wish.ask(world.store.get(Partition, name)))
        world.waiting = dict.fromkeys(world.all_keys())
        return world

    def _spu(self, spu_id: int, store: LocalStore, order: random.Random | None) -> ModelSpu:
        spu = ModelSpu(spu_id, unfit=spu_id in self.unfit)
        partitions = list(self.partitions)
        if order is not None:
            order.shuffle(partitions)
        for partition in partitions:
            mirrored = store.get(Partition, partition.name)
            if (spu_id, partition.name) not in self.holding or mirrored is None:
                continue
            status, leads = partition.status, partition.name in self.leading
            storage = f"wiped-{spu_id}" if spu_id in self.wiped else f"storage-{spu_id}"
            leader = status.leader == spu_id and leads and spu_id not in self.wiped
            spu.replicas[partition.uid] = ReplicaReport(
                uid=partition.uid,
                storage_id=StorageId(storage),
                role=ReplicaRole.LEADER if leader else ReplicaRole.IDLE,
                term=status.term if leader else NO_TERM,
                revision=mirrored.revision,
                fit=spu_id not in self.unfit,
            )
        return spu


def _name(obj: Object) -> tuple[str, str]:
    return obj.kind, obj.name


@st.composite
def settings_of_worlds(draw: st.DrawFn, *, one_order: bool = False) -> Setting:
    """``one_order``: at most one topic is still to be placed, and nothing changes the load or
    the SPUs meanwhile, so that placement does not depend on what comes first."""
    ids = [i for i in CUSTOM_IDS if draw(st.integers(0, 3))]
    custom = [
        spu_of(
            i,
            draw(_resolutions()),
            rack=draw(st.sampled_from([None, "a", "b"])),
            observed=draw(st.sampled_from([0, 1])),
        )
        for i in sorted(ids)
    ]
    still = one_order and draw(st.booleans())
    groups, members = draw(_groups(frozenset(ids), still=still))
    spus = (*custom, *members)
    ids = [spu.spec.spu_id for spu in spus]
    some = st.frozensets(st.sampled_from(SPU_IDS))
    # Most SPUs are there in most worlds: little happens otherwise.
    registered = frozenset(i for i in ids if draw(st.integers(0, 4)))
    connected = frozenset(i for i in registered if draw(st.integers(0, 3)))
    if one_order:
        # Whether the heir of an id sees the last of its predecessor's session depends on it too.
        connected -= {s.spec.spu_id for s in members if _another_wants(s, groups)}
        groups = [_unreserved(group, spus) for group in groups]
    topics: list[Topic] = []
    partitions: list[Partition] = []
    placing = draw(st.sampled_from([*COMPUTED, None])) if one_order else None
    for name in COMPUTED + MANUAL:
        if not draw(st.booleans()):
            continue
        placed = one_order and name != placing and (name in COMPUTED or placing is not None)
        moving = one_order and not still
        topic, mine = draw(drawn_topic(name, placed=placed or moving, one_order=one_order))
        if moving and draw(st.integers(0, 3)) == 0:
            topic = topic.with_metadata(deletion_timestamp="now")
        topics.append(topic)
        partitions += mine
    holding = {(i, p.name) for p in partitions for i in p.spec.replicas if draw(st.booleans())}
    asks = []
    for partition in [] if one_order else partitions:
        # What its leader sees: those that are live, and its followers as most of them are.
        others = tuple(live(i) for i in partition.spec.replicas)
        known = tuple(dict.fromkeys((*partition.status.lrs, *others)))
        if draw(st.booleans()):
            asker = draw(st.sampled_from([partition.status.leader, *partition.spec.replicas]))
            asks.append((asker or 0, partition.name, draw(wishes(known))))
    graves = draw(st.lists(st.tuples(st.sampled_from(SPU_IDS), st.sampled_from("xy")), max_size=2))
    return Setting(
        spus=spus,
        groups=tuple(groups),
        provisioned=tuple(draw(_provisioned(members))),
        registered=registered,
        connected=connected,
        complete=draw(some),
        unfit=draw(some),
        wiped=draw(some),
        topics=tuple(topics),
        partitions=tuple(partitions),
        holding=frozenset(holding),
        leading=frozenset(p.name for p in partitions if draw(st.booleans())),
        graves=tuple(dict.fromkeys(graves)),
        grace_until_ms=draw(st.sampled_from([0, 5_000])),
        asks=tuple(asks),
    )


def _another_wants(spu: Spu, groups: list[SpuGroup]) -> bool:
    return any(
        group.spec.min_id <= spu.spec.spu_id <= group.spec.last_id
        for group in groups
        if group.name != spu.spec.group
    )


def _unreserved(group: SpuGroup, spus: tuple[Spu, ...]) -> SpuGroup:
    """No group was ever reserved while others had its ids: whether it sees them before they go
    would decide whether it stays so."""
    ids = range(group.spec.min_id, group.spec.last_id + 1)
    if all(s.spec.spu_id not in ids for s in spus if s.spec.group != group.name):
        return group
    return group.with_status(SpuGroupStatus())


def _resolutions() -> st.SearchStrategy[SpuResolution]:
    return st.sampled_from([r for r in SpuResolution if r is not SpuResolution.DRAINING])


@st.composite
def drawn_group(draw: st.DrawFn, name: str) -> SpuGroup:
    """A group that may be new, changed since it was reserved, invalid, or on its way out."""
    generation = draw(st.integers(1, 2))
    return group_of(
        name,
        draw(st.sampled_from(SpuGroupResolution)),
        replicas=draw(st.integers(0, 3)),
        min_id=draw(st.sampled_from(GROUP_IDS[:3])),
        # Mostly good ones.
        template=draw(st.sampled_from(TEMPLATES[:2] * 3 + TEMPLATES[2:])),
        deleting=draw(st.integers(0, 4)) == 0,
        created=draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])),
        generation=generation,
        observed=draw(st.integers(0, generation)),
    )


@st.composite
def _groups(
    draw: st.DrawFn, taken: frozenset[int], *, still: bool
) -> tuple[list[SpuGroup], list[Spu]]:
    """Groups and the SPUs that exist of them, each id once. ``still``: none of these will go, or
    move to another rack, by which topics are placed."""
    groups: list[SpuGroup] = []
    members: dict[int, Spu] = {}
    for name in GROUPS:
        if not draw(st.booleans()):
            continue
        group = draw(drawn_group(name))
        if still:
            group = group.with_metadata(deletion_timestamp=None)
        groups.append(group)
        mine = range(group.spec.min_id, group.spec.last_id + 1)
        for spu_id in GROUP_IDS:
            if spu_id in taken or spu_id in members or (still and spu_id not in mine):
                continue
            if draw(st.booleans()):
                # Made from the template as it is, or as it was before.
                now, before = group.spec.template, TEMPLATES[0]
                moves = still and before.rack != now.rack
                template = draw(st.sampled_from([now, now if moves else before]))
                spec = group.spec.model_copy(update={"template": template})
                maker = group.model_copy(update={"spec": spec})
                members[spu_id] = member_of(maker, spu_id, draw(_resolutions()))
    return groups, list(members.values())


@st.composite
def _provisioned(draw: st.DrawFn, members: list[Spu]) -> list[tuple[str, Provisioned]]:
    """Processes of some SPUs, by this spec or another, and of one whose object is gone."""
    found = []
    gone = member_of(group_of("gone"), 9)
    for spu in [*members, gone]:
        if draw(st.booleans()):
            old = spu.spec.model_copy(update={"rack": "old"})
            trouble = draw(st.sampled_from([None, None, "its process ended"]))
            found.append((spu.name, Provisioned(draw(st.sampled_from([spu.spec, old])), trouble)))
    return found


@st.composite
def drawn_topic(
    draw: st.DrawFn, name: str, *, placed: bool, one_order: bool
) -> tuple[Topic, list[Partition]]:
    manual = name in MANUAL
    count = draw(st.integers(1, 3))
    factor = draw(st.integers(1, 3))
    row = st.lists(st.sampled_from(SPU_IDS), min_size=factor, max_size=factor, unique=True)
    rows = {i: tuple(draw(row)) for i in range(count)}
    if manual and not placed and draw(st.integers(0, 4)) == 0:
        rows[count + 1] = (1,)
    deleting = not placed and draw(st.integers(0, 4)) == 0
    full = placed or (one_order and deleting)
    there = rows if full else {i: r for i, r in rows.items() if draw(st.booleans())}
    deleting = deleting and not (one_order and not manual)
    topic = topic_of(
        name,
        draw(st.sampled_from(list(TopicResolution))),
        partitions=None if manual else count,
        factor=None if manual else factor,
        rows=rows if manual else None,
        deleting=deleting,
        observed=draw(st.sampled_from([0, 1])),
        minimum=draw(st.sampled_from([None, *range(1, factor + 1)])),
    )
    partitions = []
    for index, replicas in there.items():
        leader = draw(st.sampled_from([None, replicas[0], replicas[-1]]))
        followers = [i for i in replicas if i != leader and draw(st.integers(0, 3))]
        if one_order:
            # Which of several leads depends on what else was decided before.
            followers = followers[:1]
        partitions.append(
            partition_of(
                topic,
                index,
                replicas,
                resolution=draw(
                    st.sampled_from([PartitionResolution.OFFLINE, PartitionResolution.ONLINE])
                ),
                leader=leader,
                term=NO_TERM if leader is None else TERM_1,
                lrs=() if leader is None else tuple(map(live, sorted([leader, *followers]))),
                deleting=deleting and not one_order and draw(st.booleans()),
            )
        )
    return topic, partitions
