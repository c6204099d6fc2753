"""States that clients share."""

from __future__ import annotations

from runnel.client.links import Links
from runnel.shared_state.shared_state import SharedState


class SharedStates(Links):
    """States that clients share, by their names."""

    def state(self, name: str) -> SharedState:
        """A small value that many clients read and change: ``cluster.state("settings")``; asks
        nobody yet.

        It needs no object and no server of its own: readers and writers share a log. Raises
        InvalidRequestError for what is no name.
        """
        return SharedState(self._states, name, self.by)
