"""`schemas.replacing.replace` does what the one of the standard library does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.replacing import replace


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Inherited(Slotted):
    d: str = "d"


@dataclass(frozen=True)
class WithoutSlots:
    a: int


@dataclass(frozen=True, slots=True)
class Checked:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")


@pytest.mark.parametrize(
    ("obj", "changes"),
    [
        pytest.param(Slotted(1, (2,), [3]), {}, id="nothing"),
        pytest.param(Slotted(1, (2,), [3]), {"a": 9}, id="one"),
        pytest.param(Slotted(1), {"a": 9, "b": (1,), "c": [4]}, id="all"),
        pytest.param(Inherited(1, d="x"), {"a": 2, "d": "y"}, id="inherited"),
        pytest.param(WithoutSlots(1), {"a": 2}, id="without-slots"),
        pytest.param(Checked(1), {"a": 2}, id="checked"),
    ],
)
def test_replace(obj: Any, changes: dict[str, Any]) -> None:
    before = dataclasses.replace(obj)
    made = replace(obj, **changes)
    assert made == dataclasses.replace(obj, **changes)
    assert type(made) is type(obj)
    assert made is not obj
    assert obj == before


def test_given_mutable_fields_then_they_are_shared_as_before() -> None:
    obj = Slotted(1)
    assert replace(obj, a=2).c is obj.c


def test_given_no_such_field_then_refused() -> None:
    changes: dict[str, Any] = {"x": 1}
    for obj in (Slotted(1), WithoutSlots(1)):
        with pytest.raises(TypeError, match="x"):
            replace(obj, **changes)


def test_given_a_check_then_it_is_made() -> None:
    with pytest.raises(ValueError, match="negative"):
        replace(Checked(1), a=-1)
