"""Deliberate bugs of moves: each breaks one rule, and a test must see it.

`MUTANTS` show in the small world, `OF_CLUSTERS` in scenes of whole clusters.

Three changes of guards are no bugs, because nothing that they let in does harm:

- `live_set._joining` without the look at who is to hold a replica. Who leaves then joins again, and
  the next look takes it out again. Once the leader has told that it knows the set without it, the
  end of the move is the answer to whatever it asked for. Only writes are lost by it.
- A tombstone that means any storage, where it names one. `begin` gives an SPU nothing that still
  has a tombstone, so what it finds there is never live. Names hold where a KV was restored.
- `election.candidates` without the look at holders: all that are live are holders
  (`tests.sim.small_world.world.check`).
"""

from __future__ import annotations

from typing import Final

from sc.controllers import partition, spu
from sc.controllers.membership import begin, drain, rebalance, resize, steps
from spu.replication import core, leader
from tests.sim.cluster import faults
from tests.sim.cluster.spu import SimSpu
from tests.sim.mutants import Mutant, both, edited
from tests.sim.small_world import membership

_BEGINNERS: Final = (drain, rebalance, resize, membership)

MUTANTS: Final[dict[str, Mutant]] = {
    "a move ends before the leader knows that some have left": edited(
        steps,
        "next_step",
        "report is None or not view.knows(report, partition)",
        "False",
        partition,
    ),
    "a leader leaves while it leads": edited(
        steps, "next_step", "if leader in leaving:", "if False:", partition
    ),
    "a move does not wait for who catches up": edited(
        steps, "_too_early", "if behind:", "if False:"
    ),
    "a replica takes over that is not live": edited(steps, "_successor", " if i in live", ""),
    "an SPU gets a partition back before it has deleted it": edited(
        begin,
        "begin",
        "view.store.tombstone(spu_id, partition.uid) is not None",
        "False",
        *_BEGINNERS,
    ),
    "who leaves is forgotten when others are wanted": edited(
        begin,
        "respecified",
        "for i in spec.holders",
        "for i in spec.replicas",
        *_BEGINNERS,
        faults,
    ),
    "a newcomer that is not wanted any more stays live": edited(
        begin,
        "respecified",
        "for i in spec.holders",
        "for i in settled | set(spec.leaving or ())",
        *_BEGINNERS,
        faults,
    ),
    "a tombstone is forgotten before it is obeyed": edited(
        spu, "_session_actions", "session.deleted.get(tombstone.uid) != tombstone", "False"
    ),
    "what replaced a deleted storage is forgotten": edited(
        spu, "_session_actions", "(left := _rebuilt(view, tombstone)) is None", "True"
    ),
    "a leader does not attach who is added": edited(
        core, "_hard_state_persisted", "attachments.attach_new(state, now_ms)", "state, ()"
    ),
    "another process may answer an attachment": edited(
        leader, "on_log_end", 'progress.boot not in ("", message.boot)', "False"
    ),
    "a leader takes another replica for the one that has left": both(
        edited(core, "_update_partition", "if p.spu in event.replicas", ""),
        edited(leader, "on_answer", "granted or not before", "True"),
    ),
}

#: What the small world does not have: assignments by the SC, sessions that end, minimums, drains.
OF_CLUSTERS: Final[dict[str, Mutant]] = {
    "who leaves is told nothing": edited(
        partition,
        "_assignments",
        "sorted(partition.spec.holders,",
        "sorted(partition.spec.replicas,",
    ),
    "who leaves is sent no records": edited(
        partition,
        "assignment_of",
        "replicas=partition.spec.holders",
        "replicas=partition.spec.replicas",
    ),
    "a drain ends while replicas move": edited(
        drain, "drain", "left = len(held)", "left = sum(not p.spec.moves for p in held)", spu
    ),
    "an order is carried out after the session that brought it": edited(
        SimSpu, "_connect", "if self._handling:", "if False:"
    ),
    "the minimum falls when replicas have left": edited(
        resize, "settings_for_now", "if higher and few and", "if"
    ),
    "the minimum rises before replicas are live": edited(
        resize, "settings_for_now", "if higher and few and", "if False and"
    ),
}
