"""One replica that is told one input after the other, and what dialogues with it begin with."""

from __future__ import annotations

from dataclasses import replace

from schemas.ids import make_term
from spu.replication.core import step
from spu.replication.events import (
    Elected,
    HardStatePersisted,
    Input,
    LinkUp,
    Output,
    PartitionUpdated,
    PersistHardState,
    Received,
)
from spu.replication.messages import Append, Batch, LogEnd
from spu.replication.state import HardState, Member, ReplicaState

A, B, C = Member(0, "a"), Member(1, "b"), Member(2, "c")
TERM = make_term(0, 1)
NEXT = make_term(0, 2)
REPLICAS = (0, 1, 2)
ONE, TWO = Batch(0, 1, TERM, b"1"), Batch(1, 2, TERM, b"2")


class Dialogue:
    """A replica, and what it is told."""

    def __init__(self, state: ReplicaState) -> None:
        self.state = state
        self.now_ms = 0

    def tell(self, event: Input) -> tuple[Output, ...]:
        self.state, outputs = step(self.state, event, self.now_ms)
        return outputs

    def hear(self, sender: int, message: object) -> tuple[Output, ...]:
        return self.tell(Received(sender, message))  # type: ignore[arg-type]

    def keep_heard(self, sender: int, message: object) -> tuple[Output, ...]:
        """Hear, and make every promise durable at once."""
        return self.keep(Received(sender, message))  # type: ignore[arg-type]

    def keep(self, event: Input) -> tuple[Output, ...]:
        """Tell, and make every promise durable at once. Gives all that came out but promises."""
        found: list[Output] = []
        waiting = list(self.tell(event))
        while waiting:
            output = waiting.pop(0)
            if isinstance(output, PersistHardState):
                waiting += self.tell(HardStatePersisted(output.hard_state))
            else:
                found.append(output)
        return tuple(found)


def idle(spu: int = 0, storage: str = "a", **more: object) -> ReplicaState:
    """A new replica that has been told nothing yet."""
    more = {"proven": True, **more}
    return ReplicaState(spu, "boot", HardState(storage), **more)  # type: ignore[arg-type]


def learned(revision: int = 1, term: int = TERM, leader: int = 0, *lrs: Member) -> PartitionUpdated:
    """What the KV holds of the partition; all three replicas are live unless it is said."""
    return PartitionUpdated(revision, term, leader, lrs or (A, B, C), REPLICAS, 2)


def leading(*lrs: Member, minimum: int = 2) -> Dialogue:
    """SPU 0 leads, with links to the others; nothing is synced, nobody has answered."""
    dialogue = Dialogue(idle())
    for peer in (1, 2):
        dialogue.tell(LinkUp(peer))
    told = replace(learned(1, TERM, 0, *lrs), min_in_sync=minimum)
    dialogue.keep(told)
    dialogue.keep(Elected(1, TERM, told.lrs, REPLICAS, minimum))
    return dialogue


def attached(dialogue: Dialogue, spu: int, number: int, leo: int = 0) -> tuple[Output, ...]:
    """A follower with an empty log agrees."""
    position = LogEnd(TERM, number, f"boot {spu}", "abc"[spu], 0, leo)
    return dialogue.hear(spu, position)


def append(*batches: Batch, lac: int = -1, number: int = 1) -> Append:
    """What SPU 0 sends to a replica that it attached."""
    return Append(TERM, number, "boot", batches, lac, 0)
