"""What an SC of an earlier version is told instead of what it does not know. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.control.messages import (
    SEAL_PROTOCOL,
    Hello,
    HelloPart,
    Message,
    ReplicaReport,
    Report,
    understands,
)


def for_protocol(message: Message, protocol: str | None) -> Message:
    """A message to an SC that selected a subprotocol, None for one that selected none."""
    if understands(protocol, SEAL_PROTOCOL):
        return message
    match message:
        case Hello():
            return hello_for(message, protocol)
        case HelloPart(replicas=replicas) | Report(replicas=replicas):
            return message.model_copy(update={"replicas": _unsealed(replicas)})
        case _:
            return message


def hello_for(hello: Hello, protocol: str | None) -> Hello:
    """The same for the message that begins a session."""
    if understands(protocol, SEAL_PROTOCOL):
        return hello
    return hello.model_copy(update={"seals": None, "replicas": _unsealed(hello.replicas)})


def _unsealed(replicas: Iterable[ReplicaReport]) -> tuple[ReplicaReport, ...]:
    """It has never heard of seals."""
    return tuple(
        one if one.sealed is None else one.model_copy(update={"sealed": None}) for one in replicas
    )
