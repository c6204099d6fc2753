"""The states of a stream, and the moves between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.objects.stream import StreamState

MOVES: Final[Mapping[StreamState, tuple[StreamState, ...]]] = {
    StreamState.CREATING: (StreamState.ACTIVE, StreamState.DELETING),
    StreamState.ACTIVE: (
        StreamState.UPDATING,
        StreamState.SCALING,
        StreamState.TRUNCATING,
        StreamState.SEALING,
    ),
    StreamState.UPDATING: (StreamState.ACTIVE,),
    StreamState.SCALING: (StreamState.ACTIVE,),
    StreamState.TRUNCATING: (StreamState.ACTIVE,),
    StreamState.SEALING: (StreamState.SEALED,),
    StreamState.SEALED: (StreamState.DELETING,),
    StreamState.DELETING: (),
}
"""Where a stream can go from each state; every workflow but seal and delete ends where it began."""

DELETABLE: Final = tuple(state for state, to in MOVES.items() if StreamState.DELETING in to)
"""States in which a stream may be deleted."""


def diagram() -> str:
    """The moves as a state diagram for Mermaid."""
    lines = ["stateDiagram-v2", f"    [*] --> {StreamState.CREATING}"]
    lines += [f"    {start} --> {end}" for start, to in MOVES.items() for end in to]
    lines += [f"    {StreamState.DELETING} --> [*]"]
    return "\n".join(lines)
