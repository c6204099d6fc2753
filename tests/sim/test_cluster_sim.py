"""Lives of whole clusters in virtual time, and the deliberate bugs that they must show.

``RUNNEL_SIM_SEEDS`` and ``RUNNEL_SIM_SEED`` choose how many lives, and which one is the first;
`python -m tests.sim.cluster` lives as many as wanted. Where a change of the code makes other things
happen in the same seed, ``python -m tests.sim.cluster --bug NAME`` finds a new one for `FOUND`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from schemas.control.messages import Hello, Message
from schemas.objects.partition import DesiredState, PartitionStatus
from tests.sim import mutants as core
from tests.sim.cluster.__main__ import main
from tests.sim.cluster.clients import Refusal, SimProducer, header_of
from tests.sim.cluster.faults import (
    BESIDE_MOVES,
    KINDS,
    MOVES,
    OLD_DISKS,
    SEALS,
    STALLS,
    SUCCESSIONS,
)
from tests.sim.cluster.layout import Layout, Plan
from tests.sim.cluster.ledger import ViolationError
from tests.sim.cluster.mutants import CORE, MUTANTS, Mutant
from tests.sim.cluster.network import SC
from tests.sim.cluster.sc import SimSc, restored
from tests.sim.cluster.session import Session
from tests.sim.cluster.spu import SimSpu
from tests.sim.cluster.world import FailureError, World, run
from tests.unit.spu.replication import test_proof

Admit = Callable[[SimSc, int, Hello], None]
Handle = Callable[[SimSpu, Session, Message], None]

FIRST: Final = int(os.environ.get("RUNNEL_SIM_SEED", "0"))
SEEDS: Final = int(os.environ.get("RUNNEL_SIM_SEEDS", "60"))
CHUNKS: Final = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_lives(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST + chunk, FIRST + SEEDS, CHUNKS):
        counts.update(run(seed).counts)
    assert counts["acknowledged"] > 0 or SEEDS < CHUNKS


@pytest.mark.slow
def test_more_lives_see_everything_that_can_happen() -> None:
    counts: Counter[str] = Counter()
    for seed in range(100_000, 100_350):
        counts.update(run(seed).counts)
    kinds = (*KINDS, STALLS, SUCCESSIONS, OLD_DISKS, SEALS, MOVES)
    assert {f"fault: {kind}" for kind in kinds} <= set(counts)
    assert {f"moves beside: {kind}" for kind in BESIDE_MOVES} <= set(counts)
    rare = ("cuts", "rebuilds", "duplicates", "crashes that lost records", "writes of deposed SCs")
    often = ("leader changes", "live set changes", "seals", "sealed", "moves that ended")
    assert min(counts[kind] for kind in (*rare, *often)) > 10
    assert counts["partitions without a fit live replica"] < counts["partitions"] * 0.03


#: A life that shows each of the deliberate bugs. Without the bug all is well in it.
FOUND: Final = {
    "a restarted leader keeps its term": 1,
    "a position counts before the cut": 2,
    "a follower acknowledges before it synced": 0,
    "a leader counts itself before it synced": 0,
    "a last add confirmed is adopted before the cut": 3,
    "a repaired replica keeps its storage id": 2,
    "live replicas and term come of different revisions": 0,
    "a damaged follower names a term that it does not know": 53,
    "an old live replica is told to discard its log": 18,
    "a log that parts below the beginning of the leader's is to be cut": 2618,
    "a change is granted without the revision check": 3,
    "offline members leave below the minimum": 3,
    "the leader leaves the live replicas": 0,
    "an unfit member leads where those that are fit are away": 159,
    "an election adds a replica": 17,
    "a duplicate is answered before it is committed": 0,
    "a producer is answered before the commit": 0,
    "what is not synced counts as durable": 0,
    "what is not synced is reported": 60_005_821,
    "what was recovered and not synced counts as durable": 158,
    "a restored KV is not noticed": 92,
    "terms of a restored KV begin where the backup ends": 31,
    "a replaced disk keeps its seat": 17,
    "a reader is given what is not committed": 0,
    "a log counts as sealed before that is committed": 1,
    "a follower takes a seal for any record": 137,
    "records follow a seal": 1,
    "a move ends while those that leave are live": 0,
    "those that leave go before others are live": 0,
}
#: What few lives come upon has a test of its own below: the next seed that shows it may be far.
SCRIPTED: Final = {
    "a disk that forgot a term leads in it again",
    "an SC speaks on when its lease is over",
    "a deposed SC writes on, over what others wrote",
    "producers are not rolled back by a cut",
    "a sync from before a cut counts after it",
    "a replica that begins anew knows no producers",
    "what a complete list leaves out is deleted",
    "a log begins behind its seal",
    "a leader without the SC knows which replicas are live",
    "a leader without the SC hears of no later holders",
    "a hello that came late takes the place of a newer one",
}
#: So many lives from the pinned one on are tried: changes elsewhere move what happens in a life.
NEAR: Final = 30


def test_every_deliberate_bug_has_a_test() -> None:
    assert {*FOUND} | SCRIPTED == {*MUTANTS, *CORE}


@pytest.mark.parametrize(
    ("bug", "seed"), [pytest.param(bug, seed, id=bug) for bug, seed in FOUND.items()]
)
def test_given_a_deliberate_bug_then_a_life_shows_it(bug: str, seed: int) -> None:
    broken = MUTANTS[bug] if bug in MUTANTS else core.MUTANTS[bug]
    found = next((life for life in range(seed, seed + NEAR) if fails(life, broken)), None)
    assert found is not None
    run(found)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(4_005_359, id="given-an-unclean-election-and-a-lost-object"),
        pytest.param(5_008_618, id="given-an-old-disk-that-knows-fewer-live-replicas"),
        pytest.param(5_001_427, id="given-a-session-that-begins-within-a-cut"),
        pytest.param(4_000_576, id="given-a-new-replica-in-the-place-of-one-that-left"),
        pytest.param(20_009_224, id="given-a-slow-disk-at-the-end-of-a-session"),
        pytest.param(50_016_191, id="given-one-that-has-left-and-knows-more-than-was-kept"),
        pytest.param(600_236, id="given-a-replica-that-a-restored-kv-forgot"),
        pytest.param(60_009_782, id="given-an-old-disk-of-before-a-move"),
        pytest.param(64_000_711, id="given-a-session-that-the-spu-never-began"),
        pytest.param(76_002_652, id="given-a-hello-that-came-after-a-newer-one"),
    ],
)
def test_lives_that_once_ended_badly(seed: int) -> None:
    run(seed)


def fails(seed: int, broken: Mutant) -> bool:
    """Whether a life with a deliberate bug shows a violation."""
    try:
        with broken():
            run(seed)
    except FailureError as error:
        if isinstance(error.__cause__, ViolationError):
            return True
        raise
    return False


def test_given_a_violation_then_it_tells_the_seed_what_happened_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bug = "a producer is answered before the commit"
    asked = ["--seeds", "3", "--seed", str(FOUND[bug]), "--bug", bug]
    assert main(asked) == 1
    told = capsys.readouterr()
    assert f"again: python -m tests.sim.cluster --seeds 1 --seed {FOUND[bug]}" in told.err
    assert "it is committed at None" in told.err
    assert told.err.count(" ms  SPU ") > 20
    assert "violations                                        1" in told.out


def test_given_no_violation_then_the_summary_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1"]) == 0
    assert "violations                                        0" in capsys.readouterr().out


def test_given_other_hash_seeds_then_the_same_lives() -> None:
    """Nothing depends on the process: a seed is all that it takes to see a life again."""
    program = "from tests.sim.cluster.world import run; print([run(s).digest for s in range(3)])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def three_replicas(seed: int = 0) -> World:
    """A cluster without faults, with a partition ``t-0`` that SPUs 1 to 3 hold, 1 before others."""
    world = World(seed, Layout((1, 2, 3), (Plan("t-0", (1, 2, 3), 2),)))
    world.faulty = False
    for spu in world.spus.values():
        spu.start()
    world.clock.run_until(2_000_000)
    return world


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stall_ms", [500, 800, 1_000, 3_000, 10_000])
def test_given_an_sc_that_stands_still_then_no_election_and_all_stay_live(
    stall_ms: int, seed: int
) -> None:
    world = three_replicas(seed)
    world.clock.run_until(6_000_000)
    before = elected_of(world)
    assert len(before.lrs) == 3
    assert world.sc.stall(stall_ms * 1_000)
    world.clock.run_until(6_000_000 + stall_ms * 1_000 + 5_000_000)
    assert elected_of(world) == before
    assert sorted(world.sc.sessions) == [1, 2, 3]


@pytest.mark.parametrize("stall_ms", [0, 1_000, 3_000])
def test_given_an_spu_that_dies_while_the_sc_stands_still_then_another_leads_soon_after(
    stall_ms: int,
) -> None:
    world = three_replicas(0)
    world.clock.run_until(6_000_000)
    before = elected_of(world)
    assert before.leader == 1
    if stall_ms:
        world.sc.stall(stall_ms * 1_000)
    world.spus[1].crash(power_fails=False)
    world.clock.run_until(6_000_000 + stall_ms * 1_000 + (2_000_000 if stall_ms else 300_000))
    assert elected_of(world).leader in (2, 3)


def elected_of(world: World) -> PartitionStatus:
    """Leader, term and live replicas, with no more than that."""
    partition = world.kv.partition("t-0")
    assert partition is not None
    found = partition.status
    return PartitionStatus(leader=found.leader, term=found.term, lrs=found.lrs)


def test_given_an_object_that_was_removed_then_old_reports_do_not_elect() -> None:
    """Life 12009 of an earlier version: SPU 1 was behind, and reported the same offset as the live
    replicas had reported long before, because no commit is reported. Its object was removed and put
    back, the tie went to the preferred leader, and what was committed since was lost."""
    world = three_replicas()
    world.spus[1].crash(power_fails=False)
    world.clock.run_until(5_000_000)
    world.network.blocked.update({(1, SC), (SC, 1)})
    world.spus[1].start()
    producer = SimProducer(world, "t-0", 1)
    producer.begin()
    world.clock.run_until(9_000_000)
    for peer in (2, 3):
        world.network.cut(1, peer, both=True)
    world.clock.run_until(10_500_000)
    world.network.heal(1, SC)
    world.clock.run_until(13_000_000)
    partition = world.kv.partition("t-0")
    assert partition is not None
    assert {member.spu_id for member in partition.status.lrs} == {2, 3}
    behind, ahead = (world.spus[i].replicas["t-0"].disk for i in (1, 2))
    assert 0 < behind.leo < ahead.leo
    world.kv.remove(partition)
    world.clock.run_until(13_100_000)
    world.kv.put(restored(partition))
    world.clock.run_until(20_000_000)
    elected = world.kv.partition("t-0")
    assert elected is not None
    assert elected.status.leader in (2, 3)


def sent_again_after_a_rebuild() -> list[int | None]:
    """What a producer is answered whose batch retention has dropped, by a leader that began anew
    behind that batch."""
    world = three_replicas()
    header, data = header_of(7, 0, 0, 1), b"7.0.0"
    world.ledgers["t-0"].headers[data] = header
    answers: list[int | None] = []
    leader = world.spus[1].replicas["t-0"]
    leader.produce(header, data, lambda base, _: answers.append(base))
    producer = SimProducer(world, "t-0", 1)
    producer.begin()
    world.clock.run_until(6_000_000)
    leader.retain(leader.disk.bases[-2])
    world.spus[2].crash(power_fails=True)
    world.spus[2].lose_disk()
    world.spus[2].start()
    world.clock.run_until(9_000_000)
    rebuilt = world.spus[2].replicas["t-0"]
    assert answers == [1]
    assert rebuilt.disk.first > 2
    world.spus[1].crash(power_fails=False)
    world.clock.run_until(15_000_000)
    rebuilt.produce(header, data, lambda base, _: answers.append(base))
    world.clock.run_until(16_000_000)
    return answers


def test_given_a_leader_that_began_anew_then_it_knows_producers_from_before() -> None:
    assert sent_again_after_a_rebuild() == [1, 1]
    with MUTANTS["a replica that begins anew knows no producers"](), pytest.raises(ViolationError):
        sent_again_after_a_rebuild()


def refusal_of(world: World) -> Refusal | None:
    """What the serving leader answers a producer."""
    replicas = [spu.replicas["t-0"] for spu in world.spus.values()]
    (leader,) = [one for one in replicas if one.state is not None and one.state.is_serving]
    answers: list[Refusal | None] = []
    leader.produce(header_of(7, 0, 0, 1), b"7.0.0", lambda _, why: answers.append(why))
    (answer,) = answers
    return answer


def sealed_and_emptied() -> list[int | None]:
    """Where a sealed log of which retention keeps nothing ends, before and after a restart of all
    its replicas."""
    world = three_replicas()
    producer = SimProducer(world, "t-0", 1)
    producer.begin()
    world.clock.run_until(6_000_000)
    found = world.kv.partition("t-0")
    assert found is not None
    spec = found.spec.model_copy(update={"desired": DesiredState.SEALED})
    world.kv.put(found.model_copy(update={"spec": spec}))
    world.clock.run_until(8_000_000)
    ends = []
    for until_us in (10_000_000, 20_000_000):
        sealed = world.kv.partition("t-0")
        assert sealed is not None
        ends.append(sealed.status.sealed_offset)
        for spu in world.spus.values():
            replica = spu.replicas["t-0"]
            replica.retain(replica.disk.leo)
            spu.crash(power_fails=False)
            spu.start()
        world.clock.run_until(until_us)
        assert refusal_of(world) is Refusal.SEALED
    return ends


def test_given_a_sealed_log_without_records_then_it_stays_sealed_where_it_was() -> None:
    first, later = sealed_and_emptied()
    assert first is not None
    assert first == later
    with (
        MUTANTS["a log begins behind its seal"](),
        pytest.raises((ViolationError, AssertionError)),
    ):
        sealed_and_emptied()


def connected_without_its_object() -> None:
    """All SPUs come back while a partition's object is gone, which is put back afterwards."""
    world = three_replicas()
    producer = SimProducer(world, "t-0", 1)
    producer.begin()
    world.clock.run_until(4_000_000)
    partition = world.kv.partition("t-0")
    assert partition is not None
    world.kv.remove(partition)
    for spu in world.spus.values():
        spu.crash(power_fails=False)
        spu.start()
    world.clock.run_until(7_000_000)
    assert world.ledgers["t-0"].end > 5
    world.kv.put(restored(partition))
    world.clock.run_until(12_000_000)
    elected = world.kv.partition("t-0")
    assert elected is not None
    assert elected.status.leader is not None


def test_given_one_ahead_that_may_be_live_by_now_then_a_leader_without_the_sc_waits() -> None:
    scene = test_proof.test_given_a_longer_log_and_no_word_of_the_sc_then_it_never_begins
    scene(ahead=2)
    bug = core.MUTANTS["a leader without the SC knows which replicas are live"]
    with bug(), pytest.raises(AssertionError):
        scene(ahead=2)


def test_given_one_that_knows_of_later_holders_then_a_leader_without_the_sc_waits_for_them() -> (
    None
):
    scene = test_proof.test_given_the_sc_has_not_spoken_then_holders_that_others_know_of_count
    scene((0, 3), (1, 3), begins=False)
    bug = core.MUTANTS["a leader without the SC hears of no later holders"]
    with bug(), pytest.raises(AssertionError):
        scene((0, 3), (1, 3), begins=False)


def test_given_a_complete_list_without_a_partition_then_its_replicas_are_kept() -> None:
    connected_without_its_object()
    with MUTANTS["what a complete list leaves out is deleted"](), pytest.raises(ViolationError):
        connected_without_its_object()


def written_by_a_deposed_sc() -> None:
    """The order of one SC that elects SPU 2 arrives after its successor has elected another."""
    world = three_replicas()
    deposed, on_their_way = world.sc, []
    deposed._write = lambda *write: on_their_way.append(write)  # type: ignore[method-assign]
    world.spus[1].crash(power_fails=False)
    world.clock.run_until(4_000_000)
    deposed.crash()
    world.spus[2].crash(power_fails=False)
    world.sc = SimSc(world)
    world.clock.run_until(20_000_000)
    successor = elected_of(world)
    assert successor.leader == 3
    for write in on_their_way:
        SimSc._write(deposed, *write)
    assert elected_of(world) == successor
    assert world.counts["writes of deposed SCs"] == len(on_their_way) > 0


def test_given_an_sc_that_was_replaced_then_what_it_still_writes_does_not_count() -> None:
    written_by_a_deposed_sc()
    bug = MUTANTS["a deposed SC writes on, over what others wrote"]
    with bug(), pytest.raises(ViolationError):
        written_by_a_deposed_sc()


def stood_still_for_longer_than_its_lease() -> World:
    """SPUs that left an SC which stood still had said hello to it again, before another one led."""
    world = three_replicas()
    before, status = world.sc, elected_of(world)
    before.stall(4_000_000)
    before.renews_no_more(1_200_000, is_cut_off=False)
    world.clock.run_until(world.clock.now_us + 1_500_000)
    world.sc = SimSc(world)
    world.clock.run_until(world.clock.now_us + 4_000_000)
    assert elected_of(world) == status
    return world


def test_given_an_sc_that_stood_still_for_longer_than_its_lease_then_it_says_nothing() -> None:
    assert sorted(stood_still_for_longer_than_its_lease().sc.sessions) == [1, 2, 3]
    bug = MUTANTS["an SC speaks on when its lease is over"]
    with bug(), pytest.raises(ViolationError, match="leads no more"):
        stood_still_for_longer_than_its_lease()


@pytest.mark.parametrize("seed", range(10))
def test_given_hellos_that_waited_for_an_sc_then_only_the_last_connection_is_obeyed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SC that stood still lets in each connection that an SPU has tried meanwhile, also those
    that it has given up since."""
    world = three_replicas(seed)
    admitted, obeyed = list[int](), list[tuple[int, Session | None, Session]]()

    def admit(sc: SimSc, attempt: int, hello: Hello, admit: Admit = SimSc.admit) -> None:
        admitted.append(hello.spu_id)
        admit(sc, attempt, hello)

    def handle(spu: SimSpu, session: Session, message: Message, do: Handle = SimSpu.handle) -> None:
        obeyed.append((spu.id, spu.session, session))
        do(spu, session, message)

    monkeypatch.setattr(SimSc, "admit", admit)
    monkeypatch.setattr(SimSpu, "handle", handle)
    assert world.sc.stall(6_000_000)
    world.clock.run_until(world.clock.now_us + 8_000_000)
    assert min(Counter(admitted).values()) > 1
    assert {spu for spu, _, _ in obeyed} == {1, 2, 3}
    assert all(own is session for _, own, session in obeyed)


def said_hello_late() -> None:
    """The hello of a connection that SPU 3 gave up arrives when it is let in on a newer one. In
    between its replica has begun anew, and is one of the two that are live."""
    world = three_replicas()
    spu = world.spus[3]
    attempt, hello = spu._attempt, spu._hello()
    old = [report.model_copy(update={"storage_id": "s-old"}) for report in hello.replicas]
    world.sc.sessions[3].breaks()
    world.spus[2].crash(power_fails=False)
    world.clock.run_until(8_000_000)
    before, session = elected_of(world), world.sc.sessions[3]
    assert [member.spu_id for member in before.lrs] == [1, 3]
    world.sc.admit(attempt, hello.model_copy(update={"replicas": tuple(old)}))
    world.clock.run_until(10_000_000)
    assert elected_of(world).lrs == before.lrs
    assert world.sc.sessions[3] is session


def test_given_a_hello_that_comes_after_a_newer_one_then_what_it_says_does_not_count() -> None:
    said_hello_late()
    bug = MUTANTS["a hello that came late takes the place of a newer one"]
    with bug(), pytest.raises(ViolationError, match="the minimum is 2"):
        said_hello_late()


def led_by_an_old_disk() -> bool:
    """Whether SPU 2 leads in the same term again after an old copy of its files, of before it led,
    was put back while nobody else was there: no follower has promised it that term."""
    world = three_replicas()
    copy = world.spus[2].copied()
    for spu, until_us in ((3, 6_000_000), (1, 9_000_000)):
        world.spus[spu].crash(power_fails=False)
        world.clock.run_until(until_us)
    before = elected_of(world)
    assert (before.leader, [member.spu_id for member in before.lrs]) == (2, [1, 2])
    world.spus[2].crash(power_fails=False)
    world.spus[2].put_back(copy, ["t-0"])
    world.spus[2].start()
    world.clock.run_until(12_000_000)
    for spu in (1, 3):
        world.spus[spu].start()
    world.clock.run_until(20_000_000)
    after = elected_of(world)
    assert (after.leader, [member.spu_id for member in after.lrs]) == (2, [1, 2, 3])
    return after.term == before.term


def test_given_an_old_copy_of_the_leaders_files_then_nobody_leads_in_its_term_again() -> None:
    assert not led_by_an_old_disk()
    with MUTANTS["a disk that forgot a term leads in it again"]():
        assert led_by_an_old_disk()


def sent_again_after_a_cut() -> list[int | None]:
    """What a producer is answered that sends a batch again to a former leader, whose log had it
    and was cut, once that SPU leads again."""
    world = three_replicas()
    former = world.spus[1].replicas["t-0"]
    for peer in (2, 3, SC):
        world.network.cut(1, peer, both=True)
    world.sc.sessions[1].breaks()
    header, data = header_of(7, 0, 0, 1), b"7.0.0"
    world.ledgers["t-0"].headers[data] = header
    answers: list[int | None] = []
    former.produce(header, data, lambda base, _: answers.append(base))
    world.clock.run_until(8_000_000)
    assert elected_of(world).leader == 2
    for peer in (2, 3, SC):
        world.network.heal(1, peer)
    world.clock.run_until(14_000_000)
    assert world.counts["cuts"] == 1
    assert answers == [None]
    world.spus[2].crash(power_fails=False)
    world.clock.run_until(20_000_000)
    assert elected_of(world).leader == 1
    former.produce(header, data, lambda base, _: answers.append(base))
    world.clock.run_until(22_000_000)
    return answers


def test_given_a_batch_that_was_cut_then_it_is_appended_when_it_is_sent_again() -> None:
    refused, base = sent_again_after_a_cut()
    assert refused is None
    assert base is not None
    bug = MUTANTS["producers are not rolled back by a cut"]
    with bug(), pytest.raises(ViolationError):
        sent_again_after_a_cut()


def cut_during_a_sync() -> None:
    """A former leader is cut while a sync of what is cut goes on. The sync ends when other records
    are in that place, which are not synced for a long time."""
    world = three_replicas()
    producer = SimProducer(world, "t-0", 1)
    producer.begin()
    world.clock.run_until(6_000_000)
    former = world.spus[1]
    took_us = [2_000]
    former.disk_us = lambda: took_us[0]  # type: ignore[method-assign]
    world.network.blocked.update({(1, SC), (SC, 1)})
    world.sc.sessions[1].breaks()
    for peer in (2, 3):
        world.network.cut(1, peer, both=True)
    world.clock.run_until(8_000_000)
    assert elected_of(world).leader == 2
    producer.stopped = True
    replica = former.replicas["t-0"]
    for sequence in range(20):
        header, data = header_of(7, 0, sequence, 3), b"7.0.%d" % sequence
        world.ledgers["t-0"].headers[data] = header
        replica.produce(header, data, lambda *_: None)
    took_us[0] = 3_000_000
    world.clock.run_until(8_010_000)
    took_us[0] = 2_000
    for peer in (2, 3, SC):
        world.network.heal(1, peer)
    world.clock.run_until(10_500_000)
    assert world.counts["cuts"] == 1
    took_us[0] = 1_000_000
    world.clock.run_until(13_000_000)
    took_us[0] = 2_000
    world.clock.run_until(20_000_000)
    assert len(elected_of(world).lrs) == 3


def test_given_a_sync_that_began_before_a_cut_then_it_says_nothing_of_what_came_after() -> None:
    cut_during_a_sync()
    with MUTANTS["a sync from before a cut counts after it"](), pytest.raises(ViolationError):
        cut_during_a_sync()
