"""Where an etcd is and how to speak to it, from a URL.

::

    etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
    etcd://runnel:secret@etcd-0.example:2379?ca=/etc/runnel/ca.pem
    etcd://runnel@10.0.0.1?password-file=/etc/runnel/etcd-password&tls=true
    etcd://10.0.0.1?ca=/etc/runnel/ca.pem&cert=/etc/runnel/sc.pem&key=/etc/runnel/sc.key

Options: ``tls`` (true: TLS with the system's roots; implied by the next three), ``ca``, ``cert``
and ``key`` (PEM files), ``server-name`` (the name in etcd's certificate when it is not the host),
``password-file``, ``keep-revisions``, ``attempt-timeout-ms``, ``request-timeout-ms``.

Errors never show the password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError

DEFAULT_PORT = 2379

KEEP_REVISIONS = 10_000
"""How many revisions of history automatic compaction leaves."""

ATTEMPT_TIMEOUT_MS = 2_000
"""How long one attempt of a call that may be repeated waits for its answer."""

LEASE_ATTEMPT_TIMEOUT_MS = 900
"""The same for calls about leases. Shorter than the time after which the holder of a lease gives
up and begins anew (`sc.election.keeper`): it would ask a member that stands still again then."""

REQUEST_TIMEOUT_MS = 10_000
"""How long a call waits over all its attempts. Above etcd's own limit of about 7 s, so that etcd's
answer about a write comes first."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with PEM bytes; None for ``ca`` means the system's roots."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """``endpoints`` are ``host:port``. ``keep_revisions`` 0 leaves compaction to others."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str = field(default="", repr=False)
    tls: Tls | None = None
    keep_revisions: int = KEEP_REVISIONS
    attempt_timeout_ms: int = ATTEMPT_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS


_NUMBERS = {
    "keep-revisions": (0, KEEP_REVISIONS),
    "attempt-timeout-ms": (1, ATTEMPT_TIMEOUT_MS),
    "request-timeout-ms": (1, REQUEST_TIMEOUT_MS),
}
_TEXTS = ("tls", "ca", "cert", "key", "server-name", "password-file")


def parse_etcd_url(url: str) -> EtcdOptions:
    """Read an ``etcd://`` URL and the files it names.

    Raises InvalidRequestError that says which part is wrong.
    """
    shown = without_password(url)
    # Not `urlsplit`: it refuses lists of bracketed addresses.
    parts = re.fullmatch(r"etcd://(?:([^@]*)@)?([^@/?#]+)/?(?:\?(.*))?", url)
    if parts is None:
        raise InvalidRequestError(
            f"KV URL {shown!r}: write etcd://host:port,host:port, and options after a ?; "
            "an @ inside a user or password is written %40"
        )
    credentials, hosts, query = parts[1] or "", parts[2], parts[3] or ""
    user, _, password = credentials.partition(":")
    options = _options(query, shown)
    numbers = {name: _number(name, options, shown) for name in _NUMBERS}
    if file := options.get("password-file"):
        if password:
            raise InvalidRequestError(
                f"KV URL {shown!r} has a password and a password-file; keep one"
            )
        password = _read(file, "password-file", shown).decode().rstrip("\r\n")
    else:
        password = unquote(password)
    if bool(user) != bool(password):
        raise InvalidRequestError(
            f"KV URL {shown!r}: a user needs a password and a password a user; write "
            "user:password@ or user@ with ?password-file="
        )
    return EtcdOptions(
        endpoints=_endpoints(hosts, shown),
        user=unquote(user) or None,
        password=password,
        tls=_tls(options, shown),
        keep_revisions=numbers["keep-revisions"],
        attempt_timeout_ms=numbers["attempt-timeout-ms"],
        request_timeout_ms=numbers["request-timeout-ms"],
    )


def _endpoints(hosts: str, shown: str) -> tuple[str, ...]:
    endpoints = []
    for item in hosts.split(","):
        host, port = item, str(DEFAULT_PORT)
        # An IPv6 address is in brackets; the colons inside them are its own.
        if ":" in item.rpartition("]")[2]:
            host, _, port = item.rpartition(":")
        if (
            not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[\w.-]+", host)
            or not re.fullmatch(r"[0-9]{1,5}", port)
            or not 1 <= int(port) <= 65535
        ):
            raise InvalidRequestError(f"KV URL {shown!r}: {item!r} is not host:port")
        endpoints.append(f"{host}:{port}")
    return tuple(dict.fromkeys(endpoints))


def _options(query: str, shown: str) -> dict[str, str]:
    found = parse_qsl(query, keep_blank_values=True)
    options = dict(found)
    known = {*_NUMBERS, *_TEXTS}
    for name, value in found:
        if name not in known:
            raise InvalidRequestError(
                f"KV URL {shown!r}: unknown option {name!r}; known are {', '.join(sorted(known))}"
            )
        if not value:
            raise InvalidRequestError(f"KV URL {shown!r}: option {name!r} has no value")
    if len(options) != len(found):
        raise InvalidRequestError(f"KV URL {shown!r} gives an option twice")
    return options


def _number(name: str, options: dict[str, str], shown: str) -> int:
    least, default = _NUMBERS[name]
    text = options.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < least:
        raise InvalidRequestError(
            f"KV URL {shown!r}: {name} is {text!r}; use a whole number from {least}"
        )
    return int(text)


def _tls(options: dict[str, str], shown: str) -> Tls | None:
    wanted = options.get("tls")
    if wanted not in (None, "true", "false"):
        raise InvalidRequestError(f"KV URL {shown!r}: tls is {wanted!r}; use true or false")
    files = {name: options[name] for name in ("ca", "cert", "key") if name in options}
    name = options.get("server-name")
    if wanted != "true" and not files and name is None:
        return None
    if wanted == "false":
        raise InvalidRequestError(
            f"KV URL {shown!r}: tls=false contradicts the TLS options; drop one"
        )
    if ("cert" in files) != ("key" in files):
        raise InvalidRequestError(f"KV URL {shown!r}: cert and key go together")
    pem = {name: _read(path, name, shown) for name, path in files.items()}
    return Tls(ca=pem.get("ca"), cert=pem.get("cert"), key=pem.get("key"), server_name=name)


def _read(path: str, option: str, shown: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequestError(
            f"KV URL {shown!r}: cannot read {option} {path!r}: {error.strerror}"
        ) from error
