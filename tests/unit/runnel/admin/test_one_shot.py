"""Objects read without an event loop: the same answers and errors as from a connected client."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from runnel.admin import one_shot, reads
from runnel.admin.blocking import administer
from runnel.admin.calls import NotConnectedError
from runnel.admin.one_shot import OneShotCalls, OneShotReads
from runnel.loop_thread import LoopThread
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError, UnreachableError
from tests.silent_port import silent_port
from tests.unit.runnel.fake_sc import FakeSc


@pytest.fixture
def sc() -> Iterator[FakeSc]:
    thread = LoopThread("fake SC")
    fake = FakeSc()
    thread.call(fake.start())
    for name in ("orders", "order-lines", "views"):
        fake.add_topic(name)
    yield fake
    thread.call(fake.stop())
    thread.stop()


@contextmanager
def peer(answer: bytes) -> Iterator[str]:
    """The address of a server that gives this answer to whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def error_of(call: Callable[[], object]) -> RunnelError:
    with pytest.raises(RunnelError) as raised:
        call()
    return raised.value


def both_errors(address: str, name: str = "orders") -> tuple[RunnelError, RunnelError]:
    """Of a read without a loop, and of the same read by a client that stays connected."""
    with administer(address) as connected:
        return (
            error_of(lambda: OneShotReads(address).get("topics", name)),
            error_of(lambda: connected.get("topics", name)),
        )


def test_one_and_all_are_those_of_a_connected_client(sc: FakeSc) -> None:
    found = OneShotReads(sc.address)
    with administer(sc.address) as connected:
        assert found.get("t", "orders") == connected.get("t", "orders")
        assert found.list("topics") == connected.list("topics")
        assert found.list("spus") == []


def test_pages_are_joined(sc: FakeSc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PAGE_OBJECTS", 1)
    names = [topic.name for topic in OneShotReads(sc.address).list("topics")]
    assert names == ["order-lines", "orders", "views"]


def test_the_sc_hears_what_is_chosen(sc: FakeSc) -> None:
    OneShotReads(sc.address).list("topics", "team=a b,tier!=gold")
    assert sc.seen.queries[-1]["labelSelector"] == "team=a b,tier!=gold"


def test_given_no_such_object_then_the_nearest_is_named(sc: FakeSc) -> None:
    mine, other = both_errors(sc.address, "oders")
    assert isinstance(mine, NotFoundError)
    assert mine.message == other.message == ("topic 'oders' does not exist; did you mean 'orders'?")


def test_given_an_sc_that_is_away_then_the_next_is_asked(sc: FakeSc) -> None:
    assert OneShotReads(f"127.0.0.1:1,{sc.address}").get("topics", "views").name == "views"


def test_given_an_sc_that_stands_still_then_the_next_is_asked(
    sc: FakeSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("http", "one_shot"):
        monkeypatch.setattr(f"runnel.admin.{module}.SILENT_S", 0.2)
    # The kernel accepts connections all the same.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        addresses = f"127.0.0.1:{listener.getsockname()[1]},{sc.address}"
        assert OneShotReads(addresses).get("Topic", "orders").name == "orders"
        with administer(addresses) as connected:
            assert connected.get("Topic", "orders").name == "orders"


def test_given_a_network_that_carries_nothing_then_said_after_one_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("http", "one_shot"):
        monkeypatch.setattr(f"runnel.admin.{module}.AWAY_S", 0.1)
    with silent_port() as one, silent_port() as two:
        mine, other = both_errors(f"127.0.0.1:{one},127.0.0.1:{two}")
    assert isinstance(mine, UnreachableError)
    assert mine.message == other.message
    assert f"no SC answers at 127.0.0.1:{one}, 127.0.0.1:{two}, so nothing was sent" in mine.message


def test_given_a_name_that_no_host_can_have_then_the_error_says_the_same(sc: FakeSc) -> None:
    mine, other = both_errors("sc1..example:1,sc2:1")
    assert isinstance(mine, UnreachableError)
    assert mine.message == other.message


@pytest.mark.parametrize("address", ["http://x", "host:", ""])
def test_given_no_address_then_it_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidRequestError):
        OneShotReads(address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:1"])
def test_given_no_sc_then_the_error_says_the_same(address: str) -> None:
    mine, other = both_errors(address)
    assert isinstance(mine, UnreachableError)
    assert mine.message == other.message


def response(status: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


ANSWERS = {
    "given-nothing-then-disconnected": b"",
    "given-half-of-it-then-broke": response("200 OK", b'{"kind"', 100),
    "given-no-json-then-what-is-wrong": response("200 OK", b"<html>"),
    "given-json-nested-too-deep": response("200 OK", b"[" * 100_000),
    "given-an-error-of-an-sc": response(
        "409 Conflict", b'{"code": "Conflict", "message": "somebody was faster"}'
    ),
    "given-an-error-of-something-else": response("502 Bad Gateway", b"sorry"),
    "given-an-error-of-something-else-as-json": response("502 Bad Gateway", b"{}"),
    "given-more-than-any-memory": response("200 OK", b"{", 99_999_999_999_999),
    "given-a-negative-length": response("200 OK", b"{}", -5),
    "given-no-http": b"\x00\x1b[31mgarbage\r\n\r\n",
    "given-no-content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "given-a-page-for-people": response("200 OK", b"{}").replace(b"application/json", b"text/html"),
    "given-an-object-of-another-version": response("200 OK", b'{"kind": "Topic", "new": 1}'),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_given_a_bad_answer_then_the_error_is_that_of_a_connected_client(answer: bytes) -> None:
    with peer(answer) as address:
        mine, other = both_errors(address)
    assert type(mine) is type(other)
    assert mine.message == other.message


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="given-a-slow-head"),
        pytest.param(response("200 OK", b"[", 1_000_000), id="given-a-slow-body"),
    ],
)
def test_given_an_sc_that_drips_then_the_whole_request_is_bounded(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_shot, "REQUEST_TIMEOUT_S", 0.2)

    def not_asked_again(reads: OneShotReads) -> None:
        pytest.fail("the other client would wait as long again")

    monkeypatch.setattr(OneShotReads, "_administer", not_asked_again)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(begun)
                while not ended.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        raised = error_of(lambda: OneShotReads(address).get("topics", "orders"))
        ended.set()
        thread.join()
    assert isinstance(raised, UnreachableError)
    assert "(no answer in time)" in raised.message


def test_given_a_proxy_that_redirects_and_compresses_then_it_is_followed(sc: FakeSc) -> None:
    moved = f"HTTP/1.1 302 Found\r\nLocation: http://{sc.address}/v1/topics/orders\r\n\r\n"
    with peer(moved.encode()) as address:
        assert OneShotReads(address).get("topics", "orders").name == "orders"
    with administer(sc.address) as connected:
        topic = connected.get("topics", "orders")
    squeezed = gzip.compress(topic.model_dump_json(by_alias=True).encode())
    head = b"Content-Encoding: gzip\r\nContent-Type"
    answer = response("200 OK", squeezed).replace(b"Content-Type", head)
    with peer(answer) as address:
        assert OneShotReads(address).get("topics", "orders").name == "orders"


@pytest.mark.parametrize("name", ["orders#b", "orders?b", "orders/history", "orders%23", "o r"])
def test_a_name_is_never_taken_for_a_path_or_for_another_name(sc: FakeSc, name: str) -> None:
    mine, other = both_errors(sc.address, name)
    assert isinstance(mine, NotFoundError)
    assert mine.message == other.message
    with administer(sc.address) as connected, pytest.raises(NotFoundError):
        connected.delete("topics", name)
    assert OneShotReads(sc.address).get("topics", "orders").name == "orders"


def test_given_a_plain_call_then_the_answer_of_the_sc(sc: FakeSc) -> None:
    assert OneShotCalls(sc.address).call("GET", "/health") == {"status": "ok"}


def test_given_an_object_to_create_then_created(
    sc: FakeSc, caplog: pytest.LogCaptureFixture
) -> None:
    sc.warnings.append('299 - "it will wait"')
    calls = OneShotCalls(sc.address)
    body = calls.call("GET", "/v1/topics/orders")
    new = {key: body[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "new"}}
    assert calls.call("POST", "/v1/topics", body=new)["metadata"]["name"] == "new"
    assert caplog.messages == ["it will wait"]
    assert calls.call("GET", "/v1/topics/new")["spec"] == body["spec"]


def test_given_a_call_that_the_sc_refuses_then_its_error(sc: FakeSc) -> None:
    with pytest.raises(NotFoundError):
        OneShotCalls(sc.address).call("GET", "/v1/topics/absent")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello"])
def test_given_a_call_to_something_else_then_it_says_so(answer: bytes) -> None:
    with peer(answer) as address, pytest.raises(UnreachableError) as raised:
        OneShotCalls(address).call("GET", "/health")
    assert f"{address} is not the public port of an SC" in raised.value.message


def test_given_nobody_then_a_call_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match="refused"):
            OneShotCalls(f"127.0.0.1:{taken.getsockname()[1]}").call("GET", "/health")


@contextmanager
def dying() -> Iterator[tuple[str, list[str]]]:
    """The address of an SC that answers questions, and is killed by whatever changes something,
    and the methods that it was asked by."""
    methods: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                while request := connection.recv(65_536):
                    methods.append(request.decode().split(" ", 1)[0])
                    if methods[-1] != "GET":
                        return
                    connection.sendall(response("200 OK", b"{}"))

        def accept() -> None:
            with suppress(OSError):
                while True:
                    made, _ = listener.accept()
                    threading.Thread(target=serve, args=[made], daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", methods
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("connected", [False, True], ids=["one-shot", "connected"])
def test_given_an_sc_that_dies_of_a_delete_then_neither_it_nor_another_one_gets_it_again(
    sc: FakeSc, connected: bool
) -> None:
    with dying() as (address, methods):
        addresses = f"{address},{sc.address}"
        if connected:
            with administer(addresses) as client:
                found = error_of(lambda: client.delete("topics", "orders"))
        else:
            calls = OneShotCalls(addresses)
            found = error_of(lambda: calls.call("DELETE", "/v1/topics/orders"))
    assert isinstance(found, UnreachableError)
    assert found.message.startswith(
        f"no SC answers at {address} (the connection broke), and whether this was done is not known"
    )
    # The first question looks whether it answers at all; the connection is used again.
    assert methods == ["GET", "DELETE"]
    assert OneShotReads(sc.address).get("topics", "orders").name == "orders"


def test_given_nobody_at_the_first_address_then_a_write_goes_to_the_next(sc: FakeSc) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        calls = OneShotCalls(f"127.0.0.1:{taken.getsockname()[1]},{sc.address}")
        # As if it had answered a moment ago, so that nobody looks again.
        calls._calls._prefer(calls._calls.address)
        topic = calls.call("GET", "/v1/topics/orders")
        calls._calls._addresses.reverse()
        assert calls.call("PUT", "/v1/topics/orders", body=topic)["metadata"]["name"] == "orders"
        alone = OneShotCalls(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(NotConnectedError):
            alone.call("PUT", "/v1/topics/orders", body=topic)
