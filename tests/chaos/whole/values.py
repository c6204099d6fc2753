"""What the records of a producer look like: its name, a number, and a filling that follows from
both. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_FILLING: Final = b"0123456789abcdefghijklmnopqrstuvwxyz" * 8


class RecordId(NamedTuple):
    """Which record it is: the ``sequence``-th one of a producer, counted from 0."""

    producer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer}:{self.sequence}"


def encode(record: RecordId) -> bytes:
    """The value of a record: a few bytes, or a few hundred."""
    return f"{record}:".encode() + _filling(record.sequence)


def decode(value: bytes) -> RecordId:
    """The record of a value. Raises ValueError for anything that `encode` does not make."""
    producer, number, filling = value.split(b":", 2)
    record = RecordId(producer.decode(), int(number))
    if filling != _filling(record.sequence):
        raise ValueError(f"the filling of {record} is another one: {filling!r}")
    return record


def _filling(sequence: int) -> bytes:
    return _FILLING[: sequence * 37 % len(_FILLING)]
