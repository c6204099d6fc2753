"""Until when the holder of a lease may rely on it, by its own clock. Pure.

The KV counts a lease from the moment at which it takes a renewal, which is later than the moment at
which the holder sent it. So the holder's time ends first, whatever the network did: nobody else
holds the lease before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: So much earlier than the KV may end it, a lease ends for its holder: clocks run at different
#: speeds, and a message that is on its way then still arrives.
MARGIN_MS: Final = 1_000
#: A lease is renewed so many times in its time.
RENEWALS: Final = 3


@dataclass(slots=True)
class LeaseClock:
    """A lease whose last successful renewal was sent at ``sent_ms``, for ``ttl_ms``; both in
    milliseconds of one clock that grows also while the host is suspended."""

    ttl_ms: int
    sent_ms: int

    @property
    def until_ms(self) -> int:
        """When the holder must have stopped relying on it."""
        return self.sent_ms + self.ttl_ms - min(MARGIN_MS, self.ttl_ms // 2)

    @property
    def due_ms(self) -> int:
        """When to renew it."""
        return self.sent_ms + self.ttl_ms // RENEWALS

    def holds(self, now_ms: int) -> bool:
        """Whether the holder may rely on it now."""
        return now_ms < self.until_ms

    def renewed(self, sent_ms: int, ttl_ms: int) -> None:
        """A renewal that was sent at ``sent_ms`` succeeded. An older one changes nothing."""
        if sent_ms + ttl_ms > self.sent_ms + self.ttl_ms:
            self.sent_ms, self.ttl_ms = sent_ms, ttl_ms
