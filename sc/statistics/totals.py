"""Sums over the partitions of each topic, kept up as the numbers of one partition change. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.ids import PartitionUid


@dataclass(frozen=True, slots=True)
class Total:
    """Offsets that readers may read, and bytes of logs, of so many partitions."""

    partitions: int = 0
    offsets: int = 0
    log_bytes: int = 0

    def changed(self, partitions: int, offsets: int, log_bytes: int) -> Total:
        return Total(
            self.partitions + partitions, self.offsets + offsets, self.log_bytes + log_bytes
        )


_NONE: Final = Total()


class Totals:
    """The sums, by the name of the topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Total] = {}
        #: What is in the sums.
        self._counted: dict[PartitionUid, tuple[str, int, int]] = {}

    def of(self, topic: str) -> Total:
        """The sums of a topic; 0 where nothing was counted."""
        return self._by_topic.get(topic, _NONE)

    def count(self, uid: PartitionUid, topic: str, offsets: int, log_bytes: int) -> None:
        """These are the numbers of a partition now."""
        self.forget(uid)
        self._counted[uid] = (topic, offsets, log_bytes)
        self._by_topic[topic] = self.of(topic).changed(1, offsets, log_bytes)

    def forget(self, uid: PartitionUid) -> None:
        """The partition is gone. Nothing if it was never counted."""
        found = self._counted.pop(uid, None)
        if found is None:
            return
        topic, offsets, log_bytes = found
        total = self.of(topic).changed(-1, -offsets, -log_bytes)
        if total.partitions:
            self._by_topic[topic] = total
        else:
            del self._by_topic[topic]
