"""The options of ``spark.read.format("runnel")``: parsed and checked on the driver. Pure.

=========================  ===================================================================
``sc``                     ``HOST:PORT[,HOST:PORT…]`` of the SC; else ``RUNNEL_SC``, else the
                           profile
``topic``                  required
``startingOffsets``        ``earliest`` (default), ``latest``, or JSON (see `spark_io.offsets`)
``startingTransactionId``  instead of it: begin in each partition at the first record with this
                           transaction id or a larger one; nothing is read where there is none
``endingOffsets``          ``latest`` (default) or JSON
=========================  ===================================================================

Names ignore case, as all of Spark's do. An option that is not in the table is an error: a typo
in ``endingOffsets`` would otherwise read the wrong records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from runnel import TransactionId
from runnel.net.address import parse_addresses
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name
from schemas.objects.spelling import nearest
from schemas.wire.batch import MAX_TRANSACTION_ID
from spark_io.offsets import OffsetWish, parse_offsets

SC: Final = "sc"
TOPIC: Final = "topic"
STARTING: Final = "startingOffsets"
STARTING_ID: Final = "startingTransactionId"
ENDING: Final = "endingOffsets"
READ_OPTIONS: Final = (SC, TOPIC, STARTING, STARTING_ID, ENDING)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and where the cluster is."""

    sc: str
    topic: str
    starting: OffsetWish | TransactionId
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
        _starting(given, topic),
        parse_offsets(ENDING, given.get(ENDING, "latest"), topic, words=("latest",)),
    )


def _starting(given: Mapping[str, str], topic: str) -> OffsetWish | TransactionId:
    if STARTING_ID not in given:
        text = given.get(STARTING, "earliest")
        return parse_offsets(STARTING, text, topic, words=("earliest", "latest"))
    if STARTING in given:
        raise InvalidRequestError(
            f"options {STARTING} and {STARTING_ID}: a read begins at one place; give one of them"
        )
    text = given[STARTING_ID].strip()
    # Longer numbers are no transaction ids either, and Python refuses to parse the longest.
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= number <= MAX_TRANSACTION_ID:
        raise InvalidRequestError(
            f"option {STARTING_ID}: {given[STARTING_ID]!r} is no transaction id; give a whole"
            f" number from 0 to {MAX_TRANSACTION_ID}"
        )
    return TransactionId(number)


def _unknown(name: str) -> str:
    if name.lower() == "path":
        return 'load() takes no path: name the topic with .option("topic", …)'
    meant = nearest(name, READ_OPTIONS)
    hint = f"did you mean {meant}?" if meant else f"known options: {', '.join(READ_OPTIONS)}"
    return f"unknown option {name!r}; {hint}"
