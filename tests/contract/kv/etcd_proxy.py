"""A proxy before a real etcd that loses answers, refuses calls and writes down what it saw.

It moves bytes, like the client's own channel, so that a test decides what happens to one call:
whether etcd got it, and what the caller hears.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio


@dataclass(frozen=True)
class Act:
    """What happens to one call: does etcd get it, and which status does the caller hear? None for
    ``code`` means none at all until the caller gives up."""

    reaches_etcd: bool
    code: grpc.StatusCode | None
    text: str = "the proxy did it"


LOSE_ANSWER = Act(reaches_etcd=True, code=grpc.StatusCode.UNAVAILABLE)
NEVER_ANSWER = Act(reaches_etcd=True, code=None)
LOSE_REQUEST = Act(reaches_etcd=False, code=grpc.StatusCode.UNAVAILABLE)
NO_LEADER = Act(reaches_etcd=False, code=grpc.StatusCode.UNAVAILABLE, text="etcdserver: no leader")

_Context = grpc.aio.ServicerContext[bytes, bytes]


class Proxy(grpc.GenericRpcHandler):
    """``acts`` holds, by method, what happens to its next calls; without any they pass.
    ``after`` runs once a lost call has been applied."""

    def __init__(self, target: str) -> None:
        self.acts: dict[str, deque[Act]] = defaultdict(deque)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.after: Awaitable[object] | None = None
        self.endpoint = ""
        self._channel = grpc.aio.insecure_channel(target)

    def calls(self, method: str) -> int:
        return sum(1 for name, _ in self.seen if name.endswith(method))

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = handler_call_details.method
        metadata = {key: str(value) for key, value in handler_call_details.invocation_metadata}
        self.seen.append((method, metadata))
        passed_on = [(key, metadata[key]) for key in ("token", "hasleader") if key in metadata]

        async def unary(request: bytes, context: _Context) -> bytes:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(method)
            acts = self.acts[method.rpartition("/")[2]]
            act = acts.popleft() if acts else None
            if act is None or act.reaches_etcd:
                answer = await call(request, metadata=passed_on)
                if act is None:
                    return answer
            if self.after is not None:
                after, self.after = self.after, None
                await after
            if act.code is None:
                await asyncio.Event().wait()
            await context.abort(act.code or grpc.StatusCode.UNKNOWN, act.text)
            raise AssertionError("abort raises")

        async def stream(requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
            call: grpc.aio.StreamStreamCall[bytes, bytes] = self._channel.stream_stream(method)(
                metadata=passed_on
            )
            async for request in requests:
                await call.write(request)
                payload = await call.read()
                assert isinstance(payload, bytes)
                yield payload
            call.cancel()

        if method.endswith("LeaseKeepAlive"):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    async def close(self) -> None:
        await self._channel.close()


@asynccontextmanager
async def proxy_before(target: str) -> AsyncIterator[Proxy]:
    """A proxy on a free port."""
    proxy = Proxy(target)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((proxy,))
    proxy.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield proxy
    finally:
        await server.stop(None)
        await proxy.close()
