"""The options of ``df.write`` and ``df.writeStream``: parsed and checked on the driver. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name
from schemas.objects.system_topics import is_system_name
from spark_io.options import table
from spark_io.options.read import parse_sc
from spark_io.options.table import Use, given_options

Acks = Literal["committed", "leader", "none"]
_ACKS: Final = ("committed", "leader", "none")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go. ``topic``: None if a column names it. ``transaction_id``: the column with the
    transaction ids."""

    sc: str
    topic: str | None
    acks: Acks = "committed"
    transaction_id: str | None = None


def parse_write_options(
    options: Mapping[str, str], default_sc: Callable[[], str], use: Use = Use.WRITE
) -> WriteOptions:
    """Check the options of a write. Raises InvalidRequestError that names the option at fault."""
    given = given_options(options, (use,))
    topic = given.get(table.TOPIC, "").strip() or None
    if topic is not None:
        try:
            check_name(topic)
        except ValueError as error:
            hint = "; one write has one topic, or a column topic" if "," in topic else ""
            raise InvalidRequestError(f"option {table.TOPIC}: {error}{hint}") from error
        if is_system_name(topic):
            raise InvalidRequestError(
                f"option {table.TOPIC}: {topic!r} is a system topic: only Runnel writes to it"
            )
    acks = given.get(table.ACKS, "committed").strip().lower()
    if acks not in _ACKS:
        raise InvalidRequestError(
            f"option {table.ACKS}: {given[table.ACKS]!r}; give {', '.join(_ACKS)}"
        )
    return WriteOptions(
        parse_sc(given, default_sc),
        topic,
        cast("Acks", acks),
        given.get(table.TRANSACTION_ID, "").strip() or None,
    )
