"""The line between a site and all other machines: delayed, lossy, narrow or cut, packet by packet.

Two TAP devices, each in a bridge, and a thread that carries Ethernet frames from one to the other.
The machines keep their addresses, and TCP runs from end to end: what is lost is sent again by the
ends, as on a real line. (``tc netem`` would do the same where the kernel has it; many have not.)
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES: Final = 2_048
_WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Line:
    """How one direction carries frames: ``bits_s`` (0: at once), a share of them ``lost``, the
    others ``delay_s`` after they were sent, at most ``queue_bytes`` waiting to be sent."""

    bits_s: int = 0
    delay_s: float = 0.0
    lost: float = 0.0
    queue_bytes: int = 64 << 10


#: A bad mobile connection: a round trip of 600 ms.
BAD: Final = Line(bits_s=100_000, delay_s=0.3, lost=0.05)
GOOD: Final = Line()


@dataclass
class Traffic:
    """What one direction has carried: frames with their Ethernet headers, those lost included."""

    frames: int = 0
    bytes: int = 0
    lost: int = 0


@dataclass
class _Direction:
    source: int
    target: int
    rng: random.Random
    traffic: Traffic = field(default_factory=Traffic)
    #: When the line is free again: the end of the last frame that was sent.
    free_s: float = 0.0
    #: Frames on their way, by the time at which they arrive.
    flying: list[tuple[float, int, bytes]] = field(default_factory=list)

    def send(self, frame: bytes, line: Line, now_s: float) -> None:
        self.traffic.frames += 1
        self.traffic.bytes += len(frame)
        begin_s = max(now_s, self.free_s)
        waiting = (begin_s - now_s) * line.bits_s / 8
        if waiting > line.queue_bytes or self.rng.random() < line.lost:
            self.traffic.lost += 1
            return
        self.free_s = begin_s + (len(frame) * 8 / line.bits_s if line.bits_s else 0.0)
        heapq.heappush(self.flying, (self.free_s + line.delay_s, self.traffic.frames, frame))

    def deliver(self, now_s: float) -> None:
        while self.flying and self.flying[0][0] <= now_s:
            os.write(self.target, heapq.heappop(self.flying)[2])


class SiteLink:
    """The line of a site: the machines of these ``numbers`` (the first of all has 1) reach each
    other at once, and all others only by it. Made where `machines_of` has made them."""

    def __init__(self, numbers: Sequence[int], seed: int = 1) -> None:
        self._line, self._cut = GOOD, False
        self._over = threading.Event()
        self._taps = [_tap("site-far"), _tap("site-near")]
        _ip("link add site type bridge")
        _ip("link set site up")
        _ip("link set site-far master machines up")
        _ip("link set site-near master site up")
        for number in numbers:
            _ip(f"link set m{number} master site up")
        far, near = self._taps
        #: To the site, and from it.
        self._inward = _Direction(far, near, random.Random(seed))
        self._outward = _Direction(near, far, random.Random(seed + 1))
        self._thread = threading.Thread(target=self._carry, name="line", daemon=True)
        self._thread.start()

    @property
    def inward(self) -> Traffic:
        """What was sent to the site."""
        return self._inward.traffic

    @property
    def outward(self) -> Traffic:
        """What the site sent."""
        return self._outward.traffic

    def shape(self, line: Line) -> None:
        """Carry frames like this from now on, both ways."""
        self._line = line

    def cut(self) -> None:
        """Drop everything, and tell nobody."""
        self._cut = True

    def heal(self) -> None:
        self._cut = False

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        for tap in self._taps:
            os.close(tap)

    def _carry(self) -> None:
        by_source = {d.source: d for d in (self._inward, self._outward)}
        while not self._over.is_set():
            arriving = [d.flying[0][0] for d in by_source.values() if d.flying]
            wait_s = min([_WAIT_S, *(max(0.0, at - time.monotonic()) for at in arriving)])
            readable, _, _ = select.select(list(by_source), [], [], wait_s)
            now_s = time.monotonic()
            for source in readable:
                frame = os.read(source, _FRAME_BYTES)
                if not self._cut:
                    by_source[source].send(frame, self._line, now_s)
            for direction in by_source.values():
                if self._cut:
                    direction.flying.clear()
                direction.deliver(now_s)


def _tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return tap


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)
