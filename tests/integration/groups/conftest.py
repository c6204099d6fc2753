"""Readers of groups wait for each other over real sockets of a scripted SC and a scripted SPU."""

from __future__ import annotations

from tests.unit.runnel.conftest import servers, world

__all__ = ["servers", "world"]
