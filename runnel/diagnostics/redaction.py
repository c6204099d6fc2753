"""Removes secrets from what goes into an archive. Pure.

Three nets, because a secret may be anywhere. Values that are known to be secret (files of secrets
on this host, passwords in URLs that were read) are removed wherever they appear. A value whose
field, variable or header has a telling name is removed whatever it is. And so is what looks like a
secret: passwords in URLs, tokens, private keys.

What has structure is cleaned by structure (`Redactor.structure`), and everything passes
`Redactor.text` at the end, which leaves JSON what it is. A redaction that removes too much costs a
detail, one that removes too little costs a secret; so the patterns are broad.

Texts are long, and of anybody's making. So no search here begins again in what it has already
looked through: repeats that have no bound are possessive (``*+``) and begin at a fixed word or
where a run of their characters begins.

Neighbour: `runnel.diagnostics.archive` lets nothing into an archive that did not pass here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import groupby
from typing import Any, Final

#: What stands in place of a secret.
REMOVED: Final = "***"
#: A shorter known value would be found in the middle of ordinary words.
MIN_KNOWN: Final = 4
#: Structures that are deeper are not looked through, but removed.
MAX_DEPTH: Final = 100

# ``bypass`` and ``compass`` are words; ``dbpass`` and ``dbPass`` are not.
_TELLING: Final = (
    r"(?:password|passwd|passphrase|passcode|secret|token|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|signing[-_]?key|encryption[-_]?key|credential|authorization|cookie"
    r"|signature|(?<!old)pwd(?![a-z])|psk(?![a-z])|(?<![a-z])(?:sig|pw)(?![a-z])|(?-i:Pw(?![a-z]))"
    r"|(?<=db)pw(?![a-z])"
    r"|(?<!by)(?<!com)(?<!over)(?<!under)(?<!tres)(?<!sur)(?<!multi)(?<!sub)(?<!im)"
    r"pass(?:(?![a-z])|(?-i:(?=[A-Z]))))"
)
_TELLING_NAME: Final = re.compile(rf"(?i){_TELLING}")
#: Words that only begin like a telling name.
_ORDINARY_NAME: Final = re.compile(r"(?i)tokeni[sz]\w{0,10}$")
#: Names of files, places and numbers, which hold no secret themselves.
_HARMLESS_NAME: Final = re.compile(
    r"(?i)(?:(?P<file>file)|(?P<place>path|dir|directory)"
    r"|count|seconds|bytes|[_.-]ms|(?-i:[a-z]Ms))$"
)
_NUMBER: Final = re.compile(r"[\d.]+\s?\w{0,3}")
_HARMLESS_VALUE: Final = re.compile(r"(?i)(?:true|false|null|none|yes|no|\*{3}|)\Z")

# Names, and what may stand between them and their values.
_NAME: Final = re.compile(rf"(?i){_TELLING}[\w.-]*+")
_SIGN: Final = re.compile(
    r"""(?x)
    (?P<quote> \\{0,7} ["'] )?+ \]?+ \s*+ (?: :=|=>|=|:(?!//) ) [^\S\n]*+
    # {"name": "password", "value": …}
    | (?: \\{0,7} ["'] )? [\s,;]{1,40} \\{0,7} ["']? (?i:values?) (?P<second> \\{0,7} ["'] )?+
      \s*+ [=:] [^\S\n]*+
    """
)
_OPTION: Final = re.compile(r"(?<![\w-])-{1,8}\w[\w-]*+")
#: After an option there is its value, unless there is another option.
_OPTION_SIGN: Final = re.compile(
    r"""\s++(?!["']?--)|\\{0,7}["']\s*+,\s*+(?=[bBuU]?\\{0,7}["'](?!--))"""
)
_TO_A_BLANK: Final = re.compile(r"""(?:[^\s"'\\]|["'\\](?=\w))*+""")
_IS_OPTION: Final = re.compile(r"--?\w[\w-]*")

# Values. What is not in quotes ends before what looks like the next name.
_STRING: Final = r""" "(?:[^"\\]|\\.|"")*+" | '(?:[^'\\]|\\.|'')*+' """
_QUOTED: Final = re.compile(
    r"""(?xs) (?P<open> [bBuUrRfF]{0,2} (?P<quote> ["'] ) ) (?:(?<=")(?:[^"\\]|\\.|"")*+"
    | (?<=')(?:[^'\\]|\\.|'')*+')
    # Of JSON in JSON, at any depth.
    | (?P<escaped> \\{1,7} ["'] ) (?: (?! (?<!\\)(?P=escaped) ) . )*+ (?P=escaped)
    """
)
_STARTS_QUOTED: Final = re.compile(r"""[bBuUrRfF]{0,2}["']|\\{1,7}["']""")
_BARE: Final = re.compile(
    r"""(?x)
    (?: (?:bearer|basic|token|apikey|negotiate) [^\S\n]++ (?=[^\s,;"'&}]) )?+
    (?: (?: (?!\\["']) [^\s,;"'}&] )++ | ["'}](?=\w) | \\["'](?=\w)
      | [,;&] (?! [\s"',;&}] | \Z | [\w.-]{1,64} [^\S\n]{0,4} ["']? [=:] ) )++
    """,
    re.IGNORECASE,
)
#: Headers whose values have many parts.
_PARTS: Final = re.compile(r"(?i)(?:digest|hawk|oauth|signature|aws4-hmac-sha256)[^\S\n]")
_TO_ITS_END: Final = re.compile(r"""(?:=\\?"[^"\n]*+"|[^\n"'])++""")
_IN_BRACKETS: Final = re.compile(rf"(?xs) [\[({{] | [\])}}] | {_STRING}")
_MAX_BRACKETS: Final = 10_000
_MAX_NESTED: Final = 20
_NOTHING_INSIDE: Final = re.compile(r"""[\s\[\](){},:"'\\*]*$""")

# A value that is on lines of its own, as in YAML.
_BLOCK: Final = re.compile(
    r"(?:!!\w++[^\S\n]*+)?+(?P<text>[|>][-+\d]{0,3})?+[^\S\n]*+(?:\#\s[^\n]*+)?+\n"
)
_NEXT_NAME: Final = re.compile(r"""[ \t]*+["']?[\w.-]{1,64}["']?[ \t]{0,4}(?:=[^\s=]|:(?!\S))""")
_BEFORE_NAME: Final = re.compile(r"[ \t]*+(?:- ++)*+")
_BLOCK_LINE: Final = re.compile(
    r"""(?P<before> [ \t]*+ (?: [-?:][ ]++ )*+ (?: ["']?[\w./-]{1,80}["']?: (?:[ ]++|$) )?+ )
    (?P<value> .*)""",
    re.VERBOSE,
)
_HARMLESS_LINE: Final = re.compile(
    r"""(?i)(?:["']?(?:true|false|null|none|yes|no|\*{3}|)["']?|[|>][-+\d]{0,3}|\[\]|\{\}"""
    r"""|.*:\ ["']\*{3}["'])\s*$"""
)

# URLs, from their ``://`` on.
_URL_RUN: Final = re.compile(r"[^\s\"'<>]*+")
_URL_USER: Final = re.compile(r"[^\s/?#:@\"'<>]*+")
#: A password may hold a blank or a quote; then this is up to its `@`. Ports are no passwords.
_URL_FURTHER: Final = re.compile(r":(?!\d{1,5}(?:[/?#,;.)\]\s\"'<>]|$))[^\n@<>]{1,100}@(?=[\w\[])")
_WEB: Final = re.compile(r"(?i)(?:https?|wss?|ftps?)$")
_LONG_USER: Final = 20
_URL_WITH_PASSWORD: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#:]*:(.*)@", re.DOTALL)

# What looks like a secret.
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic)\s++[A-Za-z0-9._~+/=-]{8,}+")
_KEY_NAME: Final = r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY: Final = re.compile(
    rf"-----BEGIN {_KEY_NAME}.*?(?:-----END {_KEY_NAME}|\Z)", re.DOTALL
)
_KEY_END: Final = re.compile(rf"-----END {_KEY_NAME}")
_KEY_BODY: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\ \t\r\n"
_JWT: Final = re.compile(r"\beyJ[\w-]*+(\.[\w-]++\.[\w-]*+)?+")
_TOKEN_SHAPES: Final = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(?:gh[pousr]|github_pat|glpat|xox[abprs]|sk|pypi)[-_][\w-]{16,}+"
    r"|\bAIza[\w-]{35}|\b(?:npm|hf)_[A-Za-z0-9]{20,}+"
)
_SLACK: Final = re.compile(r"(hooks\.slack\.com/services/)[\w/-]++")
#: What random generators print. Names, paths and ids of ours do not mix all three kinds of letters.
_RANDOM: Final = re.compile(r"(?<![\w+=-])[\w+=-]{32,}+")

#: Lines that end so go on in the next one.
_GOES_ON: Final = (":", "=", "[", "(", "{", ",", "|", ">", "\\")
#: Fields that name something, and those that hold its value.
_LABELS: Final = frozenset({"name", "key"})
_VALUES: Final = frozenset({"value", "values"})


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
            as_json = (json.dumps(value, ensure_ascii=only)[1:-1] for only in (True, False))
            for spelt in (value, value.strip(), *as_json):
                if len(spelt) >= MIN_KNOWN:
                    self._known.add(spelt)
        longest_first = sorted(self._known, key=lambda value: (-len(value), value))
        if longest_first:
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        """A text of any kind without secrets. JSON, also one document a line, stays JSON."""
        removed = self.removed
        clean = self._of_documents(text)
        if clean is None or self._holds_known(clean):
            # A known secret is part of how the JSON is written; better no JSON than a secret.
            self.removed = removed
            return self._plain(text)
        return clean

    def structure(self, value: Any, name: str = "") -> Any:
        """A copy of a JSON-like value without secrets. ``name`` is that of the field it is of."""
        return self._structure(value, _hides(name, value), 0)

    def _structure(self, value: Any, hidden: bool, depth: int) -> Any:
        """``hidden`` is whether this is the value of a telling name, or stands below one."""
        match value:
            case _ if depth > MAX_DEPTH:
                self.removed += 1
                return REMOVED
            case Mapping():
                labelled = _is_labelled(value)
                return {
                    self.text(str(key)): self._structure(
                        below,
                        hidden
                        or _hides(str(key), below)
                        or (labelled and str(key).lower() in _VALUES),
                        depth + 1,
                    )
                    for key, below in value.items()
                }
            case list() | tuple() | Set():
                items = list(value)
                after_option = [False, *map(_takes_secret, items)]
                return [
                    self._structure(
                        item, hidden or (secret and not str(item).startswith("--")), depth + 1
                    )
                    for item, secret in zip(items, after_option, strict=False)
                ]
            case bytes() | bytearray():
                value = value.decode(errors="replace")
        if not isinstance(value, str):
            plain = value is None or isinstance(value, bool)
            if (hidden and not plain) or self._is_known(value):
                self.removed += 1
                return REMOVED
            return value
        if hidden and not _HARMLESS_VALUE.match(value):
            self.removed += 1
            return REMOVED
        return self.text(self._url(value))

    def _url(self, value: str) -> str:
        """A value that is a URL, whose password may hold blanks and quotes here."""
        match = _URL_WITH_PASSWORD.match(value)
        if match is None or match[1] == REMOVED:
            return value
        self.removed += 1
        return value[: match.start(1)] + REMOVED + value[match.end(1) :]

    def _holds_known(self, text: str) -> bool:
        return self._pattern is not None and self._pattern.search(text) is not None

    def _is_known(self, value: Any) -> bool:
        """Whether a number or the like is a known secret as JSON spells it."""
        return self._pattern is not None and self._holds_known(json.dumps(value, default=str))

    def _of_documents(self, text: str) -> str | None:
        """A text that is JSON, or has lines that are; None if nothing of it is."""
        if (clean := self._document(text)) is not None:
            return clean
        lines = text.split("\n")
        cleaned: list[str | None] = []
        before = ""
        for line in lines if len(lines) > 1 else ():
            # What begins in another line is not a document.
            begins = line.startswith(("{", "[")) and not before.endswith(_GOES_ON)
            cleaned.append(self._document(line) if begins else None)
            before = line.rstrip() or before if cleaned[-1] is None else ""
        if not any(line is not None for line in cleaned):
            return None
        parts = []
        pairs = zip(lines, cleaned, strict=True)
        # Secrets in other texts may have many lines.
        for is_json, group in groupby(pairs, lambda pair: pair[1] is not None):
            if is_json:
                parts += [clean for _, clean in group if clean is not None]
            else:
                parts.append(self._plain("\n".join(line for line, _ in group)))
        return "\n".join(parts)

    def _document(self, text: str) -> str | None:
        """A JSON document; None if it is none, or if it is not worth to be read as one."""
        if text.lstrip()[:1] not in ("{", "[", '"'):
            return None
        removed = self.removed
        try:
            document = json.loads(text, object_pairs_hook=_without_doubles)
            clean = self._structure(document, hidden=False, depth=0)
            if clean == document:
                # As it was written.
                return text
            stripped = text.strip()
            indent = 2 if "\n" in stripped else None
            written = json.dumps(clean, indent=indent, ensure_ascii=text.isascii())
        except (ValueError, RecursionError):
            self.removed = removed
            return None
        start = text.index(stripped)
        return text[:start] + written + text[start + len(stripped) :]

    def _plain(self, text: str) -> str:
        """A text that is no JSON."""
        if self._pattern is not None:
            text = self._replaced(self._pattern, REMOVED, text)
        if "PRIVATE KEY" in text:
            text = self._replaced(_PRIVATE_KEY, REMOVED, text)
            text = self._ends_of_keys(text)
        if "://" in text:
            text = self._urls(text)
        text = self._assigned(text, _NAME, _SIGN)
        text = self._assigned(text, _OPTION, _OPTION_SIGN)
        text = self._replaced(_SCHEME, rf"\1 {REMOVED}", text)
        text = _JWT.sub(self._token, text)
        text = self._replaced(_TOKEN_SHAPES, REMOVED, text)
        text = self._replaced(_SLACK, rf"\1{REMOVED}", text)
        return _RANDOM.sub(self._random, text)

    def _replaced(self, pattern: re.Pattern[str], by: str, text: str) -> str:
        after, count = pattern.subn(by, text)
        self.removed += count
        return after

    def _ends_of_keys(self, text: str) -> str:
        """Without private keys whose beginning was cut off."""
        parts = []
        done = 0
        for match in _KEY_END.finditer(text):
            parts += [text[done : match.start()].rstrip(_KEY_BODY), REMOVED]
            done = match.end()
            self.removed += 1
        return "".join(parts) + text[done:]

    def _urls(self, text: str) -> str:
        """Without what stands before the `@` of URLs: passwords, and users that are tokens."""
        parts = []
        done = at = end = 0
        start = text.find("://")
        while start >= 0:
            user = start + 3
            if user > end:
                # Up to the last `@`: a password may hold every other character.
                end = _URL_RUN.match(text, user).end()  # type: ignore[union-attr]
                at = text.rfind("@", user, end)
            after_user = _URL_USER.match(text, user).end()  # type: ignore[union-attr]
            sign = text[after_user : after_user + 1]
            found: tuple[int, int] | None = None
            if sign == ":" and at > after_user:
                found = after_user + 1, at
            elif sign == ":" and text[user] != "[":
                if further := _URL_FURTHER.match(text, after_user):
                    last = text.rfind(
                        "@",
                        0,
                        _URL_RUN.match(text, further.end()).end(),  # type: ignore[union-attr]
                    )
                    found = after_user + 1, last
            elif sign == "@" and (
                after_user - user >= _LONG_USER or _WEB.search(text, max(0, start - 5), start)
            ):
                found = user, after_user
            if found is not None and found[0] >= done:
                if text[found[0] : found[1]] != REMOVED:
                    self.removed += 1
                parts += [text[done : found[0]], REMOVED]
                done = found[1]
            start = text.find("://", max(user, done))
        return "".join(parts) + text[done:]

    def _assigned(self, text: str, names: re.Pattern[str], signs: re.Pattern[str]) -> str:
        """Without the values that stand after telling names and a sign."""
        parts = []
        done = at = 0
        while (name := names.search(text, at)) is not None:
            at = name.end()
            if not _tells(name[0]) or (sign := signs.match(text, at)) is None:
                continue
            for start, end, by in _value(text, name, sign):
                parts += [text[done:start], by]
                done = at = end
                self.removed += 1
        return "".join(parts) + text[done:]

    def _token(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        self.removed += 1
        return REMOVED

    def _random(self, match: re.Match[str]) -> str:
        found = match[0]
        kinds = (str.isdigit, str.islower, str.isupper)
        if not all(any(map(kind, found)) for kind in kinds):
            return found
        self.removed += 1
        return REMOVED


def is_telling(name: str) -> bool:
    """Whether a field, variable or header of this name holds a secret."""
    return _tells(name) and not _HARMLESS_NAME.search(name)


def _tells(name: str) -> bool:
    """Whether a name is telling, also if it may be that of a file, a place or a number."""
    return _TELLING_NAME.search(name) is not None and not _ORDINARY_NAME.search(name)


def _hides(name: str, value: Any) -> bool:
    """Whether this value is secret because of its name."""
    return _tells(name) and not _is_excused(name, value)


def _is_excused(name: str, value: Any) -> bool:
    """Whether a value is what its name says: that of a file, a place or a number."""
    harmless = _HARMLESS_NAME.search(name)
    if harmless is None or not isinstance(value, str | int | float):
        return False
    if harmless["place"] is not None:
        return "/" in str(value) or "\\" in str(value)
    return harmless["file"] is not None or _NUMBER.fullmatch(str(value)) is not None


def passwords_of(value: Any) -> list[str]:
    """The passwords in URLs anywhere in a JSON-like value, and the values of telling fields."""
    found: list[str] = []

    def look(value: Any, telling: bool) -> None:
        match value:
            case Mapping():
                labelled = _is_labelled(value)
                for key, below in value.items():
                    held = labelled and str(key).lower() in _VALUES
                    look(below, held or is_telling(str(key)))
            case list() | tuple():
                after_option = [False, *map(_takes_secret, value)]
                for below, secret in zip(value, after_option, strict=False):
                    look(below, telling or (secret and not str(below).startswith("--")))
            case str():
                if (url := _URL_WITH_PASSWORD.match(value)) is not None:
                    found.append(url[1])
                if telling and not _HARMLESS_VALUE.match(value):
                    found.append(value)

    look(value, False)
    return found


def _is_labelled(fields: Mapping[Any, Any]) -> bool:
    """Whether a field such as ``name`` says that the field ``value`` is secret."""
    return any(
        str(key).lower() in _LABELS and isinstance(label, str) and is_telling(label)
        for key, label in fields.items()
    )


def _takes_secret(item: Any) -> bool:
    """Whether an item of a list is an option after which its secret comes."""
    return isinstance(item, str) and _IS_OPTION.fullmatch(item) is not None and is_telling(item)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError if a field is there twice: one of them would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _value(text: str, name: re.Match[str], sign: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Where the value of a telling name begins and ends, and what to put there: once for each line
    if it is on lines of its own, and never if it is no secret."""
    start = sign.end()
    if (block := _BLOCK.match(text, start)) is not None:
        yield from _block(text, name.start(), block)
        return
    named_in = sign.groupdict()
    quote = named_in.get("quote") or named_in.get("second") or ""
    if _PARTS.match(text, start) or (name[0].lower().endswith("cookie") and ":" in sign[0]):
        parts = _TO_ITS_END.match(text, start)
        end = start if parts is None else parts.end()
        opening = closing = quote
    else:
        end, opening, closing = _extent(text, start, quote, is_option=name.re is _OPTION)
    value = text[start:end]
    content = value.strip("\"'\\")
    if not (
        _NOTHING_INSIDE.match(value)
        or _HARMLESS_VALUE.match(content)
        or _is_excused(name[0], content)
    ):
        yield start, end, f"{opening}{REMOVED}{closing}"


def _block(text: str, name: int, block: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """The values on the lines after a telling name that is the last of its line."""
    line = text.rfind("\n", 0, name) + 1
    indent = _BEFORE_NAME.match(text, line).end() - line  # type: ignore[union-attr]
    at = block.end()
    within = False
    while at < len(text):
        end = _end_of_line(text, at)
        found = text[at:end].rstrip()
        deep = len(found) - len(found.lstrip())
        if found:
            is_item = block["text"] is None and deep == indent and found[deep:].startswith("- ")
            if deep <= indent and not is_item:
                break
            within = True
            parts = _BLOCK_LINE.match(found) if block["text"] is None else None
            start = deep if parts is None else parts.start("value")
            if not _HARMLESS_LINE.match(found, start):
                yield at + start, at + len(found), REMOVED
        at = end + 1
    if not within and at < len(text) and not _NEXT_NAME.match(text, at):
        # Not as in YAML, but what was asked for may be on the next line.
        start = at + deep
        end, opening, closing = _extent(text, start, "", is_option=False)
        if not _NOTHING_INSIDE.match(text[start:end]):
            yield start, end, f"{opening}{REMOVED}{closing}"


def _extent(text: str, start: int, quote: str, *, is_option: bool) -> tuple[int, str, str]:
    """The end of a value, and the quotes to put around what stands in its place: its own, or else
    those of its name."""
    opening = closing = quote
    if (found := _QUOTED.match(text, start)) is not None:
        opening = found["open"] or found["escaped"]
        closing = found["quote"] or found["escaped"]
        end = found.end()
    elif (found := _STARTS_QUOTED.match(text, start)) is not None:
        # It was cut off.
        opening, closing = found[0], ""
        end = _end_of_line(text, start)
    elif text[start : start + 1] in ("[", "(", "{"):
        end = _end_of_brackets(text, start)
    else:
        end = _end_of_bare(text, start)
    if is_option and found is None:
        # A shell would end it at a blank only.
        end = _TO_A_BLANK.match(text, end).end()  # type: ignore[union-attr]
    elif text[end : end + 1].isalnum():
        end = _end_of_bare(text, end)
    return end, opening, closing


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _end_of_bare(text: str, start: int) -> int:
    """The end of a value without quotes around it; ``start`` if there is none."""
    found = _BARE.match(text, start)
    return start if found is None else found.end()


def _end_of_brackets(text: str, start: int) -> int:
    """The end of what is in brackets; that of the line if they are not closed soon."""
    depth = 0
    for found in _IN_BRACKETS.finditer(text, start, start + _MAX_BRACKETS):
        if found[0] in ("[", "(", "{"):
            depth += 1
        elif found[0] in ("]", ")", "}"):
            depth -= 1
        if depth == 0:
            return found.end()
        if depth > _MAX_NESTED:
            break
    return _end_of_line(text, start)
