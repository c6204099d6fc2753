"""From a partition to the connection of its leader, and what to do when that was wrong.

A `TopicRoute` belongs to one incarnation of a topic (its uid): a topic that was deleted and
created again under the same name is another one, and using the old route says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runnel.address import Address
from runnel.backoff import backoff_s
from runnel.connection import Buffer, Response, SpuConnection
from runnel.connections import Connections
from runnel.metadata import Metadata
from schemas.assignments import PartitionLeader, TopicAssignment
from schemas.errors import (
    DeadlineExceededError,
    NotFoundError,
    NotReadyError,
    RetryableError,
    RunnelError,
    StorageFailedError,
)
from schemas.ids import PartitionUid
from schemas.protocol import Api

#: An attempt gets this long however little time is left: a connection that is silent until the
#: end of an attempt is closed, and others share it.
_LEAST_WAIT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one request may take, and how attempts are spaced."""

    request_timeout_ms: int = 30_000
    backoff_base_ms: float = 20.0
    backoff_cap_ms: float = 1_000.0


def may_retry(error: BaseException) -> bool:
    """May another attempt, perhaps at another leader, succeed?

    A replica whose disk failed stops, and another one takes over: that is the leader's end, not
    the request's.
    """
    return isinstance(error, RetryableError | StorageFailedError)


class TopicRoute:
    """The way to the leaders of one topic; shared by all who use the topic."""

    def __init__(
        self,
        topic: TopicAssignment,
        metadata: Metadata,
        connections: Connections,
        random: Callable[[], float],
        policy: RetryPolicy,
    ) -> None:
        self.topic = topic
        self.policy = policy
        self._metadata = metadata
        self._connections = connections
        self._random = random
        self._suspect_since: dict[int, float] = {}

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def partition_count(self) -> int:
        return self.topic.partition_count

    async def leader(self, index: int) -> PartitionLeader:
        """Who leads a partition now. Raises NotReadyError with the reason while nobody does."""
        newer_than = self._suspect_since.get(index, -math.inf)
        topic = await self._metadata.topic(self.name, newer_than)
        if topic.uid != self.topic.uid:
            raise NotFoundError(
                f"topic {self.name!r} was deleted and created again since it was opened here;"
                " open it again"
            )
        for partition in topic.partitions:
            if partition.index == index:
                if partition.endpoint is None:
                    # Nobody leads: what is cached cannot get better by itself.
                    self.suspect(index)
                    raise NotReadyError(
                        f"partition {self.name}/{index} has no leader:"
                        f" {partition.reason or partition.resolution}"
                    )
                return partition
        self.suspect(index)
        raise NotReadyError(
            f"partition {self.name}/{index} is not placed yet: topic {self.name!r} is"
            f" {topic.resolution}{f' ({topic.reason})' if topic.reason else ''}"
        )

    def suspect(self, index: int) -> None:
        """What is known about a partition's leader led to a failure: ask the SC next time."""
        self._suspect_since[index] = asyncio.get_running_loop().time()

    async def connect(self, index: int, timeout_s: float) -> tuple[SpuConnection, PartitionLeader]:
        """A connection to the leader. Raises RetryableErrors, NotFoundError for a lost topic."""
        leader = await self.leader(index)
        if leader.endpoint is None:
            raise NotReadyError(f"partition {self.name}/{index} has no leader")
        address = Address(leader.endpoint.host, leader.endpoint.port)
        return await self._connections.get(address, timeout_s), leader

    async def request(
        self,
        index: int,
        api: Api,
        fixed: Callable[[PartitionUid], bytes],
        *tail: Buffer,
        timeout_s: float,
    ) -> Response:
        """One attempt at the leader; a failure makes it suspect."""
        try:
            connection, leader = await self.connect(index, timeout_s)
            return await connection.request(api, fixed(leader.uid), *tail, timeout_s=timeout_s)
        except RunnelError as error:
            raise self.judge(index, error) from error

    def judge(self, index: int, error: RunnelError) -> RunnelError:
        """What a failed attempt means to a caller; takes note of what it says about the leader.

        An SPU that does not know a partition was not told yet, or not any more: the SC decides
        whether the topic is gone, so that is an error to retry until the SC has spoken.
        """
        if isinstance(error, NotFoundError) and "spu" in error.details:
            self.suspect(index)
            return NotReadyError(f"{self.name}/{index}: {error.message}")
        if may_retry(error):
            self.suspect(index)
        return error

    async def pause(self, attempt: int, longest_s: float = math.inf) -> None:
        """Wait before attempt number ``attempt + 1``."""
        policy = self.policy
        delay_s = backoff_s(attempt, policy.backoff_base_ms, policy.backoff_cap_ms, self._random())
        await asyncio.sleep(max(0.0, min(delay_s, longest_s)))

    async def retrying(
        self,
        index: int,
        api: Api,
        fixed: Callable[[PartitionUid], bytes],
        *,
        give_up_s: float,
        timeout_s: float | None = None,
    ) -> Response:
        """`request`, again and again until ``give_up_s`` have passed. For reads only."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + give_up_s
        attempt = 0
        while True:
            left_s = deadline - loop.time()
            try:
                return await self.request(
                    index,
                    api,
                    fixed,
                    timeout_s=min(
                        timeout_s or self.policy.request_timeout_ms / 1000,
                        max(left_s, _LEAST_WAIT_S),
                    ),
                )
            except RunnelError as error:
                if not may_retry(error):
                    raise
                if loop.time() >= deadline:
                    raise DeadlineExceededError(
                        f"gave up on {self.name}/{index} after {give_up_s:.0f} s: {error.message}"
                    ) from error
            await self.pause(attempt, deadline - loop.time())
            attempt += 1
