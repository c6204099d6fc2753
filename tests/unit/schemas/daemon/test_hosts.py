"""Which header ``Host`` is accepted."""

from __future__ import annotations

import pytest

from schemas.daemon.hosts import accepts, host_name

NAMES = frozenset({"sc.example", "box"})
ADVERTISED = ("Edge-7.example",)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (None, True),
        ("127.0.0.1:9003", True),
        ("10.1.2.3", True),
        ("[::1]:9003", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST:9003", True),
        ("localhost.:9003", True),
        ("sc.example:9003", True),
        ("Box", True),
        ("edge-7.example:9003", True),
        ("evil.example:9003", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.sc.example", False),
        ("", False),
        (":9003", False),
        ("127.0.0.1@evil.example", False),
        ("127.0.0.1:9003.evil.example", False),
        ("localhost:x", False),
    ],
)
def test_accepts(header: str | None, accepted: bool) -> None:
    assert accepts(header, NAMES, ADVERTISED) is accepted


def test_given_any_then_every_name() -> None:
    assert accepts("evil.example", frozenset({"*"}), ())


@pytest.mark.parametrize(
    ("header", "name"),
    [("A.b:1", "a.b"), ("[fe80::1%eth0]:1", "fe80::1%eth0"), ("fe80::1", "fe80::1"), (" x ", "x")],
)
def test_host_name(header: str, name: str) -> None:
    assert host_name(header) == name
