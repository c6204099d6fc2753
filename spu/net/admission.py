"""How many connections a port of an SPU has at once, and from where. Pure.

A connection is *unproven* until its first frame, a HELLO or a greeting, was accepted. Unproven
connections have slots of their own: silent ones do not lock out clients. If all of those are taken,
the oldest unproven connection gives way, once it has had `PROVE_S` to say something. One address
may have no more than a share of the connections, so that one host cannot lock out the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from schemas.errors import OverloadedError, RunnelError

#: How long a connection may stay unproven while others wait for its slot.
PROVE_S: Final = 1.0


class Ended(Protocol):
    """A connection, as far as it is needed here."""

    def end(self, error: RunnelError) -> None:
        """Tell the other end why, and close."""


@dataclass(slots=True)
class Admission:
    """``name`` is the listener's, in messages. Limits are for all connections, for the unproven
    ones beside them, and for one address, unproven ones included."""

    name: str
    max_proven: int
    max_unproven: int
    max_per_address: int
    _unproven: dict[Ended, float] = field(default_factory=dict)
    _proven: set[Ended] = field(default_factory=set)
    _address_of: dict[Ended, str] = field(default_factory=dict)
    _at: dict[str, int] = field(default_factory=dict)

    def arrived(self, connection: Ended, address: str, now: float) -> None:
        """Count a new connection at ``now``, in seconds; it may end an older one. Raises
        OverloadedError if there is no room for it."""
        if self._at.get(address, 0) >= self.max_per_address:
            raise OverloadedError(
                f"{self.name} has {self.max_per_address} connections from {address} already; share"
                " connections, or try again later"
            )
        self._require_room()
        if len(self._unproven) >= self.max_unproven:
            oldest = next(iter(self._unproven))
            error = OverloadedError(
                f"{self.name} has {self.max_unproven} connections that have not said what they"
                " are; say HELLO at once, or try again later"
            )
            if now - self._unproven[oldest] < PROVE_S:
                raise error
            self.gone(oldest)
            oldest.end(error)
        self._unproven[connection] = now
        self._address_of[connection] = address
        self._at[address] = self._at.get(address, 0) + 1

    def proven(self, connection: Ended) -> None:
        """Its first frame was accepted. Raises OverloadedError if there is no room for it."""
        self._require_room()
        del self._unproven[connection]
        self._proven.add(connection)

    def gone(self, connection: Ended) -> None:
        """The connection has ended; does nothing if it is not counted."""
        address = self._address_of.pop(connection, None)
        if address is None:
            return
        self._unproven.pop(connection, None)
        self._proven.discard(connection)
        self._at[address] -= 1
        if not self._at[address]:
            del self._at[address]

    def _require_room(self) -> None:
        if len(self._proven) >= self.max_proven:
            raise OverloadedError(
                f"{self.name} has {self.max_proven} connections already; try again later, or share"
                " connections"
            )
