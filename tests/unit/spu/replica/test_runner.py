"""What one replica does when its disk, its peer or an order of events is not what it hoped for."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from schemas.control.messages import ReplicaRole
from schemas.errors import NotEnoughReplicasError, RunnelError, StorageFailedError
from schemas.objects.topic import Durability
from schemas.wire.record_requests import FetchFlags, FetchRequest, ProduceResponse
from spu.replica import runner as runner_module
from spu.replication.core import step
from spu.replication.events import Appended, Flushed, Input, Tick
from spu.replication.follower import Step
from spu.replication.messages import Append
from spu.replication.state import ReplicaState
from spu.storage.journal import JournalEntry
from tests.unit.spu.builders import (
    TERM,
    UID,
    assign,
    assignment_of,
    batch_of,
    open_spu,
    produce,
    produce_request,
    settings_of,
    until,
)
from tests.unit.spu.other_spu import LATER, batches_of, follow
from tests.unit.spu.stuck_sync import StuckSync


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> list[Input]:
    """What cores are told from here on."""
    found: list[Input] = []

    def noted(state: ReplicaState, event: Input, now_ms: int) -> Step:
        found.append(event)
        return step(state, event, now_ms)

    monkeypatch.setattr(runner_module, "step", noted)
    return found


@pytest.mark.parametrize("durability", Durability)
async def test_given_many_batches_in_one_turn_then_the_core_is_told_once(
    tmp_path: Path, inputs: list[Input], durability: Durability
) -> None:
    spu = await open_spu(tmp_path, assignment_of(log=settings_of(durability=durability)))
    replica = await spu.serve()
    inputs.clear()
    end, answers = replica.leo, list[ProduceResponse | RunnelError]()
    for _ in range(20):
        replica.produce(produce_request(), memoryview(batch_of(1)), answers.append)
    assert inputs == []
    await until(lambda: len(answers) == 20)
    assert [event for event in inputs if isinstance(event, Appended)] == [Appended(end + 20)]
    assert [getattr(answer, "base_offset", answer) for answer in answers] == [*range(end, end + 20)]
    await spu.host.close()


async def test_given_an_event_in_the_turn_of_an_append_then_the_append_is_told_first(
    tmp_path: Path, inputs: list[Input]
) -> None:
    settings = settings_of(durability=Durability.REPLICATED)
    spu = await open_spu(tmp_path, assignment_of(log=settings))
    replica = await spu.serve()
    inputs.clear()
    answers: list[object] = []
    replica.produce(produce_request(), memoryview(batch_of(1)), answers.append)
    replica._runner.step(Tick())
    assert inputs == [Appended(replica.leo), Flushed(replica.leo), Tick()]
    assert len(answers) == 1
    await spu.host.close()


@pytest.mark.parametrize("found", ["at-start", "when-assigned"])
async def test_given_damage_while_it_is_not_assigned_then_it_never_leads(
    tmp_path: Path, found: str
) -> None:
    spu = await open_spu(tmp_path, assignment_of())
    replica = await spu.serve()
    for _ in range(50):
        await produce(replica, batch_of())
    end = replica.leo
    await spu.host.assign(assign(complete=True))
    await spu.host.close()
    directory = tmp_path / "partitions" / UID
    segment = max(directory.glob("*.log"), key=lambda path: path.stat().st_size)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    if found == "when-assigned":
        # As a disk that is mounted late: it is not there yet when the SPU looks what it holds.
        shutil.move(directory, tmp_path / "elsewhere")
    again = await open_spu(tmp_path)
    if found == "when-assigned":
        shutil.move(tmp_path / "elsewhere", directory)
    await again.host.assign(assign(assignment_of(revision=50)))
    report = again.replica.report()
    assert (report.fit, report.role) == (False, ReplicaRole.STOPPED)
    assert report.reason is not None
    # What recovery left of it must not be taken for the log: its offsets were acknowledged.
    await again.lead(term=LATER, revision=60)
    assert again.replica.leo < end
    assert again.replica.role is ReplicaRole.STOPPED
    assert not again.replica.report().fit
    await again.host.close()


async def test_given_damage_after_an_unclean_boot_then_no_election_excuses_it(
    tmp_path: Path,
) -> None:
    log = settings_of(durability=Durability.REPLICATED)
    spu = await open_spu(tmp_path, assignment_of(log=log))
    await produce(await spu.serve(), batch_of())
    await spu.host.close()
    run = tmp_path / "run.json"
    run.write_text('{"boot": "an earlier one", "stopped": false}')
    spu = await open_spu(tmp_path)
    assert spu.replica.report().unclean_boot
    await spu.host.close()
    (segment,) = (tmp_path / "partitions" / UID).glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(10)
    spu = await open_spu(tmp_path)
    report = spu.replica.report()
    assert (report.fit, report.unclean_boot, report.may_lead_uncleanly) == (False, False, False)
    assert "before that: the host went down" in str(report.reason)
    await spu.host.close()


async def test_given_an_order_to_lead_before_the_assignment_of_its_revision_then_both_count(
    tmp_path: Path,
) -> None:
    spu = await open_spu(tmp_path, assignment_of(revision=5))
    await spu.lead(revision=6)
    log = settings_of(segment=1 << 16).model_copy(update={"min_in_sync_replicas": 2})
    newer = assignment_of(revision=6, replicas=(1, 2), log=log)
    await spu.host.assign(assign(newer, complete=True))
    assert spu.replica.settings.segment.size == 1 << 16
    assert spu.replica.peers == {2}
    assert spu.replica.role is ReplicaRole.LEADER
    # The minimum of that revision holds for what is produced now.
    with pytest.raises(NotEnoughReplicasError):
        await produce(spu.replica, batch_of())
    await spu.host.close()


async def test_given_an_entry_of_the_earlier_format_then_its_assignment_says_the_minimum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def earlier(entry: JournalEntry) -> str:
        new = {"incarnation", "replicas", "minInSync", "pending"}
        row = json.loads(to_json(entry))
        return json.dumps({key: value for key, value in row.items() if key not in new})

    to_json = JournalEntry.to_json
    with monkeypatch.context() as patch:
        patch.setattr(JournalEntry, "to_json", earlier)
        log = settings_of().model_copy(update={"min_in_sync_replicas": 2})
        spu = await open_spu(tmp_path, assignment_of(log=log, replicas=(1, 2)))
        await spu.lead()
        await spu.host.close()
    again = await open_spu(tmp_path)
    # The other one is away: that it was not live is for the SC to say.
    assert again.replica.report().role is ReplicaRole.IDLE
    known = again.replica.entry.hard_state.revision
    confirmed = assignment_of(log=log, replicas=(1, 2), revision=known)
    await again.host.assign(assign(confirmed))
    assert again.replica.role is ReplicaRole.LEADER
    assert again.replica.peers == {2}
    with pytest.raises(NotEnoughReplicasError):
        await produce(again.replica, batch_of())
    await again.host.close()


async def test_given_long_polls_on_a_follower_that_becomes_unfit_then_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spu, _, _ = await follow(tmp_path, monkeypatch)
    told: list[RunnelError | None] = []
    request = FetchRequest(UID, 2, 1 << 20, 1, 600_000, 0, FetchFlags.FOLLOWER_OK)
    spu.replica.when_more(request, 0, told.append)
    assert told == []
    spu.replica.damaged(OSError(errno.EIO, "a bad sector"))
    (error,) = told
    assert isinstance(error, StorageFailedError)
    await spu.host.close()


async def test_given_a_follower_that_joins_then_the_sc_hears_of_what_it_has_synced_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spu.host.host.TICK_S", 3_600.0)
    spu, other, boot = await follow(tmp_path, monkeypatch)
    replica = spu.replica
    await until(lambda: replica.report().leo == 5)
    stuck = StuckSync(monkeypatch)
    records = batches_of(*[b"acknowledged"] * 6)
    other.says(Append(TERM, 1, boot, records[5:], 1, 0))
    await until(lambda: stuck.runs == 1)
    replica.tick(spu.now_us)
    assert (replica.leo, spu.reports[-1].leo) == (6, 5)
    stuck.release()
    await until(lambda: replica.report().leo == 6)
    replica.tick(spu.now_us)
    assert spu.reports[-1].leo == 6
    await spu.host.close()
