"""The office as this process serves it: alone over its KV, or one of several."""

from __future__ import annotations

from sc.election.names import LOOK_S
from sc.election.node import Node
from schemas.control.controllers import (
    ControllerAnswer,
    ControllerEntry,
    ControllerRole,
    ControllersAnswer,
)
from schemas.errors import ConflictError, NotReadyError


class LocalOffice:
    """``me``: what this SC says of itself; ``buckets``: of the streams, which it works for alone;
    ``shared``: it may have rivals, and ``node`` is there once it takes part."""

    def __init__(self, me: ControllerEntry, buckets: int = 0, *, shared: bool = False) -> None:
        self.me = me
        self._buckets = buckets
        self._shared = shared
        self.node: Node | None = None

    @property
    def name(self) -> str:
        """The name of this SC."""
        return self.me.name

    def controllers(self) -> ControllersAnswer:
        """The SCs that run. Raises NotReadyError before this one takes part."""
        if self.node is not None:
            return self.node.controllers()
        self._check_alone()
        answer = ControllerAnswer.of(self.me, ControllerRole.LEADER, self._buckets)
        return ControllersAnswer(items=(answer,), asked=self.me.name)

    def step_down(self, leader: str | None = None) -> None:
        """Let another SC lead; nothing happens if ``leader`` names another one than this. Raises
        ConflictError where there cannot be another SC, NotReadyError before this one takes part."""
        if self.node is None:
            self._check_alone()
            raise ConflictError(
                "this cluster keeps its objects in a file, so it has one SC, which leads; several"
                " SCs need an etcd: runnel cluster migrate"
            )
        if leader is None or leader == self.name:
            self.node.step_down()

    def _check_alone(self) -> None:
        if self._shared:
            # Its mirror is not followed yet, and may still list an earlier process of this name.
            raise NotReadyError(
                "this SC waits until an earlier process under its name is gone, and does not take"
                " part yet; try again in a moment, or ask another one",
                retryAfterMs=round(1000 * LOOK_S),
            )
