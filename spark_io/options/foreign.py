"""Options of others: those of Kafka's source, and those that Spark's catalog adds. Pure."""

from __future__ import annotations

from typing import Final

#: What Spark's catalog adds to the options of a table, and what a query of a stream adds to those
#: of its sink; none of it concerns a topic.
_OF_SPARK: Final = frozenset(
    {
        *("owner", "provider", "external", "comment", "serialization.format"),
        *("is_managed_location", "checkpointlocation", "queryname"),
    }
)
_KAFKA: Final = "this is an option of Kafka's source"
#: What stands here for an option of others, by its name in lower case.
_INSTEAD: Final = {
    "path": 'a topic has no path: name it with .option("topic", …)',
    "location": "a topic has no location: name it with OPTIONS (topic 'orders')",
    "kafka.bootstrap.servers": f'{_KAFKA}; name the SC with .option("sc", "HOST:PORT")',
    "kafka.group.id": f"{_KAFKA}; a read joins no group: its offsets are in the checkpoint",
    "groupidprefix": f"{_KAFKA}; a read joins no group: its offsets are in the checkpoint",
    "kafkaconsumer.polltimeoutms": f"{_KAFKA}; leaders push records here, so leave it out",
    "fetchoffset.numretries": f"{_KAFKA}; requests are retried for two minutes, so leave it out",
    "fetchoffset.retryintervalms": f"{_KAFKA}; retries space themselves, so leave it out",
    "maxrecordsperpartition": f"{_KAFKA}; give maxBytesPerPartition or minPartitions",
    "maxpartitionbytes": "give maxBytesPerPartition",
    "useDeprecatedOffsetFetching".lower(): f"{_KAFKA}; leave it out",
}
_PREFIXES: Final = {
    "kafka.": "this is a setting of Kafka's client; the page on options lists what there is here",
    "kafkaconsumer.": f"{_KAFKA}; clients need no cache to be set up here, so leave it out",
}


def own_name(name: str) -> str | None:
    """The name that its user gave, in lower case; None for what Spark adds by itself.

    Spark's catalog calls the options of a table ``option.topic``.
    """
    lower = name.lower()
    return None if lower in _OF_SPARK else lower.removeprefix("option.")


def instead_of(name: str) -> str | None:
    """What to give here instead of an option of others; None for an option that nobody has."""
    lower = name.lower()
    if (found := _INSTEAD.get(lower)) is not None:
        return found
    return next((text for start, text in _PREFIXES.items() if lower.startswith(start)), None)
