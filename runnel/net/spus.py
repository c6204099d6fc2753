"""The way to one SPU that a caller names, as opposed to the leader of a partition."""

from __future__ import annotations

from typing import Final

from runnel.net.address import Address
from runnel.net.connection import SpuConnection, open_connection
from schemas.errors import RunnelError, UnreachableError
from schemas.objects.spu import CONNECTED, Spu

CONNECT_TIMEOUT_S: Final = 5.0


async def connect_to(spu: Spu) -> SpuConnection:
    """A connection of its own to an SPU. Raises UnreachableError with the reason."""
    spu_id, public = spu.spec.spu_id, spu.spec.public_endpoint
    try:
        connection = await open_connection(Address(public.host, public.port), CONNECT_TIMEOUT_S)
    except RunnelError as error:
        state = spu.status.resolution
        away = f"SPU {spu_id} is {state.value}: " if state not in CONNECTED else ""
        raise UnreachableError(f"{away}{error.message}") from error
    if connection.spu_id != spu_id:
        await connection.close()
        raise UnreachableError(
            f"SPU {connection.spu_id} answers at {connection.address}, not SPU {spu_id}; check"
            f" spec.publicEndpoint: runnel get spu {spu.name} -o yaml"
        )
    return connection
