"""Calls of the SC's REST API: JSON in and out, errors rebuilt, several SCs tried in turn."""

from __future__ import annotations

import os
from typing import Any, Final, Self

import aiohttp

from runnel.address import Address, parse_addresses
from schemas.assignments import Assignments
from schemas.errors import RunnelError, UnreachableError, error_from

REQUEST_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0


class ScClient:
    """One HTTP session to the SCs of a cluster; the one that answered last is asked first."""

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = list(addresses)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host:port[,host:port…]``. Raises InvalidRequestError."""
        return cls(parse_addresses(text))

    @property
    def address(self) -> Address:
        """The SC that is asked first."""
        return self._addresses[0]

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
    ) -> Any:
        """The JSON of an answer. Raises the error that the SC sent, or UnreachableError."""
        failure: UnreachableError | None = None
        for address in tuple(self._addresses):
            try:
                answer = await self._call_one(address, method, path, query, body)
            except UnreachableError as error:
                failure = failure or error
                if method == "POST":
                    # It may have been done: asking another SC could do it twice.
                    break
                continue
            if address != self._addresses[0]:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
            return answer
        raise failure or UnreachableError("no address of an SC is known")

    async def assignments(self, topic: str) -> Assignments:
        """Where the partitions of a topic are led; an unknown topic is absent."""
        answer = await self.call("GET", "/v1/assignments", query={"topic": topic})
        return Assignments.model_validate(answer)

    async def _call_one(
        self, address: Address, method: str, path: str, query: dict[str, str] | None, body: Any
    ) -> Any:
        try:
            async with self._session.request(
                method, f"http://{address}{path}", params=query, json=body
            ) as response:
                if response.status >= 400:
                    raise await _refusal(response, address)
                return await response.json()
        except TimeoutError:
            raise _unreachable(address, "no answer in time") from None
        except aiohttp.ClientConnectorDNSError as error:
            raise _unreachable(address, f"host {address.host!r} is not known") from error
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(address, os.strerror(error.errno or 0).lower()) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(address, str(error) or type(error).__name__) from error


def _unreachable(address: Address, why: str) -> UnreachableError:
    return UnreachableError(
        f"no SC answers at {address} ({why}); is the cluster running? runnel cluster status"
    )


async def _refusal(response: aiohttp.ClientResponse, address: Address) -> RunnelError:
    try:
        answer = await response.json(content_type=None)
        return error_from(
            str(answer["code"]), str(answer["message"]), dict(answer.get("details") or {})
        )
    except (ValueError, KeyError, TypeError):
        return RunnelError(
            f"{address} answered HTTP {response.status} {response.reason or ''} without saying"
            " why; is this the public port of an SC? If so, its log says more"
        )
