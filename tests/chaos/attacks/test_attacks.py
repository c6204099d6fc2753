"""A stranger attacks the open ports of a cluster. Clients that behave well notice little of it, and
the cluster decides nothing because of it.

Each case prints what a producer and a consumer had during the attack, beside the same length of
time before it, and what the attacker was answered.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

import runnel
from tests.chaos.attacks.beside import Neighbours, Watch, check_nothing_lost, used
from tests.chaos.attacks.scene import Scene, expose_an_absent_spu, scene_in, until
from tests.chaos.attacks.strangers import attack
from tests.chaos.replication.clients import check_acknowledged, read_back

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

MAX_GAP_S = 5.0
MAX_NEWCOMER_S = 10.0
NEWCOMERS = "newcomers"
_MIB = 1 << 20
#: Descriptors that a daemon may open beside those of strangers: files, clients, the KV.
_OTHERS = 40


@dataclass(frozen=True)
class Stage:
    """The scene, the clients on it, and a process for the attacker."""

    scene: Scene
    neighbours: Neighbours
    attacker: ProcessPoolExecutor
    newcomers: ThreadPoolExecutor


@dataclass(frozen=True)
class Case:
    """An attack: how long it lasts, what it is answered (patterns of whole lines), and what it may
    cost the SC and an SPU."""

    attack: str
    answers: tuple[str, ...]
    seconds: float = 3.0
    sc_bytes: int = 64 * _MIB
    spu_bytes: int = 32 * _MIB
    sc_descriptors: int = 100
    spu_descriptors: int = 40
    #: The SC may open only so many more descriptors meanwhile.
    more_descriptors: int | None = None


CASES = (
    Case(
        "forge_a_connected_spu",
        ("UNAUTHORIZED: another process is connected as SPU 0",),
    ),
    Case(
        "prove_wrongly",
        (
            "UNAUTHORIZED: SPU 9 does not know its secret: .*",
            "UNAUTHORIZED: SPU 9 has not proven itself: .*",
        ),
    ),
    Case("replay", ("UNAUTHORIZED: SPU 9 does not know its secret: .*",)),
    Case(
        "leap_far_ahead",
        ("CONFLICT: SPU 9 has seen incarnation 65000, .* would leap from incarnation 0 .*",),
    ),
    Case("come_as_a_web_page", ("Origin: 403", "Host: 403")),
    Case(
        "send_large_hellos",
        (
            # The SC closes while the rest is on its way: where that rest overtakes the close
            # frame, the connection is reset and the stranger sees 1006.
            "41 MiB: closed with 100[69]",
            "15 MiB: UNAUTHORIZED: SPU 77 is not registered.*",
            "2 MiB: closed with 100[69]",
        ),
        sc_bytes=256 * _MIB,
    ),
    Case(
        "send_large_bodies",
        (
            "26 MiB: (413|closed)",
            "unknown fields: 400",
            "wrong rows: 400",
            "numbers for rows: 400",
            "nested: 400",
        ),
        seconds=5.0,
        sc_bytes=256 * _MIB,
    ),
    Case(
        "hold_half_requests",
        ("900[347]: (opened|ended)",),
        seconds=5.0,
        sc_descriptors=100 + 32 + _OTHERS,
        spu_descriptors=64 + _OTHERS,
    ),
    Case(
        "use_up_descriptors",
        ("900[34]: (opened|ended)",),
        sc_descriptors=100,
        more_descriptors=100,
    ),
    Case(
        "announce_large_frames",
        (
            # An error is lost if more has come than was read when the connection ends.
            "9005, before HELLO: (a frame of N bytes is more than the N allowed.*|closed), at once",
            "9005, after HELLO: a frame stopped arriving for N s, in time",
            "9005, a byte a second: no HELLO came; this port speaks Runnel, in time",
            "9006, before the greeting: (a frame of N bytes is more than the N .*|closed), at once",
            "9006, after the greeting: (SPU N has not proven who it is.*|closed), at once",
            "9006, a byte a second: no greeting came, .*",
            # The private port has places for 32 strangers.
            "9006, .*: the private port of SPU N has N connections that have not said .*, at once",
        ),
        seconds=18.0,
        spu_descriptors=240 + _OTHERS,
    ),
    Case(
        "crowd_the_binary_ports",
        (
            "9005: SPU N has N connections that have not said what they are.*",
            "9006: the private port of SPU N has N connections that have not said .*",
        ),
        spu_descriptors=128 + 32 + _OTHERS,
    ),
    Case(
        "flood_with_requests",
        ("unknown api",),
        seconds=5.0,
        spu_descriptors=40 + _OTHERS,
    ),
    Case("flood_with_gets", ("200",), seconds=5.0, sc_descriptors=300 + _OTHERS),
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        scene = stack.enter_context(scene_in(tmp_path_factory.mktemp("attacks") / "home"))
        scene = asyncio.run(expose_an_absent_spu(scene))
        spawn = multiprocessing.get_context("spawn")
        attacker = stack.enter_context(ProcessPoolExecutor(1, mp_context=spawn))
        scene.command("create", "topic", NEWCOMERS, "--replication-factor", "3")
        # A topic may be ready before its last replica is live, and that replica joins later.
        until(scene.is_whole, "all replicas are live")
        # The process starts, and loads what it needs.
        attacker.submit(repr, scene.exposed).result()
        neighbours = stack.enter_context(Neighbours(scene.address))
        until(lambda: len(neighbours.read_at) > 100, "records flow")
        newcomers = stack.enter_context(ThreadPoolExecutor(1))
        yield Stage(scene, neighbours, attacker, newcomers)


@pytest.mark.parametrize("case", CASES, ids=[case.attack for case in CASES])
def test_attack(stage: Stage, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    scene, neighbours = stage.scene, stage.neighbours
    decided, ended = scene.decided(), scene.sessions_ended()
    began = time.perf_counter()
    time.sleep(case.seconds)
    sc = scene.processes["sc-0"]
    with (
        few_descriptors(sc, case.more_descriptors),
        Watch(scene.exposed.sc, scene.processes).watching() as watched,
    ):
        attacked = time.perf_counter()
        newcomer = stage.newcomers.submit(acknowledged_after_s, scene.address)
        answers = stage.attacker.submit(attack, case.attack, scene.exposed, case.seconds).result()
        over = time.perf_counter()
    quiet, loud = neighbours.between(began, attacked), neighbours.between(attacked, over)
    with capsys.disabled():
        print(f"\n{case.attack}, {over - attacked:.1f} s:")
        for who, before, during in zip(("producer", "consumer"), quiet, loud, strict=True):
            print(f"  {who}: {before} in quiet; {during} under attack")
        print(f"  a new client's first record is acknowledged after {newcomer.result():.2f} s")
        most = ", ".join(f"{name} {peak}" for name, peak in watched.peaks.items())
        print(f"  {most}; /health within {watched.slowest_health_s:.2f} s")
        for answer, count in sorted(answers.items()):
            print(f"  {count:6} x {answer}")
    assert scene.sessions_ended() == ended, "sessions of SPUs ended"
    assert scene.decided() == decided
    assert set(watched.health) == {200}, watched.health
    check_answers(case, answers)
    for name, peak in watched.peaks.items():
        is_sc = name == "sc-0"
        assert peak.grown_bytes <= (case.sc_bytes if is_sc else case.spu_bytes), name
        allowed = case.sc_descriptors if is_sc else case.spu_descriptors
        assert peak.more_descriptors <= allowed, name
    for before, during in zip(quiet, loud, strict=True):
        assert during.rate > before.rate / 2
        assert during.worst_gap_s < MAX_GAP_S
    assert newcomer.result() < MAX_NEWCOMER_S
    check_nothing_lost(neighbours)


def test_given_all_attacks_then_every_acknowledged_record_is_there(stage: Stage) -> None:
    stage.neighbours.stop()
    assert stage.neighbours.acknowledged
    check_acknowledged(stage.neighbours.acknowledged, read_back(stage.scene.address)[0])


def acknowledged_after_s(address: str) -> float:
    """How long it takes a client to connect, to open a producer, and to have a record
    acknowledged."""
    began = time.perf_counter()
    with runnel.connect(address) as cluster, cluster.producer(NEWCOMERS) as producer:
        producer.send(b"here").result(60)
        return time.perf_counter() - began


def check_answers(case: Case, answers: Counter[str]) -> None:
    """Each answer is one that the attack should get, and each of these came."""
    for answer in answers:
        assert any(re.fullmatch(pattern, answer) for pattern in case.answers), answer
    for pattern in case.answers:
        assert any(re.fullmatch(pattern, answer) for answer in answers), pattern


@contextmanager
def few_descriptors(pid: int, more: int | None) -> Iterator[None]:
    """Let a process open only so many ``more`` descriptors; None: as many as before."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    if more is not None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used(pid)[1] + more, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
