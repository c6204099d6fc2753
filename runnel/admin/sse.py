"""Server-sent events, as bytes arrive. Pure.

Parses only what an SC sends: ``event``, ``id``, ``data`` and comments. Lines end with ``\\n`` or
``\\r\\n``; an event ends with an empty line, and one without data is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import ProtocolError

#: More than any event: the SC takes no object above its limit of 32 MiB for a request.
MAX_EVENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; ``id`` is empty where none was sent."""

    name: str
    id: str
    data: str


class EventParser:
    """Feed it bytes, in pieces of any size; it gives the events that are complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._name = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Raises ProtocolError for an event longer than `MAX_EVENT_BYTES`, or that is not UTF-8."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._grow(line)
            whole = b"".join([*self._pieces, line])
            self._pieces.clear()
            if (event := self._line(whole.removesuffix(b"\r"))) is not None:
                yield event
        if rest:
            self._grow(rest)
            self._pieces.append(rest)

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_EVENT_BYTES:
            raise ProtocolError(f"an event of more than {MAX_EVENT_BYTES} bytes")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._name, self._id, "\n".join(self._data))
            complete = bool(self._data)
            self._name, self._id, self._data, self._size = "", "", [], 0
            return event if complete else None
        try:
            field, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"an event that is not UTF-8: {error}") from error
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "id":
                self._id = value
            case "data":
                self._data.append(value)
            case _:
                # A comment, which keeps the connection alive, or a field of a later version.
                pass
        return None
