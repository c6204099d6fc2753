"""A reader of a group as a process: a line for each record, with the time at which it has it.

``python -m tests.chaos.groups.reading ADDRESS GROUP NAME FILE``
"""

from __future__ import annotations

import os
import sys
import time

import runnel


def main() -> None:
    address, group, name, path = sys.argv[1:]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    settings = runnel.ConsumerSettings(auto_commit_ms=1_000)
    with runnel.connect(address) as cluster, cluster.reader_group(group) as found:
        for record in found.reader(name, settings=settings):
            assert record.key is not None
            assert record.value is not None
            key, value = bytes(record.key).decode(), bytes(record.value).decode()
            os.write(file, f"{time.monotonic_ns()} {key} {value}\n".encode())


if __name__ == "__main__":
    main()
