"""Noticing that a topic has got more partitions since it was opened.

Partitions are added while clients have the topic open; they are never removed. An open producer or
consumer asks the SC at intervals of less than ``max_age_s`` (Kafka: ``metadata.max.age.ms``). It
learns of the added partitions once each of them has a leader: before that, records could neither
go there nor come from there. While no SC answers, nothing is learned, and the next interval asks
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from runnel.net.routing import TopicRoute
from schemas.errors import NotFoundError, RunnelError

#: How long added partitions may go unnoticed, unless a client sets another time.
METADATA_MAX_AGE_MS: Final = 30_000
#: The interval is between this share of ``max_age_s`` and all of it, so that the clients of a
#: cluster do not all ask at the same moment.
_LEAST_SHARE: Final = 0.7
#: How long after an answer that is not enough the SC is asked again by who waits for it.
_AGAIN_S: Final = 0.2

_log = logging.getLogger("runnel")


async def follow_partition_count(
    route: TopicRoute, max_age_s: float, grown: Callable[[int], None]
) -> None:
    """Call ``grown`` with each larger number of partitions, until cancelled.

    The ``route`` knows the number by then. Ends when the topic was deleted: its readers and
    senders meet that themselves.
    """
    while True:
        await asyncio.sleep(max_age_s * (_LEAST_SHARE + (1 - _LEAST_SHARE) * route.random()))
        try:
            count, led = await route.partition_count_now()
        except NotFoundError:
            return
        except RunnelError as error:
            _log.debug("%s: added partitions are looked for later: %s", route.name, error.message)
            continue
        if led:
            _take_up(route, count, grown)


async def take_up_added(route: TopicRoute, grown: Callable[[int], None]) -> bool:
    """Call ``grown`` now if partitions were added; gives whether they were. Waits until each has a
    leader, and while no SC answers.

    For readers that have met the ends of all others: nothing that was added may be missed.
    """
    while True:
        try:
            count, led = await route.partition_count_now()
        except NotFoundError:
            return False
        except RunnelError as error:
            _log.warning("%s: waiting to learn of added partitions: %s", route.name, error.message)
        else:
            if led:
                return _take_up(route, count, grown)
        await asyncio.sleep(_AGAIN_S)


def _take_up(route: TopicRoute, count: int, grown: Callable[[int], None]) -> bool:
    if count <= route.partition_count:
        return False
    _log.info("%s has %d partitions now, %d before", route.name, count, route.partition_count)
    route.grow(count)
    grown(count)
    return True
