"""Laws of recoveries and unclean elections: whatever happens before, during and after them.

What may not happen at a write is checked by the world, where the write lands: that an unclean
election was wished for at that very term while no live replica could lead, or that all have
answered and the one that holds most leads; and that nothing is deleted while the cluster recovers.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sc.controllers import reconcile
from sc.controllers.unclean import wish_of, with_wish
from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.ids import Term, next_election
from schemas.objects.partition import Partition, PartitionResolution, UncleanElection
from schemas.objects.topic import Topic
from tests.unit.sc.builders import DELETED_AT, TERM_1
from tests.unit.sc.controllers.test_replication_laws import (
    LAW,
    REPLICAS,
    Happenings,
    looked_at,
    replicated,
)
from tests.unit.sc.world import World


class Troubles(Happenings):
    """Everything else that happens, and what needs an operator."""

    def trouble(self) -> str:
        draw = self.data.draw
        choices = [self.session, self.wish, self.wish, self.power_cut, self.append, self.restored]
        return draw(st.sampled_from(choices))(draw(st.sampled_from(self.partitions())))

    def wish(self, partition: Partition) -> str:
        """An operator asks, with the term of now or another one."""
        draw, term = self.data.draw, partition.status.term
        seen = draw(st.sampled_from([term, term, term, TERM_1, next_election(term)]))
        wish = UncleanElection(term=Term(seen), leader=draw(st.sampled_from([None, 1, 2, 3, 4])))
        self.world.put(with_wish(partition, wish))
        return f"somebody asks for {wish}"

    def power_cut(self, partition: Partition) -> str:
        """Some lose power together; what they hold may be shorter."""
        spus = self.data.draw(st.sets(st.sampled_from(REPLICAS), min_size=1))
        for spu_id in spus:
            self.world.disconnect(spu_id)
            for found in self.partitions():
                replica = self.world.spus[spu_id].replicas[found.uid]
                self.world.change_replica(
                    spu_id,
                    found.uid,
                    role=ReplicaRole.IDLE,
                    fit=False,
                    unclean_boot=replica.fit or replica.unclean_boot,
                    leo=max(0, replica.leo - self.data.draw(st.integers(0, 2))),
                )
            self.world.connect(spu_id)
        return f"SPUs {spus} lost power"

    def append(self, partition: Partition) -> str:
        """A leader, of whatever term, writes."""
        spu_id = self.data.draw(st.sampled_from(REPLICAS))
        replica = self.world.spus[spu_id].replicas[partition.uid]
        if replica.role is not ReplicaRole.LEADER:
            return "nobody wrote"
        self.world.change_replica(
            spu_id, partition.uid, leo=replica.leo + 1, last_term=replica.term
        )
        return f"SPU {spu_id} wrote"

    def restored(self, _partition: Partition) -> str:
        """An SPU showed that the KV is the past."""
        for spu_id in REPLICAS:
            self.world.disconnect(spu_id)
        self.world.view.incarnation += 1
        self.world.view.recovering = True
        self.world.waiting.update(dict.fromkeys(self.world.all_keys()))
        return "the KV was restored"

    def end_recovery(self) -> None:
        """As the controller does, when nothing is left to elect."""
        view = self.world.view
        if view.recovering and not view.store.elected_before(view.incarnation):
            view.recovering = False
            self.world.waiting.update(dict.fromkeys(self.world.all_keys()))


def has_moved_away(partition: Partition, reports: list[ReplicaReport]) -> bool:
    """Whether all that is there is new and empty: an SPU that the KV does not know may hold it."""
    known = {member.storage_id for member in partition.status.lrs}
    empty = all((report.leo, report.last_term) == (0, 0) for report in reports)
    return empty and known.isdisjoint(report.storage_id for report in reports)


def came_to_rest(world: World, happened: list[str]) -> None:
    for key in world.all_keys():
        assert reconcile(world.view, key, world.now_ms) == (), happened
    for partition in world.store.objects(Partition):
        assert wish_of(partition) is None, "a wish was not answered"
        reports = [world.sessions[i].reports[partition.uid] for i in REPLICAS]
        able = all(report.may_lead_uncleanly for report in reports)
        if able and world.view.recovering and not has_moved_away(partition, reports):
            assert partition.status.incarnation == world.view.incarnation, happened
        if partition.status.resolution is PartitionResolution.ONLINE:
            leaders = [r for r in reports if r.role is ReplicaRole.LEADER]
            assert len(leaders) == 1, "another one leads on"


@LAW
@given(st.integers(1, 3), st.integers(1, 2), st.data())
def test_whatever_happens_wishes_are_answered_and_recoveries_elect_what_holds_most(
    minimum: int, partitions: int, data: st.DataObject
) -> None:
    world = replicated(minimum, partitions)
    troubles = Troubles(world, data)
    happened = []
    terms: dict[str, Term] = {}
    for _ in range(data.draw(st.integers(2, 14))):
        one = data.draw(st.sampled_from([troubles.one, troubles.trouble, troubles.trouble]))
        happened.append(one())
        looked_at(world, data, 6)
        troubles.end_recovery()
        for partition in troubles.partitions():
            assert partition.status.term >= terms.get(partition.name, TERM_1)
            terms[partition.name] = partition.status.term
    for spu_id in REPLICAS:
        if spu_id not in world.sessions:
            world.connect(spu_id)
    world.settle()
    troubles.end_recovery()
    world.settle()
    came_to_rest(world, happened)


def test_given_recovery_then_a_deletion_waits_for_its_end_and_does_not_keep_it_from_ending() -> (
    None
):
    world = replicated(1, 2)
    world.settle()
    world.view.incarnation, world.view.recovering = 1, True
    (topic,) = world.store.objects(Topic)
    world.put(topic.with_metadata(deletion_timestamp=DELETED_AT))
    world.full_pass()
    assert len(world.store.objects(Partition)) == 2
    assert all(partition.deleting for partition in world.store.objects(Partition))
    assert world.store.elected_before(1) == 0
    world.view.recovering = False
    world.full_pass()
    assert (world.store.objects(Partition), world.store.objects(Topic)) == ([], [])
    assert all(spu.replicas == {} for spu in world.spus.values())
