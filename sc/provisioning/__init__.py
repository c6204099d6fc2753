"""Starting managed SPUs: the provisioner interface, and one for processes on the SC's own host.

The controllers say which SPUs are to run by which spec (`ProvisionSpu`, `EndSpu`). A provisioner
runs them, lists them in `Provisioning.spus` with what prevents them from running, and wakes the
SPU's key whenever that changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from sc.controllers.actions import ProvisionAction
from sc.store.view import Provisioning


class SecretIssuer(Protocol):
    """Where a provisioner gets the secrets of its SPUs."""

    async def knows(self, spu_id: int, secret: str) -> bool:
        """Whether this is the SPU's secret. Raises RunnelError."""

    async def issue(self, spu_id: int, by: str) -> str:
        """A new secret of an SPU. Raises RunnelError."""


class Provisioner(ABC):
    """Runs managed SPUs somewhere."""

    @property
    @abstractmethod
    def provisioning(self) -> Provisioning:
        """For the view; its ``spus`` changes as things happen."""

    @abstractmethod
    def carry_out(self, action: ProvisionAction) -> None:
        """Begin to carry out an action; never waits."""

    @abstractmethod
    async def adopt(self) -> None:
        """Take over SPUs that an earlier SC left running. Call it before the first `carry_out`."""

    @abstractmethod
    def end(self) -> None:
        """Stop supervising; the SPUs continue to run."""

    @abstractmethod
    async def close(self) -> None:
        """`end`, and wait for what is under way: to stop a process takes up to half a minute."""
