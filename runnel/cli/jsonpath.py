"""JSONPath templates as kubectl has them: ``{range .items[*]}{.metadata.name}{"\\n"}{end}``. Pure.

A template is text with expressions in braces. An expression is a path, a quoted text, or ``range``
with a path, which ends at ``end``. What is not there gives nothing, as in kubectl. Several values
are printed with a space in between, mappings and lists as JSON.

Taken: ``$``, ``@``, ``.name``, ``['name']``, ``..name``, ``.*``, ``[*]``, ``[0]``, ``[-1]``,
``[0:2]``, ``[0:6:2]``, ``[0,2]``, ``['a','b']`` and filters, ``[?(@.a.b == "x")]``, with ``==``,
``!=``, ``<``, ``<=``, ``>``, ``>=`` or nothing, which asks whether the field is there. A dot in a
name is written ``\\.``. Source: kubernetes.io/docs/reference/kubectl/jsonpath.

Neighbours: `runnel.cli.render` prints by templates; `runnel.cli.objects.get` also sorts by a path.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import InvalidRequestError

#: Ranges within ranges; nobody reads a template with more.
_MAX_RANGES: Final = 8
_NAME: Final = re.compile(r"(?:[\w$-]|\\.)+")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_SLICE: Final = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d*))?")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Path:
    """A path, which finds any number of values in a document."""

    steps: tuple[_Step, ...]
    #: Whether it begins at the whole document, also within a range.
    from_root: bool = False

    def find(self, here: Any, root: Any) -> list[Any]:
        """The values below ``here``; none if there is nothing of that name."""
        found = [root if self.from_root else here]
        for step in self.steps:
            found = [value for one in found for value in step.find(one, root)]
        return found


@dataclass(frozen=True, slots=True)
class _Keys:
    """Entries by name or index; an index counts from the end if it is negative."""

    keys: tuple[str | int, ...]

    def find(self, value: Any, _root: Any) -> Iterator[Any]:
        for key in self.keys:
            if isinstance(key, str):
                if isinstance(value, dict) and key in value:
                    yield value[key]
            elif isinstance(value, list) and -len(value) <= key < len(value):
                yield value[key]


@dataclass(frozen=True, slots=True)
class _Every:
    """All entries of a list or mapping."""

    def find(self, value: Any, _root: Any) -> Iterable[Any]:
        return _entries(value)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some entries of a list, as Python slices it."""

    bounds: slice

    def find(self, value: Any, _root: Any) -> Iterable[Any]:
        return value[self.bounds] if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class _Below:
    """A value and all below it."""

    def find(self, value: Any, _root: Any) -> Iterator[Any]:
        yield value
        for entry in _entries(value):
            yield from self.find(entry, _root)


@dataclass(frozen=True, slots=True)
class _Filter:
    """The entries for which a comparison holds; without one, those in which the path is."""

    left: Path
    compare: Callable[[Any, Any], bool] | None
    right: Path | str | float | bool | None

    def find(self, value: Any, root: Any) -> Iterator[Any]:
        for entry in _entries(value):
            found = self.left.find(entry, root)
            if self.compare is None:
                if found:
                    yield entry
                continue
            others = self.right.find(entry, root) if isinstance(self.right, Path) else [self.right]
            if found and others and self._holds(found[0], others[0]):
                yield entry

    def _holds(self, left: Any, right: Any) -> bool:
        assert self.compare is not None  # noqa: S101 - the caller has looked
        if isinstance(left, bool) != isinstance(right, bool):
            # Python takes True for 1.
            return self.compare is operator.ne
        try:
            return self.compare(left, right)
        except TypeError:
            # A text is neither less nor more than a number.
            return False


_Step = _Keys | _Every | _Slice | _Below | _Filter


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of a template, once for each value of a path."""

    path: Path
    body: tuple[_Part, ...]


_Part = str | Path | _Range


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template."""

    parts: tuple[_Part, ...]

    def render(self, document: Any) -> str:
        """The text for a document of mappings, lists and scalars."""
        return "".join(_rendered(self.parts, document, document))


def _rendered(parts: Iterable[_Part], here: Any, root: Any) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Path():
                yield " ".join(_text(value) for value in part.find(here, root))
            case _Range():
                for value in part.path.find(here, root):
                    yield from _rendered(part.body, value, root)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _entries(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def parse_template(text: str) -> Template:
    """A template; one without braces that begins as a path is that path.

    Raises InvalidRequestError that names the column.
    """
    if "{" not in text and text[:1] in (".", "$", "["):
        return Template((parse_path(text),))
    parser = _Parser(text, "jsonpath")
    parts = parser.parts(0)
    return Template(parts)


def parse_path(text: str, what: str = "jsonpath") -> Path:
    """A path alone, also in braces or without its first dot; ``what`` names it in errors.

    Raises InvalidRequestError that names the column.
    """
    inner = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
    if inner[:1] not in (".", "$", "[", "@"):
        inner = f".{inner}"
    parser = _Parser(inner, what)
    path = parser.path()
    parser.expect_end()
    return path


class _Parser:
    """Reads a text from left to right."""

    def __init__(self, text: str, what: str) -> None:
        self._text = text
        self._what = what
        self._at = 0

    def parts(self, ranges: int) -> tuple[_Part, ...]:
        """Parts up to the end of the text, or, within a range, behind its ``{end}``."""
        found: list[_Part] = []
        while self._at < len(self._text):
            brace = self._text.find("{", self._at)
            end = len(self._text) if brace < 0 else brace
            if end > self._at:
                found.append(self._text[self._at : end])
            self._at = end
            if brace < 0:
                break
            self._at += 1
            self._skip_spaces()
            if self._word("end"):
                if not ranges:
                    raise self._error("end without range")
                self._closing_brace()
                return tuple(found)
            found.append(self._expression(ranges))
        if ranges:
            raise self._error("a range has no {end}")
        return tuple(found)

    def _expression(self, ranges: int) -> _Part:
        if self._word("range"):
            if ranges == _MAX_RANGES:
                raise self._error(f"more than {_MAX_RANGES} ranges within each other")
            path = self.path()
            self._closing_brace()
            return _Range(path, self.parts(ranges + 1))
        part: _Part = self._quoted() if self._peek() in ("'", '"') else self.path()
        self._closing_brace()
        return part

    def path(self) -> Path:
        """A path, up to what cannot belong to it."""
        self._skip_spaces()
        begin, steps = self._at, list[_Step]()
        from_root = self._take("$")
        if not from_root:
            self._take("@")
        while True:
            if self._take(".."):
                steps.append(_Below())
                if self._peek() != "[":
                    steps.append(self._named())
            elif self._take("."):
                if self._peek() not in ("", "}", "[", " ", ")"):
                    steps.append(self._named())
            elif self._take("["):
                steps.append(self._bracket())
            else:
                break
        if self._at == begin:
            raise self._error("a path is expected, such as .metadata.name")
        return Path(tuple(steps), from_root)

    def expect_end(self) -> None:
        self._skip_spaces()
        if self._at < len(self._text):
            raise self._error(f"{self._text[self._at]!r} is not understood")

    def _named(self) -> _Step:
        if self._take("*"):
            return _Every()
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("the name of a field is expected")
        self._at = found.end()
        return _Keys((re.sub(r"\\(.)", r"\1", found[0]),))

    def _bracket(self) -> _Step:
        """What is in brackets, behind the first one."""
        self._skip_spaces()
        step: _Step
        if self._take("*"):
            step = _Every()
        elif self._take("?("):
            step = self._filter()
        elif found := _SLICE.match(self._text, self._at):
            self._at = found.end()
            bounds = [int(one) if one else None for one in found.groups()]
            if bounds[2] is not None and bounds[2] < 1:
                raise self._error("the step of a slice is 1 or more")
            step = _Slice(slice(*bounds))
        else:
            keys = [self._key()]
            while self._take(","):
                keys.append(self._key())
            step = _Keys(tuple(keys))
        self._skip_spaces()
        if not self._take("]"):
            raise self._error("a closing bracket is expected")
        return step

    def _key(self) -> str | int:
        self._skip_spaces()
        if self._peek() in ("'", '"'):
            return self._quoted()
        found = re.compile(r"-?\d+").match(self._text, self._at)
        if found is None:
            raise self._error("an index, a quoted name, * or a filter is expected")
        self._at = found.end()
        return int(found[0])

    def _filter(self) -> _Filter:
        """A filter behind ``?(``."""
        left = self.path()
        self._skip_spaces()
        compare, right = None, None
        for sign, function in _COMPARISONS.items():
            if self._take(sign):
                compare, right = function, self._operand()
                break
        self._skip_spaces()
        if not self._take(")"):
            raise self._error("a comparison (== != < <= > >=) or a closing parenthesis is expected")
        return _Filter(left, compare, right)

    def _operand(self) -> Path | str | float | bool | None:
        self._skip_spaces()
        if self._peek() in ("'", '"'):
            return self._quoted()
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return float(found[0]) if "." in found[0] else int(found[0])
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self._word(word):
                return value
        if self._peek() in ("@", "$", "."):
            return self.path()
        raise self._error("a quoted text, a number, true, false, null or a path is expected")

    def _quoted(self) -> str:
        quote, found = self._text[self._at], list[str]()
        self._at += 1
        while self._peek() != quote:
            if self._take("\\"):
                escaped = self._peek()
                found.append(_ESCAPES.get(escaped, escaped))
            else:
                found.append(self._peek())
            if not self._peek():
                raise self._error(f"a text has no closing {quote}")
            self._at += 1
        self._at += 1
        return "".join(found)

    def _closing_brace(self) -> None:
        self._skip_spaces()
        if not self._take("}"):
            shown = repr(self._peek()) if self._peek() else "the end"
            raise self._error(f"a closing brace is expected, not {shown}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _word(self, word: str) -> bool:
        """Take a whole word."""
        found = re.compile(rf"{word}(?!\w)").match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found is not None

    def _skip_spaces(self) -> None:
        while self._peek() == " ":
            self._at += 1

    def _error(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._what} {self._text!r}, column {self._at + 1}: {why}")
