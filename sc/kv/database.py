"""The SQLite file of a KV: opening, locking, loading, and writing deltas.

Everything here blocks and belongs to one thread, the one that called `Database.open`. Tables:

- ``history``: versions of keys in revision order, as `sc.kv.mvcc.Version`; ``value`` is NULL for
  a deletion. The primary key is the order in which they were written, so appending is cheap.
- ``leases``: existing leases and the time each was granted for. Expiry times are not stored: after
  a restart every lease gets its whole time again, as after a change of etcd's leader.
- ``store``: one row, the current and the compacted revision.

The file is in WAL mode with ``synchronous=FULL``: `write` returns after an fsync. A process holds
``<file>.lock`` while it has the file open. The lock is a file of its own, because closing any
descriptor of the database file would drop SQLite's own locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sc.kv.interface import KeyValue
from sc.kv.mvcc import FIRST_REVISION, Delta, Mvcc, Version
from schemas.errors import ConflictError, NotFoundError, StorageFailedError, UnsupportedError

FORMAT: Final = 1
"""Version of the tables, in the file's ``user_version``."""

_APPLICATION_ID: Final = 0x526E4B56

_TABLES: Final = (
    """CREATE TABLE history (
        revision INTEGER NOT NULL, sub INTEGER NOT NULL, key TEXT NOT NULL, value BLOB,
        create_revision INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL,
        PRIMARY KEY (revision, sub)) WITHOUT ROWID""",
    "CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL)",
    """CREATE TABLE store (
        id INTEGER PRIMARY KEY CHECK (id = 0),
        revision INTEGER NOT NULL, compacted INTEGER NOT NULL)""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
)


class DiskFullError(Exception):
    """There is no room for a write. None of it was made durable: it may be repeated."""


class Database:
    """One SQLite file, opened once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> Mvcc:
        """Lock the file, create it if there is none, and load it. `read_copy` does without.

        Raises ConflictError when another process has it open, UnsupportedError for a file of
        another kind or of a later format, StorageFailedError when it cannot be read or written.
        """
        try:
            with self._naming_failures("open"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _take_lock(self.path)
                self._connection = sqlite3.connect(self.path, isolation_level=None)
                self._prepare(self._connection)
                return self._load(self._connection)
        except BaseException:
            self.close()
            raise

    def write(self, deltas: Sequence[Delta]) -> None:
        """Make deltas durable together, in one SQLite transaction.

        Raises DiskFullError; StorageFailedError, and then it is unknown whether the deltas survive
        a restart.
        """
        assert self._connection is not None, "write before open"  # noqa: S101
        with self._naming_failures("write"), _transaction(self._connection) as cursor:
            cursor.executemany(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
                [_row(version) for delta in deltas for version in delta.written],
            )
            # After the insertions: a later delta may forget versions that an earlier one wrote.
            cursor.executemany(
                "DELETE FROM history WHERE revision = ? AND sub = ?",
                [place for delta in deltas for place in delta.forgotten],
            )
            cursor.executemany(
                "INSERT INTO leases VALUES (?, ?)",
                [lease for delta in deltas for lease in delta.granted],
            )
            cursor.executemany(
                "DELETE FROM leases WHERE id = ?",
                [(lease,) for delta in deltas for lease in delta.revoked],
            )
            last = deltas[-1]
            cursor.execute(
                "UPDATE store SET revision = ?, compacted = ?", (last.revision, last.compacted)
            )

    def check_room(self) -> None:
        """Write nothing new, if the disk has no byte free. Even then there may be room in the file.

        Raises DiskFullError, StorageFailedError.
        """
        assert self._connection is not None, "check before open"  # noqa: S101
        with self._naming_failures("write"):
            if not os.statvfs(self.path.parent).f_bavail:
                with _transaction(self._connection) as cursor:
                    # SQLite writes no page for values that stay as they are.
                    cursor.execute("UPDATE store SET revision = revision + 1")
                    cursor.execute("UPDATE store SET revision = revision - 1")

    def close(self) -> None:
        """Close the file and release the lock. May be called again, and after a failure."""
        connection, self._connection = self._connection, None
        lock, self._lock = self._lock, None
        try:
            if connection is not None:
                # Closing checkpoints; a failing disk fails here too, and loses nothing by it.
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        finally:
            if lock is not None:
                os.close(lock)

    def read_copy(self) -> Mvcc:
        """What the file holds as of one write, while another process may have it open. Nothing is
        locked or changed.

        Raises NotFoundError, and what `open` raises of a file's content.
        """
        if not self.path.is_file():
            raise NotFoundError(f"there is no KV file {self.path}")
        with self._naming_failures("read"):
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(
                sqlite3.connect(address, uri=True, isolation_level=None)
            ) as connection:
                # All that follows sees the same write.
                connection.execute("BEGIN")
                if not self._check_kind(connection):
                    raise NotFoundError(f"{self.path} is an empty file")
                return self._load(connection)

    def _check_kind(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has tables. Raises UnsupportedError for a file of another kind or of a
        later format."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and application != _APPLICATION_ID:
            raise UnsupportedError(
                f"{self.path} is a SQLite file of another program; name another file"
            )
        if version > FORMAT:
            raise UnsupportedError(
                f"{self.path} has format {version}, this version of Runnel knows {FORMAT}; "
                "upgrade Runnel"
            )
        return bool(tables)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        tables = self._check_kind(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if not tables:
            with _transaction(connection) as cursor:
                for statement in _TABLES:
                    cursor.execute(statement)
                cursor.execute("INSERT INTO store VALUES (0, ?, 0)", (FIRST_REVISION,))
            _sync_directory(self.path.parent)

    def _load(self, connection: sqlite3.Connection) -> Mvcc:
        revision, compacted = connection.execute("SELECT revision, compacted FROM store").fetchone()
        leases = connection.execute("SELECT id, ttl_ms FROM leases").fetchall()
        rows = connection.execute("SELECT * FROM history ORDER BY revision, sub")
        try:
            return Mvcc.restore(
                revision=revision,
                compacted=compacted,
                versions=(_version(*row) for row in rows),
                leases=leases,
            )
        except ValueError as error:
            raise StorageFailedError(
                f"the KV file {self.path} is damaged: {error}; restore it from a backup"
            ) from error

    @contextlib.contextmanager
    def _naming_failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise DiskFullError(str(error)) from error
            raise StorageFailedError(
                f"cannot {what} the KV file {self.path}: {error}; check the disk and the file's "
                "permissions, then restart"
            ) from error


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        with contextlib.closing(connection.cursor()) as cursor:
            yield cursor
        connection.execute("COMMIT")
    except BaseException:
        # SQLite rolls some failures back by itself and then refuses to do it again.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _row(version: Version) -> tuple[int, int, str, bytes | None, int, int, int]:
    kv = version.kv
    if kv is None:
        return (version.revision, version.sub, version.key, None, 0, 0, 0)
    return (
        version.revision,
        version.sub,
        version.key,
        kv.value,
        kv.create_revision,
        kv.version,
        kv.lease,
    )


def _version(
    revision: int,
    sub: int,
    key: str,
    value: bytes | None,
    create_revision: int,
    version: int,
    lease: int,
) -> Version:
    if value is None:
        return Version(key, revision, sub, None)
    return Version(
        key, revision, sub, KeyValue(key, value, create_revision, revision, version, lease)
    )


def _take_lock(path: Path) -> int:
    lock_path = path.with_name(path.name + ".lock")
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise ConflictError(
            f"{path} is in use by another process (pid {holder}); stop it, or use another file",
            pid=holder,
        ) from error
    except BaseException:
        os.close(lock)
        raise
    return lock


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
