"""The office as this process serves it: alone over its KV, or one of several."""

from __future__ import annotations

from sc.election.node import Node
from schemas.control.controllers import (
    ControllerAnswer,
    ControllerEntry,
    ControllerRole,
    ControllersAnswer,
)
from schemas.errors import ConflictError


class LocalOffice:
    """``me``: what this SC says of itself; ``buckets``: of the streams, which it works for alone;
    ``node``: once it runs, where it has rivals."""

    def __init__(self, me: ControllerEntry, buckets: int = 0) -> None:
        self.me = me
        self._buckets = buckets
        self.node: Node | None = None

    @property
    def name(self) -> str:
        """The name of this SC."""
        return self.me.name

    def controllers(self) -> ControllersAnswer:
        """The SCs that run."""
        if self.node is not None:
            return self.node.controllers()
        answer = ControllerAnswer.of(self.me, ControllerRole.LEADER, self._buckets)
        return ControllersAnswer(items=(answer,), asked=self.me.name)

    def step_down(self) -> None:
        """Raises ConflictError where there cannot be another SC."""
        if self.node is None:
            raise ConflictError(
                "this cluster keeps its objects in a file, so it has one SC, which leads; several"
                " SCs need an etcd: runnel cluster migrate"
            )
        self.node.step_down()
