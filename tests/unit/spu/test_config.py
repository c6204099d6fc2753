"""Where an SPU listens to other SPUs, and a configuration in which only this machine reaches it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spu.config import SpuConfig

EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens here
FILE = {"spuId": 7, "logDir": "/var/lib/runnel/spu-7"}


@pytest.mark.parametrize(
    ("more", "host", "port"),
    [
        ({}, "127.0.0.1", 9006),
        ({"public": {"host": EVERYWHERE, "port": 9005}}, EVERYWHERE, 9006),
        ({"public": {"host": EVERYWHERE, "port": 9005}, "private": {"port": 7}}, EVERYWHERE, 7),
        ({"public": {"host": "::", "port": 5}, "private": {"host": "::2", "port": 7}}, "::2", 7),
        ({"private": {"host": "127.0.0.1", "port": 7}}, "127.0.0.1", 7),
    ],
)
def test_it_listens_to_other_spus_on_the_host_of_public(
    more: dict[str, object], host: str, port: int
) -> None:
    config = SpuConfig.model_validate({**FILE, **more})
    assert (config.private_host, config.private.port) == (host, port)
    assert config.contradiction is None


def test_given_a_loopback_private_host_only_then_it_says_who_is_left_out() -> None:
    public, private = {"host": EVERYWHERE, "port": 9005}, {"host": "localhost", "port": 9006}
    config = SpuConfig.model_validate({**FILE, "public": public, "private": private})
    assert config.contradiction is not None
    assert config.contradiction.startswith(
        "private.host is localhost, so only SPUs on this machine"
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param({}, ("localhost:9004",), id="given-nothing-then-this-machine"),
        pytest.param({"controller": "sc:9004"}, ("sc:9004",), id="given-one"),
        pytest.param({"controller": "a:1, b:2"}, ("a:1", "b:2"), id="given-a-text-of-several"),
        pytest.param({"controller": ["a:1", "[::1]:2"]}, ("a:1", "[::1]:2"), id="given-a-list"),
    ],
)
def test_where_the_scs_are(given: dict[str, object], found: tuple[str, ...]) -> None:
    assert SpuConfig.model_validate({**FILE, **given}).controller == found


@pytest.mark.parametrize(
    "given",
    [
        *("", "sc", "http://sc:9004", "sc:port", "a:1,", "a:1;b:2", "sc:99999", "::1:25001"),
        *([], [""], ["a:1", "b"], ["a:1,b:2"], 9004, None, [1]),
    ],
)
def test_given_what_is_no_address_of_an_sc_then_refused(given: object) -> None:
    with pytest.raises(ValidationError, match="controller"):
        SpuConfig.model_validate({**FILE, "controller": given})
