"""The topic ``_groups``, which keeps the states of reader groups: state logs, by a group's name."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from runnel.groups.state import Groups, Update
from runnel.groups.stored_state import GroupsState
from runnel.net.routing import TopicRoute
from runnel.state_log.topic_logs import TopicLogs
from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name
from schemas.objects.system_topics import is_system_name

#: How long listing and changing a group wait for a partition that does not answer.
GIVE_UP_S: Final = 30.0


class GroupStore(TopicLogs[Groups, Update]):
    """The states of all reader groups, as one client reads and writes them."""

    def __init__(
        self,
        find_route: Callable[[], Awaitable[TopicRoute]],
        make: Callable[[], Awaitable[object]],
        truncate: Callable[[str, int], Awaitable[object]],
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(GroupsState(), find_route, make, truncate, new_id)

    async def everything(self) -> Groups:
        """All groups; none if no group was ever made."""
        found: Groups = {}
        async for state in self.states(GIVE_UP_S):
            found |= state
        return found


def check_group_name(name: object, what: str = "name of a reader group") -> str:
    """The name, if a group or a reader can be called that. Raises InvalidRequestError."""
    if not isinstance(name, str):
        raise InvalidRequestError(f"{what}: {name!r} is no text")
    try:
        check_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"{what}: {error}") from error
    if is_system_name(name):
        raise InvalidRequestError(f"{what}: {name!r}: names that begin with _ are the system's")
    return name


def this_process(by: str) -> str:
    """How other clients see this one."""
    return f"{by} (pid {os.getpid()} on {socket.gethostname()})"
