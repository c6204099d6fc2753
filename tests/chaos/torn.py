"""A topic whose two replicas are parted: each one leads without the other, and one history is
lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import runnel
from schemas.objects.partition import Partition
from tests.chaos.replication.spus import Fleet

#: The SPUs of the topic. The third one of a fleet holds only what the cluster itself keeps.
LEADER: Final = 0
OTHER: Final = 1


@dataclass(frozen=True)
class TornTopic:
    """One partition on `LEADER` and `OTHER`, of which one is enough to write."""

    fleet: Fleet
    cluster: runnel.Cluster
    name: str

    def make(self, **spec: Any) -> None:
        """Create it, and wait until both replicas are live."""
        self.cluster.apply(
            {
                "apiVersion": "runnel/v1",
                "kind": "Topic",
                "metadata": {"name": self.name},
                "spec": {
                    "assignment": [{"id": 0, "replicas": [LEADER, OTHER]}],
                    "minInSyncReplicas": 1,
                    **spec,
                },
            }
        )
        self.cluster.wait("topic", self.name, "provisioned")
        self.until_live(LEADER, OTHER)

    def send(self, word: str, count: int) -> list[str]:
        """Send so many records; gives their values."""
        values = [f"{word} {number}" for number in range(count)]
        with self.cluster.producer(self.name) as producer:
            for value in values:
                producer.send(value)
        return values

    def values(self) -> list[str]:
        found = self.cluster.read(self.name, ["value"])["value"]
        return [value.decode() for value in found.to_pylist()]

    def until_live(self, *spus: int) -> None:
        self.fleet.until(
            lambda: [one.spu_id for one in self._partition().status.lrs] == list(spus),
            f"just the SPUs {spus} are live for {self.name}",
        )

    def elect_other(self) -> None:
        """Elect `OTHER`, which lacks what `LEADER` wrote alone."""
        self.fleet.until(self._elected, f"{OTHER} may be elected for {self.name}")

    def _elected(self) -> bool:
        partition = self._partition()
        try:
            self.cluster.elect(partition.metadata.name, partition.status.term, leader=OTHER)
        except (runnel.ConflictError, runnel.NotReadyError):
            return False
        return True

    def _partition(self) -> Partition:
        found = self.cluster.get("partition", f"{self.name}-0")
        assert isinstance(found, Partition)
        return found
