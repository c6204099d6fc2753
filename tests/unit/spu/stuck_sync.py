"""A disk that does not answer."""

from __future__ import annotations

import threading

import pytest

from spu.storage import durable, file_pool


class StuckSync:
    """An fsync that lasts until it is released, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        self.error: OSError | None = None
        self._go = threading.Event()
        original = durable.sync_file

        def sync_file(fd: int) -> None:
            self.runs += 1
            assert self._go.wait(20)
            if self.error is not None:
                raise self.error
            original(fd)

        monkeypatch.setattr(file_pool, "sync_log_file", sync_file)

    def release(self, error: OSError | None = None) -> None:
        self.error = error
        self._go.set()

    def hold(self) -> None:
        self._go.clear()
