"""Names, sizes and durations as manifests write them.

`Size` fields accept ``2Gi``, ``512Mi``, ``10M`` or a number of bytes; `Duration` fields accept
``7d``, ``1h30m``, ``250ms`` or a number of seconds. Models hold bytes and milliseconds; YAML
and JSON show the shortest exact text, so that what is read back can be applied again.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic_core import core_schema

NAME_PATTERN = r"^[A-Za-z0-9._-]{1,249}$"
SCOPED_NAME_PATTERN = r"^[A-Za-z0-9._-]{1,249}(/[A-Za-z0-9._-]{1,249})?$"
MAX_NAME_LENGTH = 249
#: The scope of what is named without one; it always exists.
DEFAULT_SCOPE = "default"
#: Sizes and durations fit a signed 64-bit integer wherever they are sent.
MAX_QUANTITY = 2**63 - 1
#: Longer text cannot be a quantity in range, and is not parsed.
_MAX_TEXT = 64

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*(Ki|Mi|Gi|Ti|Pi|[kKMGTP])?[bB]?", re.ASCII)
_UNIT_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])", re.ASCII)


def parse_size(value: Any) -> int:
    """Bytes of a size. Raises ValueError that says what is accepted."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(_text(value))):
        unit = match[2] or ""
        # Exact: a float cannot hold every number of bytes.
        size = int(Fraction(match[1]) * (_BINARY.get(unit) or _DECIMAL.get(unit) or 1))
    else:
        raise ValueError(
            f"{short(value)} is not a size; write bytes or a number with Ki, Mi, Gi, Ti: 2Gi"
        )
    if size < 0:
        raise ValueError("a size cannot be negative")
    if size > MAX_QUANTITY:
        raise ValueError("a size is at most 8191Pi")
    return size


def format_size(size: int) -> str:
    """The shortest exact text of a size in bytes."""
    for unit, factor in reversed(_BINARY.items()):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def readable_size(size: int) -> str:
    """A size in bytes for a reader, rounded, in a unit that fits it: ``41.4 MiB``."""
    for unit, factor in reversed(_BINARY.items()):
        if size >= factor:
            return f"{size / factor:.1f} {unit}B"
    return f"{size} {'byte' if size == 1 else 'bytes'}"


class Millis(int):
    """Milliseconds that were parsed already: unlike a bare number, they are not seconds."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Shown as a duration, also where JSON Schema prints a default."""
        shown = core_schema.plain_serializer_function_ser_schema(format_duration)
        return core_schema.no_info_plain_validator_function(parse_duration_ms, serialization=shown)


def parse_duration_ms(value: Any) -> Millis:
    """Milliseconds of a duration. A bare number counts seconds. Raises ValueError."""
    total: Fraction | int
    if isinstance(value, Millis):
        return value
    refusal = f"{short(value)} is not a duration; write for example 7d, 1h30m, 15s, 250ms"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(refusal)
        total = Fraction(value) * 1000
    elif isinstance(value, str):
        text = _text(value)
        if _NUMBER.fullmatch(text):
            total = Fraction(text) * 1000
        else:
            parts = _DURATION.findall(text)
            if not parts or "".join(n + u for n, u in parts) != text:
                raise ValueError(refusal)
            total = sum(Fraction(number) * _UNIT_MS[unit] for number, unit in parts)
    else:
        raise ValueError(refusal)
    if total < 0:
        raise ValueError("a duration cannot be negative")
    if total > MAX_QUANTITY:
        raise ValueError(f"a duration is at most {MAX_QUANTITY // _UNIT_MS['d']}d")
    return Millis(round(total))


def format_duration(ms: int) -> str:
    """The shortest exact text of a duration in milliseconds, in one unit."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _UNIT_MS[unit] == 0:
            return f"{ms // _UNIT_MS[unit]}{unit}"
    return f"{ms}ms"


def is_number(value: object) -> bool:
    """Is it a number? Python's booleans are not meant as such."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_name(value: Any) -> str:
    """The one rule for names of every kind. Raises ValueError that says what is allowed."""
    if not isinstance(value, str):
        raise ValueError(f'a name is text; write it in quotes: "{shortened(str(value))}"')
    # fullmatch, because match() with $ also accepts a newline at the end.
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(
            f"{short(value)} is not a valid name;"
            f" use 1 to {MAX_NAME_LENGTH} of the characters A-Z a-z 0-9 . _ -"
        )
    if value in {".", ".."}:
        raise ValueError(f"{value!r} is not a valid name; . and .. are reserved")
    return value


def check_scoped_name(value: Any) -> str:
    """The name of an object in a scope, as SCOPE/NAME; a name alone is in the scope ``default``.
    Raises ValueError."""
    if not isinstance(value, str):
        return check_name(value)
    scope, slash, name = value.partition("/")
    if not slash:
        return f"{DEFAULT_SCOPE}/{check_name(value)}"
    try:
        return f"{check_name(scope)}/{check_name(name)}"
    except ValueError as error:
        raise ValueError(f"{short(value)} is not SCOPE/NAME: {error}") from None


def check_owner_name(value: Any) -> str:
    """The name of an object, in a scope or not. Raises ValueError."""
    scoped = isinstance(value, str) and "/" in value
    return check_scoped_name(value) if scoped else check_name(value)


def _text(value: str) -> str:
    """A quantity's text without surrounding spaces; empty, so that it is refused, when too long."""
    text = value.strip()
    return text if len(text) <= _MAX_TEXT else ""


def short(value: Any) -> str:
    """A value for an error message: on one line, and shortened."""
    return shortened(repr(value))


def shortened(text: str, length: int = _MAX_TEXT) -> str:
    """The beginning of a text, with an ellipsis if it goes on."""
    return text if len(text) <= length else f"{text[:length]}…"


Name = Annotated[
    str, BeforeValidator(check_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})
]
ScopedName = Annotated[
    str,
    BeforeValidator(check_scoped_name),
    WithJsonSchema({"type": "string", "pattern": SCOPED_NAME_PATTERN}),
]
OwnerName = Annotated[
    str,
    BeforeValidator(check_owner_name),
    WithJsonSchema({"type": "string", "pattern": SCOPED_NAME_PATTERN}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "format": "size",
            "description": "bytes, or a number with Ki, Mi, Gi, Ti",
        }
    ),
]
DurationMs = Annotated[
    int,
    BeforeValidator(parse_duration_ms),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "format": "duration",
            "description": "seconds, or for example 7d, 1h30m, 250ms",
        }
    ),
]
