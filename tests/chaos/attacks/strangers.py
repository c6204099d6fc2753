"""What a stranger does to the open ports of a cluster: each attack for some seconds, in a process
of its own, which counts what it was answered.

An answer is one line: the code and the text of an error, a status of HTTP, or how the connection
ended. Port numbers and ids in it are those of the cluster.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from typing import Any, Final

import aiohttp

from schemas.control.messages import (
    IDENTIFY_PROTOCOL,
    PARTS_PROTOCOL,
    Challenge,
    Envelope,
    Hello,
    Identify,
    Message,
    Prove,
    Reject,
    Stamp,
    decode_envelope,
)
from schemas.control.proof import Exchange, spu_proof
from schemas.wire.protocol import FRAME_HEADER, PREFIX, Api, HelloRequest, pack_frame, unpack_frame
from spu.replication.wire import Greeting

#: An SPU that is registered, has used its secret, and is not connected.
ABSENT: Final = 9
#: An SPU that is connected.
PRESENT: Final = 0
FAR_REVISION: Final = 10**12
_PATIENCE_S: Final = 8.0
#: A frame that is announced, and of which a byte a second comes.
_ANNOUNCED_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Exposed:
    """What a stranger knows of a cluster: its ports; of SPUs the public port, the next one is the
    private port, the one after that serves HTTP. ``secret`` is that of the absent SPU, and
    ``recorded`` what it once said to identify and prove itself."""

    sc: int
    private: int
    spus: tuple[int, ...]
    cluster_uid: str
    secret: str
    recorded: tuple[str, str]


Answers = Counter[str]
Attack = Callable[[Exposed, float, Answers], Awaitable[None]]


def attack(name: str, exposed: Exposed, seconds: float) -> Answers:
    """Carry out an attack of this name; gives how often each answer came."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    answers: Answers = Counter()
    asyncio.run(_during(seconds, ATTACKS[name](exposed, seconds, answers)))
    return answers


async def _during(seconds: float, attacking: Awaitable[None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await attacking


# -- the private port of the SC ---------------------------------------------------------------


def _hello(spu_id: int, **fields: Any) -> Hello:
    return Hello(software="x", spu_id=spu_id, instance="forger", **fields)


def _identity(exposed: Exposed, spu_id: int) -> Identify:
    uid = exposed.cluster_uid
    return Identify(software="x", spu_id=spu_id, instance="forger", cluster_uid=uid, nonce="n")


def _text(body: Message) -> str:
    return Envelope(cause="forged", body=body).encode()


async def _answer(socket: aiohttp.ClientWebSocketResponse) -> Message | str:
    """The next message, or how the connection ended."""
    message = await socket.receive(_PATIENCE_S)
    if message.type is not aiohttp.WSMsgType.TEXT:
        return f"closed with {socket.close_code}"
    return decode_envelope(message.data).body


def _said(answer: Message | str) -> str:
    if isinstance(answer, Reject):
        return f"{answer.code}: {answer.message}"
    return answer if isinstance(answer, str) else answer.type


async def _open(exposed: Exposed, http: aiohttp.ClientSession, *protocols: str) -> Any:
    return await http.ws_connect(
        f"http://127.0.0.1:{exposed.private}/session", protocols=protocols, max_msg_size=0
    )


async def forge_a_connected_spu(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Hellos in the name of an SPU that is connected, of a KV far ahead."""
    async with aiohttp.ClientSession() as http:
        bare = _hello(PRESENT, kv_revision=FAR_REVISION, cluster_uid=exposed.cluster_uid)
        firsts: tuple[Message, ...] = (bare, _identity(exposed, PRESENT))
        for first in cycle(firsts):
            protocols = () if first is bare else (IDENTIFY_PROTOCOL,)
            async with await _open(exposed, http, *protocols) as socket:
                await socket.send_str(_text(first))
                answers[_said(await _answer(socket))] += 1


async def prove_wrongly(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """The name of an SPU that is away, with another secret, and with none."""
    async with aiohttp.ClientSession() as http:
        for wrong in cycle(["another secret", None]):
            async with await _open(exposed, http, PARTS_PROTOCOL) as socket:
                exchange = await _challenged(exposed, socket)
                proof = None if wrong is None else spu_proof(wrong, exchange)
                await socket.send_str(_text(Prove(proof=proof)))
                answers[_said(await _answer(socket))] += 1


async def replay(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """What an SPU said when it proved itself, once more."""
    identity, proof = exposed.recorded
    async with aiohttp.ClientSession() as http:
        while True:
            async with await _open(exposed, http, IDENTIFY_PROTOCOL) as socket:
                await socket.send_str(identity)
                await _answer(socket)
                await socket.send_str(proof)
                answers[_said(await _answer(socket))] += 1


async def leap_far_ahead(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """A member that lies: it has proven itself, and says that 65,000 incarnations went by."""
    async with aiohttp.ClientSession() as http:
        while True:
            async with await _open(exposed, http, PARTS_PROTOCOL) as socket:
                exchange = await _challenged(exposed, socket)
                await socket.send_str(_text(Prove(proof=spu_proof(exposed.secret, exchange))))
                stamp = Stamp(revision=1, office="x", incarnation=65_000)
                await socket.send_str(_text(_hello(ABSENT, stamp=stamp)))
                answers[_said(await _answer(socket))] += 1


async def _challenged(exposed: Exposed, socket: aiohttp.ClientWebSocketResponse) -> Exchange:
    who = _identity(exposed, ABSENT)
    await socket.send_str(_text(who))
    challenge = await _answer(socket)
    if not isinstance(challenge, Challenge):
        raise TypeError(challenge)
    return Exchange(challenge.cluster_uid, who.spu_id, who.instance, who.nonce, challenge.nonce)


async def come_as_a_web_page(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """A page of another site: a WebSocket with an `Origin`, requests for a `Host` of its own."""
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                await http.ws_connect(
                    f"http://127.0.0.1:{exposed.private}/session", origin="http://evil.example"
                )
            except aiohttp.WSServerHandshakeError as error:
                answers[f"Origin: {error.status}"] += 1
            async with http.delete(
                f"http://127.0.0.1:{exposed.sc}/v1/topics/chaos", headers={"Host": "evil.example"}
            ) as answer:
                answers[f"Host: {answer.status}"] += 1


async def send_large_hellos(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Hellos in the name of an SPU that nobody registered: 41 MiB; less than an SC takes of an
    older SPU; and more than it takes of one of this version."""
    rows = '{"uid":"u","storageId":"s"},'
    head = '{"cause":"x","body":{"type":"hello","software":"x","spuId":77,"instance":"x",'
    head += '"replicas":['
    large = [
        (head + rows * (size // len(rows)) + '{"uid":"u","storageId":"s"}]}}', protocols)
        for size, protocols in ((41 << 20, ()), (15 << 20, ()), (2 << 20, (PARTS_PROTOCOL,)))
    ]
    async with aiohttp.ClientSession() as http:
        for text, protocols in cycle(large):
            size = f"{len(text) >> 20} MiB"
            try:
                async with await _open(exposed, http, *protocols) as socket:
                    await socket.send_str(text)
                    answers[f"{size}: {_said(await _answer(socket))}"] += 1
            except (aiohttp.ClientError, ConnectionError):
                # The SC closes while most of it is still to come.
                answers[f"{size}: closed with 1009"] += 1


# -- bodies -----------------------------------------------------------------------------------


async def send_large_bodies(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Bodies each of which once held the SC for seconds."""
    bodies = {
        "26 MiB": b"{" + b" " * (26 << 20),
        "unknown fields": _topic({f"partitionss{n}": 1 for n in range(20_000)}),
        "wrong rows": _topic({"assignment": [{"id": "x"}] * 60_000}),
        "numbers for rows": _topic({"assignment": list(range(140_000))}),
        "nested": b"[" * 1_000_000,
    }
    url = f"http://127.0.0.1:{exposed.sc}/v1/topics"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_PATIENCE_S)) as http:

        async def send(name: str, data: bytes) -> None:
            while True:
                try:
                    async with http.post(url, data=data, headers=headers) as answer:
                        await answer.read()
                        answers[f"{name}: {answer.status}"] += 1
                except (aiohttp.ClientError, ConnectionError):
                    # The SC closes while most of it is still to come.
                    answers[f"{name}: closed"] += 1

        await asyncio.gather(*(send(name, data) for name, data in bodies.items()))


def _topic(spec: dict[str, Any]) -> bytes:
    head = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "x"}}
    return json.dumps({**head, "spec": spec}).encode()


# -- connections ------------------------------------------------------------------------------


async def hold_half_requests(exposed: Exposed, seconds: float, answers: Answers) -> None:
    """A thousand requests without an end, to each of three ports."""
    ports = {exposed.sc: "9003", exposed.private: "9004", exposed.spus[0] + 2: "9007"}
    half = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    await _hold(ports, half, 1_000, seconds, answers)


async def use_up_descriptors(exposed: Exposed, seconds: float, answers: Answers) -> None:
    """Connections that say nothing, more of them than the SC may open descriptors."""
    await _hold({exposed.sc: "9003", exposed.private: "9004"}, b"", 400, seconds, answers)


async def _hold(
    ports: dict[int, str], data: bytes, count: int, seconds: float, answers: Answers
) -> None:
    """Open so many connections to each port, send ``data``, and hold them. Say of how many the end
    is seen in time; all others are open for all that the stranger knows."""
    ends = asyncio.get_running_loop().time() + seconds - 0.5
    for name in ports.values():
        answers[f"{name}: opened"] = 0
        answers[f"{name}: ended"] = 0

    # So many at once: a burst that no process has descriptors for would say nothing.
    connecting = asyncio.Semaphore(32)

    async def hold(port: int, name: str) -> None:
        async with connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers[f"{name}: opened"] += 1
        try:
            writer.write(data)
            async with asyncio.timeout_at(ends):
                await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()
        answers[f"{name}: ended"] += 1

    attempts = [hold(port, name) for _ in range(count) for port, name in ports.items()]
    await asyncio.gather(*attempts, return_exceptions=True)


async def announce_large_frames(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Frames of 64 MiB announced on the binary ports, before and after a HELLO or a greeting, and
    then a byte a second of them; and a HELLO and a greeting of which a byte a second comes."""
    public, private = exposed.spus[0], exposed.spus[0] + 1
    announced = PREFIX.pack(_ANNOUNCED_BYTES) + FRAME_HEADER.pack(Api.PRODUCE, 1, 0, 1, 0)
    hello = b"".join(pack_frame(Api.HELLO, 0, HelloRequest(1, 1).pack()))
    greeting = b"".join(bytes(one) for one in Greeting(1, 0, exposed.cluster_uid).frame())
    kinds = {
        "9005, before HELLO": (public, b"", announced, b""),
        "9005, after HELLO": (public, hello, announced, b""),
        "9005, a byte a second": (public, b"", b"", hello),
        "9006, before the greeting": (private, b"", announced, b""),
        "9006, after the greeting": (private, greeting, announced, b""),
        "9006, a byte a second": (private, b"", b"", greeting),
    }

    async def drip(name: str, port: int, first: bytes, frame: bytes, drops: bytes) -> None:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(first)
            if first == hello:
                await _frame(reader)
            writer.write(frame)
            answer = asyncio.create_task(_last_words(reader))
            for drop in chain(drops, repeat(1)):
                with suppress(ConnectionError):
                    writer.write(bytes([drop]))
                if (await asyncio.wait([answer], timeout=1))[0]:
                    break
            when = "at once" if time.monotonic() - began < 6 else "in time"
            answers[f"{name}: {answer.result()}, {when}"] += 1
        finally:
            writer.close()

    def forty(name: str) -> list[Coroutine[Any, Any, None]]:
        return [drip(name, *kinds[name]) for _ in range(40)]

    async def one_kind_after_the_other(names: list[str]) -> None:
        # The private port has only 32 places for strangers. Some of each kind are told so; those
        # of one kind must not take all places from the next.
        for name in names:
            await asyncio.gather(*forty(name), return_exceptions=True)
            await asyncio.sleep(0.5)

    public_kinds = [name for name in kinds if name.startswith("9005")]
    await asyncio.gather(
        *(one for name in public_kinds for one in forty(name)),
        one_kind_after_the_other([name for name in kinds if name not in public_kinds]),
        return_exceptions=True,
    )


async def crowd_the_binary_ports(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Connections that say nothing, more than there are places, and others for those that end."""
    public, private = exposed.spus[0], exposed.spus[0] + 1

    async def wait(port: int, name: str) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                answers[f"{name}: {await _last_words(reader)}"] += 1
                writer.close()
            except ConnectionError:
                answers[f"{name}: closed"] += 1
            await asyncio.sleep(0.1)

    ports = {public: "9005", private: "9006"}
    await asyncio.gather(*(wait(port, name) for port, name in ports.items() for _ in range(200)))


async def flood_with_requests(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Requests of sixteen bytes, on many connections, as fast as they are taken."""
    hello = b"".join(pack_frame(Api.HELLO, 0, HelloRequest(1, 1).pack()))
    requests = b"".join(pack_frame(99, 1, b"")) * 4_000

    async def flood() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", exposed.spus[0])
        writer.write(hello)
        await _frame(reader)

        async def send() -> None:
            while True:
                writer.write(requests)
                await writer.drain()

        sending = asyncio.create_task(send())
        try:
            while data := await reader.read(1 << 16):
                answers["unknown api"] += data.count(b"99")
        finally:
            sending.cancel()
            writer.close()

    await asyncio.gather(*(flood() for _ in range(40)))


async def flood_with_gets(exposed: Exposed, _seconds: float, answers: Answers) -> None:
    """Requests to the SC, on many connections, each as soon as the one before is answered."""
    get = b"GET /v1/partitions HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def flood() -> None:
        while True:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", exposed.sc)
                try:
                    while True:
                        writer.write(get)
                        head = await reader.readuntil(b"\r\n\r\n")
                        answers[head.split(b" ", 2)[1].decode()] += 1
                        length = re.search(rb"Content-Length: (\d+)", head)
                        await reader.readexactly(int(length[1]) if length else 0)
                finally:
                    writer.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(flood() for _ in range(300)))


async def _frame(reader: asyncio.StreamReader) -> memoryview:
    (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    return memoryview(await reader.readexactly(length))


async def _last_words(reader: asyncio.StreamReader) -> str:
    """The last error that comes before the connection ends."""
    said = "closed"
    try:
        while True:
            header, _, tail = unpack_frame(await _frame(reader))
            if header.status:
                said = re.sub(r"\d+", "N", bytes(tail).decode())
    except (asyncio.IncompleteReadError, ConnectionError):
        return said


ATTACKS: Final[dict[str, Attack]] = {
    one.__name__: one
    for one in (
        forge_a_connected_spu,
        prove_wrongly,
        replay,
        leap_far_ahead,
        come_as_a_web_page,
        send_large_hellos,
        send_large_bodies,
        hold_half_requests,
        use_up_descriptors,
        announce_large_frames,
        crowd_the_binary_ports,
        flood_with_requests,
        flood_with_gets,
    )
}
