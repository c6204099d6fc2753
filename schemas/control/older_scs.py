"""What an SC of an earlier version is told instead of what it does not know. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.control.messages import (
    LOAD_PROTOCOL,
    SEAL_PROTOCOL,
    UNCLEAN_PROTOCOL,
    Hello,
    HelloPart,
    Message,
    ReplicaReport,
    Report,
    understands,
)


def for_protocol(message: Message, protocol: str | None) -> Message:
    """A message to an SC that selected a subprotocol, None for one that selected none."""
    if understands(protocol, UNCLEAN_PROTOCOL):
        return message
    match message:
        case Hello():
            return hello_for(message, protocol)
        case HelloPart(replicas=replicas) | Report(replicas=replicas):
            return message.model_copy(update={"replicas": _known(replicas, protocol)})
        case _:
            return message


def hello_for(hello: Hello, protocol: str | None) -> Hello:
    """The same for the message that begins a session."""
    if understands(protocol, UNCLEAN_PROTOCOL):
        return hello
    seals = hello.seals if understands(protocol, SEAL_PROTOCOL) else None
    return hello.model_copy(update={"seals": seals, "replicas": _known(hello.replicas, protocol)})


def _known(replicas: Iterable[ReplicaReport], protocol: str | None) -> tuple[ReplicaReport, ...]:
    """It asks for no unclean elections; an older one has never heard of loads, or of seals
    either."""
    unknown: dict[str, None] = {"unclean_term": None}
    if not understands(protocol, LOAD_PROTOCOL):
        unknown["load"] = None
    if not understands(protocol, SEAL_PROTOCOL):
        unknown["sealed"] = None
    return tuple(
        one
        if all(getattr(one, name) is None for name in unknown)
        else one.model_copy(update=unknown)
        for one in replicas
    )
