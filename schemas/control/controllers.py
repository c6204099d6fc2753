"""SCs of a cluster: what each says of itself, and what clients are told of all."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from schemas.model import Model


class ControllerRole(StrEnum):
    """The leader decides, and has the sessions of SPUs; a standby serves reads and waits."""

    LEADER = "leader"
    STANDBY = "standby"


class ControllerEntry(Model):
    """What an SC says of itself to the others. ``public`` and ``private``: the addresses at which
    clients and SPUs reach it (HOST:PORT). ``since``: when it began (ISO 8601, UTC). ``instance``
    names the process; ``pid``, ``started`` and ``pid_namespace`` tell others on the same machine
    whether it lives. ``provisions``: the host and the directory of the SPUs that it starts, if it
    starts any. ``shares``: it works for its part of the streams, whether it leads or not."""

    name: str
    public: str
    private: str
    version: str
    since: str
    instance: str
    provisions: str | None = None
    pid: int = 0
    started: str = ""
    pid_namespace: str = ""
    shares: bool = False

    @classmethod
    def decode(cls, value: bytes) -> Self | None:
        """From the stored form; None for one that does not parse. A later version may say more."""
        try:
            return cls.model_validate_json(value, extra="ignore")
        except ValueError:
            return None


class ControllerAnswer(Model):
    """One SC as clients see it. ``buckets``: for how many parts of the streams it works."""

    name: str
    role: ControllerRole
    public: str
    private: str
    version: str
    since: str
    buckets: int = 0

    @classmethod
    def of(cls, entry: ControllerEntry, role: ControllerRole, buckets: int) -> Self:
        """What clients are told of an SC that says this of itself."""
        return cls(
            name=entry.name,
            role=role,
            public=entry.public,
            private=entry.private,
            version=entry.version,
            since=entry.since,
            buckets=buckets,
        )


class ControllersAnswer(Model):
    """All SCs that run, in the order of their names. ``asked``: the one that answers."""

    items: tuple[ControllerAnswer, ...]
    asked: str
