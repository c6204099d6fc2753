"""The options of ``spark.read.format("runnel")``: parsed and checked on the driver. Pure.

===================  =========================================================================
``sc``               ``HOST:PORT[,HOST:PORT…]`` of the SC; else ``RUNNEL_SC``, else the profile
``topic``            required
``startingOffsets``  ``earliest`` (default), ``latest``, or JSON (see `spark_io.offsets`)
``endingOffsets``    ``latest`` (default) or JSON
===================  =========================================================================

Names ignore case, as all of Spark's do. An option that is not in the table is an error: a typo
in ``endingOffsets`` would otherwise read other records than were meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from runnel.address import parse_addresses
from schemas.errors import InvalidRequestError
from schemas.kinds import nearest
from schemas.quantities import check_name
from spark_io.offsets import OffsetWish, parse_offsets

SC: Final = "sc"
TOPIC: Final = "topic"
STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"
READ_OPTIONS: Final = (SC, TOPIC, STARTING, ENDING)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and where the cluster is."""

    sc: str
    topic: str
    starting: OffsetWish
    ending: OffsetWish


def parse_read_options(options: Mapping[str, str], default_sc: Callable[[], str]) -> ReadOptions:
    """Check the options of a read. ``default_sc`` is asked only where ``sc`` is not given.

    Raises InvalidRequestError that names the option at fault.
    """
    known = {name.lower(): name for name in READ_OPTIONS}
    given: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() not in known:
            raise InvalidRequestError(_unknown(name))
        given[known[name.lower()]] = value
    topic = given.get(TOPIC, "").strip()
    if not topic:
        raise InvalidRequestError(
            'option topic is missing: spark.read.format("runnel").option("topic", "orders").load()'
        )
    try:
        check_name(topic)
    except ValueError as error:
        hint = "; one read takes one topic" if "," in topic else ""
        raise InvalidRequestError(f"option topic: {error}{hint}") from error
    sc = given.get(SC, "").strip() or default_sc()
    try:
        parse_addresses(sc)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"option sc: {error}") from error
    return ReadOptions(
        sc,
        topic,
        parse_offsets(
            STARTING, given.get(STARTING, "earliest"), topic, words=("earliest", "latest")
        ),
        parse_offsets(ENDING, given.get(ENDING, "latest"), topic, words=("latest",)),
    )


def _unknown(name: str) -> str:
    if name.lower() == "path":
        return 'load() takes no path: name the topic with .option("topic", …)'
    meant = nearest(name, READ_OPTIONS)
    hint = f"did you mean {meant}?" if meant else f"known options: {', '.join(READ_OPTIONS)}"
    return f"unknown option {name!r}; {hint}"
