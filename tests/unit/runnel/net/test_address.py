"""Addresses as users write them."""

from __future__ import annotations

import pytest

from runnel.net.address import Address, parse_address, parse_addresses
from schemas.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("localhost:9003", Address("localhost", 9003), id="given-host-and-port"),
        pytest.param(" sc.local ", Address("sc.local", 9003), id="given-no-port-then-9003"),
        pytest.param("[::1]:90", Address("::1", 90), id="given-ipv6"),
        pytest.param("[::1]", Address("::1", 9003), id="given-ipv6-without-port"),
    ],
)
def test_parsed(text: str, expected: Address) -> None:
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("http://localhost:9003", "is a URL", id="given-a-url"),
        pytest.param(":9003", "has no host", id="given-no-host"),
        pytest.param("localhost:", "has no port", id="given-an-empty-port"),
        pytest.param("localhost:http", "is not a port", id="given-a-word-for-a-port"),
        pytest.param("localhost:70000", "is not a port", id="given-a-port-too-large"),
        pytest.param("::1:9003", "in brackets", id="given-ipv6-without-brackets"),
        pytest.param("[::1", "closing bracket", id="given-half-a-bracket"),
        pytest.param("", "has no host", id="given-nothing"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_address(text)


def test_given_several_then_all_are_parsed() -> None:
    assert parse_addresses("a:1,b:2") == (Address("a", 1), Address("b", 2))
