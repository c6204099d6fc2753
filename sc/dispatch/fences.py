"""What a write of the SC compares beside the objects that it changes: its right to write.

The SC that leads compares its leadership. Streams are divided among the SCs that run: who works for
a stream compares that it holds the stream's bucket. An SC that does not lead also compares what it
knows of who leads: what it decided before another SC led, before the cluster began to recover, or
before it was moved to another store, is not written after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sc.controllers.actions import KvAction, Step, WriteStatus
from sc.kv.interface import Compare, Get, KeyValue, ModRevisionIs
from sc.leadership import LEASE_OVER, Leadership, deposed_text
from schemas.errors import ConflictError, FencedError, RunnelError
from schemas.objects.keys import ClusterKeys
from schemas.objects.stream import Stream

StreamGuard = Callable[[Stream], Compare]
"""What a write for a stream compares. Raises ConflictError while another SC works for it."""

NOT_HELD: Final = "another SC works for this stream"


class Fence(Protocol):
    """The right to write."""

    def compares(self, action: KvAction) -> list[Compare]:
        """What a write compares. Raises ConflictError if it must not be tried."""

    def reads(self) -> list[Get]:
        """What to read when a write fails, to tell why."""

    def failure(self, found: Sequence[KeyValue | None]) -> RunnelError | None:
        """Why a write has failed, by what the keys in `reads` hold; None if its objects changed."""


def stream_of(action: KvAction) -> Stream | None:
    """The stream that an action works for."""
    match action:
        case Step(owner=stream) | WriteStatus(object=Stream() as stream):
            return stream
        case _:
            return None


class LeaderFence:
    """Of the SC that leads. ``leadership`` gives that of now; ``guard``: what its writes for
    streams compare too, where it shares them with others."""

    def __init__(
        self,
        keys: ClusterKeys,
        leadership: Callable[[], Leadership],
        guard: StreamGuard | None = None,
    ) -> None:
        self._keys = keys
        self._leadership = leadership
        self._guard = guard

    def compares(self, action: KvAction) -> list[Compare]:
        found = list(self._leadership().guards)
        if self._guard is not None and (stream := stream_of(action)) is not None:
            found.append(self._guard(stream))
        return found

    def reads(self) -> list[Get]:
        return [Get(self._keys.current_office), Get(self._keys.leader)]

    def failure(self, found: Sequence[KeyValue | None]) -> RunnelError | None:
        current, held = found
        leadership = self._leadership()
        # If a recovery began meanwhile, the revision has changed, but not the leader.
        if current is None or current.value != leadership.holder.encode():
            return FencedError(deposed_text(self._keys, current))
        if leadership.ended_by(self._keys.leader, held):
            return FencedError(LEASE_OVER)
        return None


class SharerFence:
    """Of an SC that works for streams and does not lead. ``office``: what its mirror shows of the
    tenure of now."""

    def __init__(
        self, keys: ClusterKeys, office: Callable[[], KeyValue | None], guard: StreamGuard
    ) -> None:
        self._keys = keys
        self._office = office
        self._guard = guard

    def compares(self, action: KvAction) -> list[Compare]:
        stream, office = stream_of(action), self._office()
        if stream is None or office is None:
            raise ConflictError("this SC stands by, and works for streams alone")
        return [
            self._guard(stream),
            ModRevisionIs(self._keys.current_office, office.mod_revision),
            ModRevisionIs(self._keys.moved, 0),
        ]

    def reads(self) -> list[Get]:
        return []

    def failure(self, found: Sequence[KeyValue | None]) -> RunnelError | None:
        # Whatever it was, the mirror shows it in a moment, and then there is less to do or nothing.
        return None
