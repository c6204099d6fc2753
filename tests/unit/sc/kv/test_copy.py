"""A copy of a SQLite file is of one write, although another process writes meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sc.kv import SqliteKV
from sc.kv.database import Database
from sc.kv.interface import Put
from sc.kv.mvcc import Mvcc


class Meddled(Database):
    """Somebody writes between two statements of a load."""

    def _load(self, connection: sqlite3.Connection) -> Mvcc:
        done: list[str] = []

        def meddle(statement: str) -> None:
            if statement.startswith("SELECT id") and not done:
                done.append(statement)
                with sqlite3.connect(self.path) as other:
                    other.execute(
                        "INSERT INTO history"
                        " SELECT revision + 1, 0, 'late', x'00', revision + 1, 1, 0 FROM store"
                    )
                    other.execute("UPDATE store SET revision = revision + 1")

        connection.set_trace_callback(meddle)
        return super()._load(connection)


async def test_given_a_write_in_the_middle_then_none_of_it_is_in_the_copy(tmp_path: Path) -> None:
    kv = await SqliteKV.open(tmp_path / "kv.db")
    written = await kv.txn((), [Put("early", b"")])
    await kv.close()
    copy = Meddled(tmp_path / "kv.db").read_copy()
    assert copy.revision == written.revision
    assert Database(tmp_path / "kv.db").read_copy().revision == written.revision + 1
