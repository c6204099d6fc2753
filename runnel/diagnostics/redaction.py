"""Removes secrets from what goes into an archive. Pure.

Three nets, because a secret may be anywhere. Values that are known to be secret (files of secrets
on this host, passwords in URLs that were read) are removed wherever they appear. A value whose
field, variable or header has a telling name is removed whatever it is. And so is what looks like a
secret: passwords in URLs, tokens, private keys.

What has structure is cleaned by structure (`Redactor.structure`), and everything passes
`Redactor.text` at the end. A redaction that removes too much costs a detail, one that removes too
little costs a secret; so the patterns are broad.

Neighbour: `runnel.diagnostics.archive` lets nothing into an archive that did not pass here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

#: What stands in place of a secret.
REMOVED: Final = "***"
#: A shorter known value would be found in the middle of ordinary words.
MIN_KNOWN: Final = 4

_TELLING: Final = (
    r"(?:password|passwd|passphrase|passcode|secret|token|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|signing[-_]?key|encryption[-_]?key|credential|authorization|cookie"
    r"|(?<![a-z])(?:pass|pwd)(?![a-z]))"
)
_TELLING_NAME: Final = re.compile(rf"(?i){_TELLING}")
#: Names of files and of switches, which hold no secret themselves.
_HARMLESS_NAME: Final = re.compile(r"(?i)(?:file|path|dir|directory|count|ms|seconds|bytes)$")
_HARMLESS_VALUE: Final = re.compile(r"(?i)(?:true|false|null|none|yes|no|\*{3}|)$")

_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    (?P<name> [\w.-]* {_TELLING} [\w.-]*)
    (?P<sign> \\?["']? \s* (?: = | : (?!//) ) \s*)
    (?P<value> (?: (?:bearer|basic|digest) \s+ )? (?: \\?"[^"]*" | '[^']*' | [^\s,;"'}}&]+ ) )
    """
)
_OPTION: Final = re.compile(rf"(?i)((?<![\w-])--?[\w-]*{_TELLING}[\w-]*\s+)([^\s\-][^\s]*)")
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
#: Up to the last `@` before a blank or a quote: a password may hold every other character.
_URL_PASSWORD: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/?#:@\"'<>]*):[^\s\"'<>]*@")
_URL_TOKEN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#:@\"'<>,]{20,}@")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_TOKEN_SHAPES: Final = re.compile(
    r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(?:gh[pousr]|github_pat|glpat|xox[abprs]|sk|pypi)[-_][\w-]{16,}"
)
#: What random generators print. Names, paths and ids of ours do not mix all three kinds of letters.
_RANDOM: Final = re.compile(r"(?<![\w+=-])[\w+=-]{32,}(?![\w+=-])")
_URL_WITH_PASSWORD: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#:]*:(.*)@", re.DOTALL)


class Redactor:
    """Removes secrets; ``removed`` counts how many."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.removed = 0
        self.learn(known)

    def learn(self, values: Iterable[str]) -> None:
        """Remove these values from now on, wherever they appear, also as JSON spells them.
        Values of fewer than `MIN_KNOWN` characters are left out."""
        for value in values:
            for spelt in (value, value.strip(), json.dumps(value)[1:-1]):
                if len(spelt) >= MIN_KNOWN:
                    self._known.add(spelt)
        longest_first = sorted(self._known, key=lambda value: (-len(value), value))
        if longest_first:
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        """A text of any kind without secrets."""
        if self._pattern is not None:
            text = self._replaced(self._pattern, REMOVED, text)
        text = self._replaced(_PRIVATE_KEY, REMOVED, text)
        text = self._replaced(_URL_PASSWORD, rf"\1:{REMOVED}@", text)
        text = self._replaced(_URL_TOKEN, rf"\1{REMOVED}@", text)
        text = _ASSIGNED.sub(self._assigned, text)
        text = self._replaced(_OPTION, rf"\1{REMOVED}", text)
        text = self._replaced(_SCHEME, rf"\1 {REMOVED}", text)
        text = self._replaced(_TOKEN_SHAPES, REMOVED, text)
        return _RANDOM.sub(self._random, text)

    def structure(self, value: Any, name: str = "") -> Any:
        """A copy of a JSON-like value without secrets. ``name`` is that of the field it is of."""
        match value:
            case Mapping():
                # What stands below a telling name is as secret.
                above = f"{name}." if is_telling(name) else ""
                return {
                    self.text(str(key)): self.structure(below, f"{above}{key}")
                    for key, below in value.items()
                }
            case list() | tuple():
                return [self.structure(item, name) for item in value]
            case None | bool():
                return value
        if is_telling(name) and not _HARMLESS_VALUE.match(str(value)):
            self.removed += 1
            return REMOVED
        if not isinstance(value, str):
            return value
        return self.text(self._url(value))

    def _url(self, value: str) -> str:
        """A value that is a URL, whose password may hold blanks and quotes here."""
        match = _URL_WITH_PASSWORD.match(value)
        if match is None or match[1] == REMOVED:
            return value
        self.removed += 1
        return value[: match.start(1)] + REMOVED + value[match.end(1) :]

    def _replaced(self, pattern: re.Pattern[str], by: str, text: str) -> str:
        after, count = pattern.subn(by, text)
        self.removed += count
        return after

    def _assigned(self, match: re.Match[str]) -> str:
        value = match["value"]
        if not is_telling(match["name"]) or _HARMLESS_VALUE.match(value.strip("\"'\\")):
            return match[0]
        self.removed += 1
        quote = value[0] if value[0] in "\"'" else '\\"' if value.startswith('\\"') else ""
        return f"{match['name']}{match['sign']}{quote}{REMOVED}{quote}"

    def _random(self, match: re.Match[str]) -> str:
        found = match[0]
        kinds = (str.isdigit, str.islower, str.isupper)
        if not all(any(map(kind, found)) for kind in kinds):
            return found
        self.removed += 1
        return REMOVED


def is_telling(name: str) -> bool:
    """Whether a field, variable or header of this name holds a secret."""
    return _TELLING_NAME.search(name) is not None and not _HARMLESS_NAME.search(name)


def passwords_of(value: Any) -> list[str]:
    """The passwords in URLs anywhere in a JSON-like value, and the values of telling fields."""
    found: list[str] = []

    def look(value: Any, name: str) -> None:
        match value:
            case Mapping():
                for key, below in value.items():
                    look(below, str(key))
            case list() | tuple():
                for below in value:
                    look(below, name)
            case str():
                if (url := _URL_WITH_PASSWORD.match(value)) is not None:
                    found.append(url[1])
                if is_telling(name) and not _HARMLESS_VALUE.match(value):
                    found.append(value)

    look(value, "")
    return found
