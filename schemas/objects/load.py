"""What load a segment of a stream is to bear. Its leader measures, and says when it is another."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from schemas.model import CaselessEnum, Model
from schemas.objects.quantities import DurationMs

MIN_WINDOW_MS: Final = 1_000


class LoadUnit(CaselessEnum):
    EVENTS = "events"
    KILOBYTES = "kilobytes"


class LoadLimits(Model):
    """The load that a segment of a stream is to bear."""

    unit: LoadUnit
    """What is counted: events, or kilobytes (1,000 bytes) as producers send them."""
    target_rate: int = Field(ge=1)
    """So many of them in a second are right for one segment."""
    window: DurationMs = Field(ge=MIN_WINDOW_MS)
    """The shortest of the averages that count."""
