"""How many connections a port has: slots of the silent, slots of clients, and one host's share."""

from __future__ import annotations

import pytest

from schemas.errors import OverloadedError, RunnelError
from spu.net.admission import PROVE_S, Admission


class Connection:
    def __init__(self) -> None:
        self.error: RunnelError | None = None

    def end(self, error: RunnelError) -> None:
        self.error = error


def admission(proven: int = 10, unproven: int = 2, per_address: int = 10) -> Admission:
    return Admission("SPU 1", proven, unproven, per_address)


def arrived(to: Admission, now: float = 0.0, address: str = "a") -> Connection:
    connection = Connection()
    to.arrived(connection, address, now)
    return connection


def test_given_silent_connections_then_the_oldest_gives_way_to_a_new_one() -> None:
    port = admission()
    silent = [arrived(port, 0.0), arrived(port, 0.5)]
    with pytest.raises(OverloadedError, match="have not said what they are"):
        arrived(port, PROVE_S - 0.1)
    arrived(port, PROVE_S)
    assert isinstance(silent[0].error, OverloadedError)
    assert silent[1].error is None
    # The slot of the one that gave way is used: its own end frees no other.
    port.gone(silent[0])
    with pytest.raises(OverloadedError):
        arrived(port, PROVE_S)


def test_given_proven_connections_then_silent_ones_take_none_of_their_slots() -> None:
    port = admission(proven=3, unproven=2)
    for _ in range(3):
        port.proven(arrived(port))
    with pytest.raises(OverloadedError, match="SPU 1 has 3 connections already"):
        arrived(port)


def test_given_too_many_that_prove_themselves_at_once_then_the_last_is_refused() -> None:
    port = admission(proven=1)
    first, second = arrived(port), arrived(port)
    port.proven(first)
    with pytest.raises(OverloadedError):
        port.proven(second)
    port.gone(second)
    port.gone(first)
    port.proven(arrived(port))


def test_given_one_address_then_it_gets_no_more_than_its_share() -> None:
    port = admission(unproven=9, per_address=2)
    mine = arrived(port)
    port.proven(mine)
    arrived(port)
    with pytest.raises(OverloadedError, match="2 connections from a already"):
        arrived(port)
    arrived(port, address="b")
    port.gone(mine)
    port.gone(mine)
    arrived(port)
    with pytest.raises(OverloadedError, match="from a already"):
        arrived(port)
