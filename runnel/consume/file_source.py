"""The file of a leader on this host, from which a partition is read instead of being fetched.

The leader is asked where the records lie that it has already (`schemas.wire.located_batches`), and
they are read from there (`runnel.short_circuit`). Rules:

- What cannot be read from the file is fetched, and the leader is asked for no file any more.
- A reader near the end of its partition does not ask for files, but is pushed to.

Neighbours: `runnel.consume.fetcher` asks the leader, and decides what else an answer means.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from runnel.short_circuit.segment_file import READ_BYTES, NotThereError, SegmentFile
from schemas.wire.located_batches import LEAST_LOCATED_BYTES, Place

#: The leader is not asked for a file if fewer records are there.
_LEAST_RECORDS: Final = 64

_log = logging.getLogger("runnel")


class FileSource:
    """See the module's text. ``name`` is the partition's in log lines, ``most`` bounds the bytes of
    a read. Records below ``expected_end`` are there as far as the user knows. Call `close` at the
    end."""

    def __init__(self, name: str, most: int, *, usable: bool, expected_end: int) -> None:
        self._name = name
        self._most = min(READ_BYTES, most)
        self._usable = usable
        self._expected_end = expected_end
        self._file: SegmentFile | None = None

    def is_worth_asking(self, offset: int, end: int) -> bool:
        """Should the leader be asked for a file at ``offset``? Records below ``end`` are known to
        exist."""
        return self._usable and max(end, self._expected_end) - offset >= _LEAST_RECORDS

    def asked(self) -> None:
        """The leader is asked, and says how far its log goes: nothing is expected any more."""
        self._expected_end = 0

    async def open(self, tail: memoryview, offset: int) -> memoryview | None:
        """The batches at ``offset``, from the file that an answer names in its ``tail``; None if it
        cannot be read. Raises ProtocolError if it names none."""
        self.close()
        try:
            self._file = SegmentFile.open(Place.unpack(tail), offset, self._most)
        except NotThereError as error:
            self._leave(str(error))
            return None
        return await self.read(offset)

    async def read(self, offset: int) -> memoryview | None:
        """The batches at ``offset`` from the file that is open, if they are in it."""
        file = self._file
        if file is None:
            return None
        if file.next_offset != offset or file.exhausted:
            self.close()
            return None
        try:
            try:
                return file.read(wait=False)
            except BlockingIOError:
                reading = partial(file.read, wait=True)
                return await asyncio.get_running_loop().run_in_executor(None, reading)
        except NotThereError as error:
            self._leave(str(error))
            return None

    def sent(self, size: int) -> None:
        """The leader was asked for a file, and sent so many bytes of batches instead."""
        if size > LEAST_LOCATED_BYTES:
            self._leave("the SPU sends what could be read")

    def close(self) -> None:
        """Keep no file open, which may have been deleted; another one may be opened."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _leave(self, why: str) -> None:
        _log.debug("%s is fetched from now on: %s", self._name, why)
        self._usable = False
        self.close()
