"""Shared values by their names, as the fold of merge patches. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runnel.records.record import MAX_TIME_US
from runnel.state_log.fold import read_number, read_text
from schemas.errors import InvalidRequestError, UnsupportedError
from schemas.merge_patch import merge

MAX_BYTES: Final = 1 << 20
"""Of a value as JSON."""
MAX_DEPTH: Final = 100
"""Of mappings and lists in each other: every client has to read them."""

Change = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""Gives the merge patch that changes a value, or None to leave it."""


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A value, who changed it last, and when, in microseconds since 1970. ``version`` counts its
    changes."""

    value: dict[str, Any]
    version: int
    by: str
    at_us: int


SharedValues = dict[str, SharedValue]
"""By name."""


@dataclass(frozen=True, slots=True)
class Patched:
    name: str
    patch: dict[str, Any]
    by: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Deleted:
    name: str


Update = Patched | Deleted


class SharedValuesState:
    """`SharedValues` as a `runnel.state_log.fold.StateType`."""

    def empty(self) -> SharedValues:
        return {}

    def apply(self, state: SharedValues, update: Update) -> SharedValues:
        """The state after an update; ``state`` itself is changed."""
        if isinstance(update, Deleted):
            state.pop(update.name, None)
            return state
        before = state.get(update.name)
        state[update.name] = SharedValue(
            merge({} if before is None else before.value, update.patch),
            1 if before is None else before.version + 1,
            update.by,
            update.at_us,
        )
        return state

    def pack_state(self, state: SharedValues) -> Any:
        return [[name, one.value, one.version, one.by, one.at_us] for name, one in state.items()]

    def read_state(self, data: Any) -> SharedValues:
        """Raises ValueError, TypeError for what `pack_state` does not write."""
        return {
            read_text(name): SharedValue(
                _mapping(value), read_number(version), read_text(by), read_number(at, MAX_TIME_US)
            )
            for name, value, version, by, at in data
        }

    def pack_update(self, update: Update) -> Any:
        if isinstance(update, Deleted):
            return {"kind": "deleted", "name": update.name}
        return {
            "kind": "patched",
            "name": update.name,
            "patch": update.patch,
            "by": update.by,
            "at": update.at_us,
        }

    def read_update(self, data: Any) -> Update:
        """Raises UnsupportedError for a kind of update that this version does not know, ValueError,
        TypeError, KeyError for what `pack_update` does not write."""
        match data["kind"]:
            case "deleted":
                return Deleted(read_text(data["name"]))
            case "patched":
                return Patched(
                    read_text(data["name"]),
                    _mapping(data["patch"]),
                    read_text(data["by"]),
                    read_number(data["at"], MAX_TIME_US),
                )
            case other:
                raise UnsupportedError(
                    f"updates {other!r} of shared states are not known to this client; upgrade it"
                )


def change_value(
    state: SharedValues, name: str, change: Change, by: str, at_us: int
) -> tuple[Update, ...]:
    """The update that a user's function makes from the value; none if it gives None, or changes
    nothing. Raises InvalidRequestError for what is no merge patch in JSON, or makes the value too
    large; errors of the function pass through."""
    known = state.get(name)
    value = {} if known is None else known.value
    patch = change(copy.deepcopy(value))
    if patch is None:
        return ()
    if not isinstance(patch, Mapping):
        raise InvalidRequestError(
            f"the change of state {name!r} gave {patch!r:.60}; give a mapping of the fields to"
            " change, with None for those to remove, or None to change nothing"
        )
    if _is_deeper(patch, MAX_DEPTH):
        raise InvalidRequestError(
            f"the change of state {name!r} has mappings or lists in each other more than"
            f" {MAX_DEPTH} deep"
        )
    try:
        plain = json.loads(json.dumps(dict(patch), allow_nan=False))
        after = merge(value, plain)
        size = len(json.dumps(after, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"the change of state {name!r} cannot be written as JSON: {error}"
        ) from error
    if size > MAX_BYTES:
        raise InvalidRequestError(
            f"state {name!r} would have {size:,} bytes, and may have {MAX_BYTES:,}: keep data in a"
            " topic, and where it is in the state"
        )
    if known is not None and after == value:
        return ()
    return (Patched(name, plain, by, at_us),)


def delete_value(state: SharedValues, name: str) -> tuple[Update, ...]:
    """The update that removes a value; none if it is not there."""
    return (Deleted(name),) if name in state else ()


def _is_deeper(value: Any, most: int) -> bool:
    """Whether mappings and lists lie in each other so deep; without recursion, which has a limit of
    its own."""
    level = [value]
    for _ in range(most + 1):
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                below.extend(one.values())
            elif isinstance(one, list | tuple):
                below.extend(one)
        if not below:
            return False
        level = below
    return True


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.60} is no mapping")
    return value
