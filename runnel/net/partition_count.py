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
            count = await route.led_partition_count()
        except NotFoundError:
            return
        except RunnelError as error:
            _log.debug("%s: added partitions are looked for later: %s", route.name, error.message)
            continue
        if count > route.partition_count:
            _log.info(
                "%s has %d partitions now, %d before", route.name, count, route.partition_count
            )
            route.grow(count)
            grown(count)
