"""What an SPU says before it is let in, where its connection ends meanwhile."""

from __future__ import annotations

from typing import cast

import aiohttp
import pytest
from aiohttp import web

from connection_manager.introduction import Checks, Claim, Introduction
from schemas.control.messages import IDENTIFY_PROTOCOL, Envelope, Identify
from schemas.control.proof import Exchange
from schemas.errors import UnsupportedError


class LeavingSocket:
    """A peer that says who it is, and is gone when it is answered."""

    ws_protocol = IDENTIFY_PROTOCOL

    async def receive(self, _limit_s: float) -> aiohttp.WSMessage:
        who = Identify(software="test", spu_id=1, instance="one", nonce="n")
        text = Envelope(cause="test", body=who).encode()
        return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, None)

    async def send_str(self, _text: str) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")


async def _authentic(_spu_id: int, _exchange: Exchange | None, _proof: str | None) -> None:
    raise AssertionError("it has proven nothing")


async def test_given_a_peer_that_is_gone_when_it_is_challenged_then_it_has_left() -> None:
    claim = Claim(connection=None, arrival=1)
    socket = cast("web.WebSocketResponse", LeavingSocket())
    checks = Checks(lambda _spu_id: None, lambda _who, _arrival: None, _authentic)
    introduction = Introduction(socket, claim, checks, lambda: "uid")
    with pytest.raises(UnsupportedError, match="it left before the message 'prove'"):
        await introduction.hello()
    assert str(claim) == "SPU 1"
