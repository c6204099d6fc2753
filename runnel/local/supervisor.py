"""``python -m runnel.local.supervisor``: runs a local cluster for as long as its parent wants it.

The parent holds the other end of standard input. When that closes, because the parent asked for it
or has ended in whatever way, the supervisor stops the cluster, and removes its directory if that
was temporary. So no daemon outlives a script that was killed or a notebook whose kernel was
restarted. It is in a session of its own: Ctrl-C reaches the parent only.

The first line of standard input is an `Order`, the first of standard output an `Answer`, as JSON.
Neighbours: `runnel.local_cluster` is the parent, `runnel.local.cluster` starts and stops daemons.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from runnel.local.cluster import ClusterDaemons
from runnel.local.processes import free_base_port
from runnel.local.signals import shielded
from runnel.local.starting import without_logs
from runnel.waiters import Flag
from schemas.errors import ConflictError, NotFoundError, RunnelError, StorageFailedError


@dataclass(frozen=True, slots=True)
class Order:
    """What the parent wants: the cluster of a data directory; None means what it had, or the
    default, and free ports."""

    data_dir: str
    temporary: bool
    spus: int | None
    base_port: int | None
    kv: str | None
    name: str | None
    dashboard: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the SC listens and how many SPUs there are, or the code and text of an error."""

    address: str | None = None
    spus: int = 0
    code: int | None = None
    message: str = ""


def main() -> int:
    """Run a cluster until standard input ends. 1 if it could not be started."""
    order = Order(**json.loads(sys.stdin.readline()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    daemons = ClusterDaemons(Path(order.data_dir))
    code = 0
    try:
        threading.Thread(target=_until_the_parent_ends, daemon=True).start()
        _run(daemons, order)
    except KeyboardInterrupt:
        pass
    except RunnelError as error:
        message = without_logs(error.message) if order.temporary else error.message
        _say(Answer(code=error.code.value, message=message))
        code = 1
    finally:
        if order.temporary:
            with shielded():
                shutil.rmtree(order.data_dir, ignore_errors=True)
    return code


def _run(daemons: ClusterDaemons, order: Order) -> None:
    before = daemons.load()
    if before is not None and before.alive(daemons.data_dir):
        address = before.plan(daemons.data_dir).sc_address
        raise ConflictError(
            f"the cluster in {daemons.data_dir} runs already: use it with"
            f" runnel.connect({address!r}), or stop it with: runnel cluster stop"
        )

    def wanted(port: int | None) -> tuple[int | None, int | None, str | None, str | None]:
        return order.spus, port, order.kv, order.name

    ours = True
    try:
        plan = daemons.plan(*wanted(order.base_port), dashboard=order.dashboard)
        if order.base_port is None:
            port = free_base_port(daemons.data_dir, plan.spus)
            plan = daemons.plan(*wanted(port), dashboard=order.dashboard)
        daemons.start(plan, _ignore, remember=False)
        _say(Answer(plan.sc_address, plan.spus))
        Flag().wait()
    except ConflictError:
        # Another command is at work in this directory, or has its ports.
        ours = False
        raise
    finally:
        if ours:
            # They have stopped, too, if that cannot be written down.
            with shielded(), suppress(NotFoundError, StorageFailedError):
                daemons.stop()


def _until_the_parent_ends() -> None:
    sys.stdin.read()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _say(answer: Answer) -> None:
    # The parent may have ended.
    with suppress(OSError):
        print(json.dumps(asdict(answer)), flush=True)


def _ignore(_step: str) -> None:
    pass


if __name__ == "__main__":
    raise SystemExit(main())
