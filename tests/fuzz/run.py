"""Coverage-guided fuzzing of one target with atheris: ``make fuzz TARGET=journal SECONDS=60``.

It begins with the corpus in the repository and the seeds, runs for some seconds, and ends with
status 0 or, on a finding, with the traceback and the input that led to it. What reached new code
is left in the directory ``--work``; ``--keep`` adds to the corpus what reaches lines there, or
ways between them, that nothing else does. Without a target the names of all are printed.
Atheris is needed for fuzzing only, and not among the packages of `make setup`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"
#: An input that is longer is not kept.
_KEEP_BYTES: Final = 2_048
_FINDING: Final = "finding-"
_CORPUS_BYTES: Final = 48_000
_MAX_INPUT_BYTES: Final = 4_096
_INPUT_SECONDS: Final = 10
_MEMORY_MB: Final = 2_048


def main(arguments: list[str]) -> None:
    """Do as the command line says. Fuzzing does not return: libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("target", nargs="?", help="what to fuzz; without it, names are printed")
    parser.add_argument("--seconds", type=int, default=60, help="how long (default 60)")
    parser.add_argument("--work", type=Path, help="where inputs are kept (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="only add WORK to the corpus")
    options = parser.parse_args(arguments)
    if options.target is None:
        print(*importlib.import_module("tests.fuzz.targets").TARGETS)
        return
    work: Path = options.work or Path(tempfile.mkdtemp(prefix="runnel-fuzz-work-"))
    if options.keep:
        keep(options.target, work)
        return
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        sys.exit(f"atheris is not installed here; make fuzz TARGET={options.target} fetches it")
    with atheris.instrument_imports(include=["schemas", "spu", "runnel", "sc"]):
        bounds = importlib.import_module("tests.fuzz.bounds")
        seeds = importlib.import_module("tests.fuzz.seeds").seeds
        targets = importlib.import_module("tests.fuzz.targets")
    target = _find(targets.TARGETS, options.target)
    _be_quiet()
    work.mkdir(parents=True, exist_ok=True)
    for data in seeds(options.target):
        (work / _name(data)).write_bytes(data)

    def once(data: bytes) -> None:
        try:
            bounds.in_time(target, data, offline=True)
        except BaseException:
            found = work / f"{_FINDING}{_name(data)}"
            found.write_bytes(data)
            print(f"a finding; the input is {found}", file=sys.stderr)
            raise

    known = CORPUS / options.target
    known.mkdir(parents=True, exist_ok=True)
    flags = [
        f"-max_total_time={options.seconds}",
        f"-max_len={_MAX_INPUT_BYTES}",
        f"-timeout={_INPUT_SECONDS}",
        f"-rss_limit_mb={_MEMORY_MB}",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, str(work), str(known)], once)
    atheris.Fuzz()


def keep(name: str, work: Path) -> None:
    """Add to the corpus of a target what is in ``work`` and reaches what nothing before it does:
    neither the seeds, nor the corpus, nor a smaller one."""
    reach: Any = importlib.import_module("tests.fuzz.reach")
    target = _find(importlib.import_module("tests.fuzz.targets").TARGETS, name)
    seeds = importlib.import_module("tests.fuzz.seeds").seeds(name)
    _be_quiet()
    known = CORPUS / name
    known.mkdir(parents=True, exist_ok=True)
    reached: set[Any] = set()
    for data in (*seeds, *(path.read_bytes() for path in known.iterdir())):
        reached |= reach.ways(target, data)
    room = _CORPUS_BYTES - sum(path.stat().st_size for path in known.iterdir())
    for path in sorted(work.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        data = path.read_bytes()
        if path.name.startswith(_FINDING) or not 0 < len(data) <= min(room, _KEEP_BYTES):
            continue
        if found := reach.ways(target, data) - reached:
            reached |= found
            room -= len(data)
            (known / _name(data)).write_bytes(data)


def _find(targets: Any, name: str) -> Any:
    if name not in targets:
        sys.exit(f"no target is called {name}; there are {', '.join(targets)}")
    return targets[name]


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _be_quiet() -> None:
    """Recovery complains of every damaged log, aiohttp of what is no HTTP; a fuzzer makes thousands
    in a second."""
    logging.disable(logging.CRITICAL)
    structlog: Any = importlib.import_module("structlog")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


if __name__ == "__main__":
    main(sys.argv[1:])
