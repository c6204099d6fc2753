"""SPUs without a session that may be alive all the same. Pure.

When a session ends, the SC does not know whether the SPU, the network or the SC itself is to blame.
How the session ended (`schemas.control.session_end`) decides:

- The connection ended without a code: the process is gone, and so is the SPU, at once.
- The SPU said goodbye: the same.
- The SPU missed its heartbeats: the same. But if more than half of the SPUs fall silent together,
  the SC's own link may be cut: they are suspect.
- One end closed the session for another reason, for example because the SC was silent: the SPU is
  suspect. It has `RECONNECT_MS` to connect again.
- While the SC lags, and shortly after, it doubts itself first: every end except a goodbye makes the
  SPU suspect. When the lag is over, all suspicions that had not ended before it start again.

A suspect SPU counts as unknown: nobody is elected in its place, and it stays in the live replica
sets. An SPU that was lost n times within a minute is suspect for n times as long, and from the
second time on it is *flapping*: the last candidate in elections. Ends that the SC may be to blame
for do not count.

If no SPU has a session, nothing can be elected, so all suspects get their time anew when the first
SPU returns. SPUs that fell silent together may share a line to the SC: when one of them returns,
the others are suspect for `RETURN_MS`, so that nothing moves to the one that was faster. Times are
in the milliseconds of the controllers' ``now_ms``. Neighbours: `sc.store.view` asks,
`sc.dispatch.metadata` tells about sessions, `sc.controller` observes the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.control.session_end import SessionEnd

#: How long a suspect SPU may take to connect again. More than the longest pause between two
#: attempts of an SPU.
RECONNECT_MS = 1_500
#: How long the others may take that fell silent together with an SPU that has returned: an attempt
#: to connect that began before the line was there, the pause after it, and another attempt.
RETURN_MS = 3_000
#: How often the SC looks at its clock to find out whether it lags.
TICK_MS = 100
#: The SC lags if it looks at its clock later than it should by more than two heartbeats.
MAX_LATE_MS = 500
#: So long after a lag, ends of sessions may be old news.
SETTLE_MS = 500
#: SPUs whose sessions end within this time of each other fell silent together.
TOGETHER_MS = 1_000
#: Within this time, losses of an SPU count.
FLAPPING_MS = 60_000
#: More losses of one SPU than these do not count.
MAX_LOSSES = 10
#: Ends of an SPU's sessions within so long are told as one, that of the first.
ENDS_MS = 600_000


@dataclass(slots=True)
class Suspicions:
    """The suspect SPUs, what they were suspected of before, and how punctual the SC is."""

    #: The last time at which a session opened or ended; None before the first.
    came_or_went_ms: int | None = field(default=None, init=False)
    #: The same, or at which the SC lagged.
    changed_ms: int | None = field(default=None, init=False)
    #: The last time at which the SC looked at its clock.
    observed_ms: int = field(default=0, init=False)
    _connected: set[int] = field(default_factory=set, init=False)
    #: Those that had a session, and whose end left no doubt.
    _gone: set[int] = field(default_factory=set, init=False)
    #: When a session of each SPU ended first within the last `ENDS_MS`, however often since.
    _ended_ms: dict[int, int] = field(default_factory=dict, init=False)
    #: Until when each SPU is suspect. While no SPU has a session, those whose time is over stay.
    _until_ms: dict[int, int] = field(default_factory=dict, init=False)
    #: When each SPU fell silent that has not been heard of since.
    _silent_ms: dict[int, int] = field(default_factory=dict, init=False)
    _losses_ms: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False)
    _ticked_ms: int | None = field(default=None, init=False)
    _lagged_ms: int | None = field(default=None, init=False)
    _isolated_ms: int | None = field(default=None, init=False)

    def until_ms(self, spu_id: int) -> int:
        """Until when an SPU is suspect; 0 if it is not."""
        return self._until_ms.get(spu_id, 0)

    def is_gone(self, spu_id: int) -> bool:
        """Whether an SPU had a session with this SC, and its end says that the SPU is gone: then
        nobody need wait for it, however short the SC has run."""
        return spu_id in self._gone

    def ended_ms(self, spu_id: int) -> int | None:
        """When a session of an SPU ended, the first of those that ended within `ENDS_MS` of it;
        None if none did with this SC."""
        return self._ended_ms.get(spu_id)

    def is_flapping(self, spu_id: int, now_ms: int) -> bool:
        """Whether an SPU was lost at least twice within the last minute."""
        return self._losses(spu_id, now_ms) >= 2

    def tick(self, now_ms: int) -> None:
        """Call this every `TICK_MS`; the first call begins the measurement."""
        self.observe(now_ms)
        self._ticked_ms = now_ms

    def observe(self, now_ms: int) -> bool:
        """Call this whenever something is to be decided; gives whether the SC lags right now."""
        ticked, before = self._ticked_ms, self.observed_ms
        self.observed_ms = now_ms
        if ticked is None or now_ms - ticked <= TICK_MS + MAX_LATE_MS:
            return False
        for spu_id, until in self._until_ms.items():
            if until > before:
                self._until_ms[spu_id] = now_ms + self._wait_ms(spu_id, now_ms)
        self._lagged_ms = self.changed_ms = now_ms
        return True

    def opened(self, spu_id: int, now_ms: int) -> frozenset[int]:
        """An SPU has a session. Gives the other SPUs whose time starts again for that."""
        self.came_or_went_ms = self.changed_ms = now_ms
        self._until_ms.pop(spu_id, None)
        self._gone.discard(spu_id)
        if self._connected:
            self._until_ms = {i: until for i, until in self._until_ms.items() if until > now_ms}
            revived = frozenset[int]()
        else:
            for other in self._until_ms:
                self._until_ms[other] = now_ms + self._wait_ms(other, now_ms)
            revived = frozenset(self._until_ms)
        self._connected.add(spu_id)
        fell_ms = self._silent_ms.pop(spu_id, None)
        if fell_ms is not None:
            for other, other_ms in self._silent_ms.items():
                waits = self.until_ms(other) > now_ms and other not in revived
                if abs(other_ms - fell_ms) <= TOGETHER_MS and not waits:
                    self._until_ms[other] = max(self.until_ms(other), now_ms + RETURN_MS)
                    revived |= {other}
        return revived

    def ended(self, spu_id: int, end: SessionEnd, now_ms: int, quiet: int = 0) -> None:
        """The session of an SPU ended, which is not opened again yet.

        ``quiet``: of the other SPUs with a session, how many have not been heard for a while.
        """
        self.observe(now_ms)
        self.came_or_went_ms = self.changed_ms = now_ms
        if (first_ms := self._ended_ms.get(spu_id)) is None or now_ms >= first_ms + ENDS_MS:
            self._ended_ms[spu_id] = now_ms
        connected = len(self._connected)
        self._connected.discard(spu_id)
        self._until_ms.pop(spu_id, None)
        if end is SessionEnd.SILENT:
            self._silent_ms[spu_id] = now_ms
        if end is SessionEnd.GOODBYE:
            self._gone.add(spu_id)
            return
        suspect = end is SessionEnd.CLOSED
        lagged = self._lagged_ms is not None and now_ms - self._lagged_ms <= SETTLE_MS
        if end is SessionEnd.SILENT and self._is_isolated(connected, quiet, now_ms):
            self._isolated_ms = now_ms
            suspect = True
        elif lagged:
            suspect = True
        else:
            counted = [at for at in self._losses_ms.get(spu_id, ()) if at > now_ms - FLAPPING_MS]
            self._losses_ms[spu_id] = (*counted, now_ms)[-MAX_LOSSES:]
        if suspect:
            self._until_ms[spu_id] = now_ms + self._wait_ms(spu_id, now_ms)
        else:
            self._gone.add(spu_id)

    def _is_isolated(self, connected: int, quiet: int, now_ms: int) -> bool:
        """Whether an SPU fell silent together with others, so that the SC's link may be cut."""
        if quiet > 0 and 2 * (quiet + 1) > connected:
            return True
        return self._isolated_ms is not None and now_ms - self._isolated_ms <= TOGETHER_MS

    def _wait_ms(self, spu_id: int, now_ms: int) -> int:
        return RECONNECT_MS * max(1, self._losses(spu_id, now_ms))

    def _losses(self, spu_id: int, now_ms: int) -> int:
        return sum(at > now_ms - FLAPPING_MS for at in self._losses_ms.get(spu_id, ()))
