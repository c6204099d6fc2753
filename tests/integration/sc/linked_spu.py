"""A simulated SPU that knows several SCs."""

from __future__ import annotations

from connection_manager.client import ControllerLink
from tests.integration.sc.several import RunningNode
from tests.simulated_spu import SimulatedSpu


class LinkedSpu(SimulatedSpu):
    """An SPU that knows the SCs in the order of a list."""

    def __init__(self, spu_id: int, nodes: list[RunningNode]) -> None:
        super().__init__(spu_id, "")
        addresses = [one.private for one in nodes]
        self.link = ControllerLink(lambda: addresses, self, rng=lambda: 0.0)
