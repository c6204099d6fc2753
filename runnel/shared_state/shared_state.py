"""A small value that many clients read and change: configuration, a leader's name, a cursor.

It is a mapping in JSON. A change is a function from the value to a merge patch; it is called again
if another client was first, so what it decides is decided on the value that it changes. The value
is the fold of all changes in a partition of the topic ``_states`` (`runnel.state_log.log`).
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any, Final

from runnel.net.routing import TopicRoute
from runnel.shared_state.state import (
    Change,
    SharedValue,
    SharedValues,
    SharedValuesState,
    Update,
    change_value,
    delete_value,
)
from runnel.state_log.log import now_us
from runnel.state_log.topic_logs import TopicLogs
from schemas.errors import InvalidRequestError, NotFoundError
from schemas.objects.quantities import check_name
from schemas.objects.system_topics import is_system_name

#: How long a call waits for a partition that does not answer.
TIMEOUT_S: Final = 30.0


class SharedStateStore(TopicLogs[SharedValues, Update]):
    """All shared states, as one client reads and writes them."""

    def __init__(
        self,
        find_route: Callable[[], Awaitable[TopicRoute]],
        make: Callable[[], Awaitable[object]],
        truncate: Callable[[str, int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(SharedValuesState(), find_route, make, truncate, new_id)


class SharedState:
    """The value under one name; see the module's text."""

    def __init__(self, store: SharedStateStore, name: str, by: str) -> None:
        try:
            check_name(name)
        except (TypeError, ValueError) as error:
            raise InvalidRequestError(f"name of a state: {error}") from error
        if is_system_name(name):
            raise InvalidRequestError(
                f"name of a state: {name!r}: names that begin with _ are the system's"
            )
        self.name = name
        self._store = store
        self._by = by

    def __repr__(self) -> str:
        return f"<runnel.SharedState {self.name!r}>"

    async def read(self, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """The value as it is now: everything that was changed before this call is in it. An empty
        mapping if nobody has written yet. Raises DeadlineExceededError."""
        found = await self._find(timeout)
        return {} if found is None else copy.deepcopy(found.value)

    async def version(self, *, timeout: float = TIMEOUT_S) -> int:
        """How many changes made the value what it is, since it was made; 0 if it is not there."""
        found = await self._find(timeout)
        return 0 if found is None else found.version

    async def update(self, change: Change, *, timeout: float = TIMEOUT_S) -> dict[str, Any]:
        """Change the value, and return it: ``await state.update(lambda value: {"rate": 5})``.

        ``change`` gets a copy of the value, and gives the fields to change, with None for those to
        remove (a merge patch: mappings in it are merged, lists are replaced), or None to change
        nothing. It may be called several times: do nothing else in it. Its errors pass through.
        Raises InvalidRequestError for what JSON cannot hold and for a value of more than 1 MiB,
        DeadlineExceededError: ``outcomeUnknown`` in its details says whether it may still be
        changed.
        """
        log = await self._store.made_log_of(self.name)
        at_us = now_us()
        state = await log.update(
            lambda state: change_value(state, self.name, change, self._by, at_us), timeout
        )
        return copy.deepcopy(state[self.name].value) if self.name in state else {}

    async def delete(self, *, timeout: float = TIMEOUT_S) -> None:
        """Remove the value; nothing happens if there is none."""
        try:
            log = await self._store.log_of(self.name)
        except NotFoundError:
            return
        await log.update(lambda state: delete_value(state, self.name), timeout)

    async def _find(self, timeout: float) -> SharedValue | None:
        try:
            log = await self._store.log_of(self.name)
        except NotFoundError:
            # Nobody has written any state yet.
            return None
        return (await log.read(timeout)).get(self.name)
