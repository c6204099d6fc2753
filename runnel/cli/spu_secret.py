"""The call behind ``runnel spu secret``."""

from __future__ import annotations

from runnel.admin.calls import object_path, understood
from runnel.admin.http import ScClient
from runnel.cli.connection import who
from runnel.contexts import default_sc
from runnel.loop_thread import LoopThread
from runnel.net.address import Address, parse_addresses
from schemas.objects.spu import Spu


def make_secret(sc: str | None, name: str) -> str:
    """A new secret for the SPU of this name, from the SC at ``sc`` or the default one.

    Raises RunnelError.
    """
    addresses = parse_addresses(default_sc() if sc is None else sc)
    thread = LoopThread("runnel spu secret")
    try:
        return thread.call(_make_secret(addresses, name))
    finally:
        thread.stop()


async def _make_secret(addresses: tuple[Address, ...], name: str) -> str:
    client = ScClient(addresses, who())
    try:
        answer = await client.call("POST", object_path(Spu, name, "secret"))
        with understood("a secret"):
            return str(answer["secret"])
    finally:
        await client.close()
