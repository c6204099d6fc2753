"""What may happen to a random world from outside."""

from __future__ import annotations

from hypothesis import strategies as st

from schemas.control.messages import ReplicaRole
from schemas.ids import StorageId
from schemas.objects.partition import LiveReplica
from schemas.objects.spu import SpuResolution
from schemas.objects.spu_group import SpuGroup, SpuGroupStatus
from schemas.objects.topic import Topic
from tests.unit.sc.builders import spu_of
from tests.unit.sc.controllers.drawn_worlds import (
    COMPUTED,
    CUSTOM_IDS,
    GROUPS,
    MANUAL,
    SPU_IDS,
    drawn_group,
    drawn_topic,
    wishes,
)
from tests.unit.sc.world import World


class Events:
    """What may happen to a settled world; each says what it did."""

    def __init__(self, world: World, draw: st.DataObject) -> None:
        self.world = world
        self.data = draw

    def one(self) -> str:
        return self.data.draw(
            st.sampled_from(
                [
                    *(self.session, self.custom, self.topic, self.group, self.replica),
                    *(self.drain, self.resize),
                ]
            )
        )()

    def replica(self) -> str:
        """A leader, or one that takes itself for it, asks; a replica is damaged, or rebuilt."""
        world, draw = self.world, self.data.draw
        held = [(i, uid) for i, spu in sorted(world.spus.items()) for uid in sorted(spu.replicas)]
        if not held:
            return "nothing"
        spu_id, uid = draw(st.sampled_from(held))
        partition = world.store.partition_by_uid(uid)
        match draw(st.integers(0, 5)):
            case 0:
                world.change_replica(spu_id, uid, fit=False, role=ReplicaRole.STOPPED)
                return f"{uid} on {spu_id} unfit"
            case 1:
                storage = StorageId(f"rebuilt-{world.steps}")
                world.change_replica(
                    spu_id, uid, fit=True, storage_id=storage, role=ReplicaRole.FOLLOWER
                )
                return f"{uid} on {spu_id} rebuilt"
            case _ if partition is None:
                return "nothing"
            case _:
                reported = (
                    LiveReplica(spu_id=i, storage_id=world.spus[i].replicas[uid].storage_id)
                    for i in partition.spec.replicas
                    if i in world.spus and uid in world.spus[i].replicas
                )
                members = tuple(dict.fromkeys((*partition.status.lrs, *reported)))
                leader = partition.status.leader
                asker = leader if leader is not None and draw(st.integers(0, 3)) else spu_id
                wish = draw(wishes(members))
                world.ask(asker, wish.ask(partition))
                return f"{asker} asks {wish}"

    def session(self) -> str:
        world, draw = self.world, self.data.draw
        spu_id = draw(st.sampled_from(SPU_IDS))
        match draw(st.integers(0, 3)):
            case 0:
                world.connect(spu_id)
                return f"connect {spu_id}"
            case 1:
                world.disconnect(spu_id)
                return f"disconnect {spu_id}"
            case 2:
                # It came and went before anybody looked.
                world.disconnect(spu_id)
                world.connect(spu_id)
                return f"reconnect {spu_id}"
            case _ if world.provisioned:
                name = draw(st.sampled_from(sorted(world.provisioned)))
                why = draw(st.sampled_from([None, "its process ended"]))
                world.trouble(name, why)
                return f"trouble of {name}: {why}"
            case _:
                return "nothing"

    def custom(self) -> str:
        world = self.world
        spu_id = self.data.draw(st.sampled_from(CUSTOM_IDS))
        spu = world.store.spu(spu_id)
        if spu is None:
            world.put(spu_of(spu_id, SpuResolution.INIT, observed=0))
            return f"register {spu_id}"
        if spu.spec.group is None and not world.store.holds_replicas(spu_id):
            world.remove(spu)
            return f"delete SPU {spu_id}"
        return "nothing"

    def drain(self) -> str:
        """Somebody wants an SPU to be empty, or does not any more."""
        world = self.world
        spu = world.store.spu(self.data.draw(st.sampled_from(SPU_IDS)))
        if spu is None:
            return "nothing"
        spec = spu.spec.model_copy(update={"drain": None if spu.spec.drain else True})
        changed = spu.model_copy(update={"spec": spec})
        world.put(changed.with_metadata(generation=spu.generation + 1))
        return f"drain {spu.name}: {spec.drain}"

    def resize(self) -> str:
        """A topic is to have more or fewer replicas, or others."""
        world, draw = self.world, self.data.draw
        name = draw(st.sampled_from(COMPUTED + MANUAL))
        topic = world.store.get(Topic, name)
        if topic is None or topic.deleting:
            return "nothing"
        factor = draw(st.integers(1, 4))
        if (rows := topic.spec.assignment) is None:
            more: dict[str, object] = {"replication_factor": factor}
        else:
            ids = draw(st.permutations(SPU_IDS))
            more = {
                "assignment": tuple(
                    row.model_copy(update={"replicas": tuple(ids[i : i + min(factor, 3)])})
                    for i, row in enumerate(rows)
                )
            }
        more["min_in_sync_replicas"] = draw(st.sampled_from([None, 1, min(factor, 3)]))
        changed = topic.model_copy(update={"spec": topic.spec.model_copy(update=more)})
        world.put(changed.with_metadata(generation=topic.generation + 1))
        return f"resize {name}: {more}"

    def topic(self) -> str:
        world, draw = self.world, self.data.draw
        name = draw(st.sampled_from(COMPUTED + MANUAL))
        topic = world.store.get(Topic, name)
        match draw(st.integers(0, 1)):
            case _ if topic is None:
                world.put(draw(drawn_topic(name, placed=False, one_order=False))[0])
                return f"create {name}"
            case 0 if not topic.deleting:
                world.put(topic.with_metadata(deletion_timestamp="now"))
                return f"delete {name}"
            case 1 if topic.spec.partitions is not None:
                more = {"partitions": topic.spec.partitions + 1}
                changed = topic.model_copy(update={"spec": topic.spec.model_copy(update=more)})
                world.put(changed.with_metadata(generation=topic.generation + 1))
                return f"grow {name}"
            case _:
                return "nothing"

    def group(self) -> str:
        world, draw = self.world, self.data.draw
        name = draw(st.sampled_from(GROUPS))
        group, other = world.store.get(SpuGroup, name), draw(drawn_group(name))
        if group is None:
            new = other.with_metadata(generation=1, deletion_timestamp=None)
            world.put(new.with_status(SpuGroupStatus()))
            return f"create {name}"
        if group.deleting:
            return "nothing"
        if draw(st.integers(0, 3)) == 0:
            world.put(group.with_metadata(deletion_timestamp="now"))
            return f"delete {name}"
        changed = group.model_copy(update={"spec": other.spec})
        world.put(changed.with_metadata(generation=group.generation + 1))
        return f"change {name}"
