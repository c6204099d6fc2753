"""A port whose host answers no request to connect, as where a network drops everything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def silent_port(host: str = "127.0.0.1") -> Iterator[int]:
    """The queue of connections that nobody accepted is full: the kernel drops further ones."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((host, 0))
        server.listen(0)
        port: int = server.getsockname()[1]
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield port
