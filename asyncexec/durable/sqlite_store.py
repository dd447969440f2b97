"""SQLiteStore: a table of an SQLite database, by aiosqlite.

With the user's own connection, what the user has written to it since the last ``put`` and the value that is put are
committed in one transaction: results and the position behind them are both there, or neither is.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from asyncexec.durable.store import checked_key, not_found
from asyncexec.framework.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)
from asyncexec.framework.extras import require
from asyncexec.framework.file_errors import checked_path

if TYPE_CHECKING:
    from aiosqlite import Connection

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAY_WRITE: Final = "let the process read and write the file and its folder"
_DAMAGED: Final = "put a copy of the file in its place, or use another file"
_AGAIN: Final = 0.01  # seconds between two tries to turn on the write-ahead log
# Codes of SQLite -> error and hint.
_ERRORS: Final[dict[int, tuple[type[OpError], str]]] = {
    sqlite3.SQLITE_BUSY: (UnavailableError, "another process writes to it; let it commit, or use another file"),
    sqlite3.SQLITE_LOCKED: (UnavailableError, "another connection writes to it; let it commit, or use another file"),
    sqlite3.SQLITE_FULL: (ResourceExhaustedError, "make room on the disk"),
    sqlite3.SQLITE_TOOBIG: (ResourceExhaustedError, "ax.checkpoint.FileStore has no limit of size"),
    sqlite3.SQLITE_READONLY: (PermissionDeniedError, _MAY_WRITE),
    sqlite3.SQLITE_PERM: (PermissionDeniedError, _MAY_WRITE),
    sqlite3.SQLITE_CANTOPEN: (PermissionDeniedError, "its folder must be there, and may be written to"),
    sqlite3.SQLITE_CORRUPT: (DataLossError, _DAMAGED),
    sqlite3.SQLITE_NOTADB: (DataLossError, "the file is no database of SQLite"),
    sqlite3.SQLITE_IOERR: (UnavailableError, "see that the disk is in order, or use another one"),
}
_OTHER: Final = (
    UnavailableError,
    "see that the database and the table are as asyncexec makes them; table= names another",
)


class SQLiteStore:
    """A store in an SQLite database, with write-ahead log; needs the extra ``durable``.

    Give it a path, and it has a connection of its own until ``close``, or the end of its ``async with``.  Or give it
    your own ``aiosqlite.Connection``: then ``put`` commits what you have written to it in the same transaction.

    >>> ax.checkpoint.SQLiteStore("orders.db")
    <ax.checkpoint.SQLiteStore 'orders.db' table 'asyncexec_checkpoints'>

    Args:
        database: the path, or the connection, which stays yours to close.
        table: where the values are; it is made when it is not there.

    Raises:
        DataLossError: the file is no database, or is damaged.
        FailedPreconditionError: the connection has ``isolation_level=None`` or ``autocommit=``, has uncommitted writes
            when a stream begins, has lost some since, or is closed.
        InvalidArgumentError: *table* is no name of a table, a key is no key, or *database* is no path.
        MissingExtraError: aiosqlite is not installed.
        NotFoundError: ``get`` of a key that is not there.
        PermissionDeniedError: the file may not be read or written.
        ResourceExhaustedError: the disk is full, or a value is larger than SQLite takes.
        UnavailableError: the database is locked by others for longer than the timeout of the connection.
    """

    def __init__(self, database: str | os.PathLike[str] | Connection, *, table: str = "asyncexec_checkpoints") -> None:
        self._aiosqlite: Any = require("aiosqlite", extra="durable")
        if not _TABLE.fullmatch(table):
            raise InvalidArgumentError(f"{table!r} is no name of a table", hint="letters, digits and _")
        is_connection = isinstance(database, self._aiosqlite.Connection)
        self._table = table
        self._path = None if is_connection else checked_path(database, "a database, or an aiosqlite.Connection,")
        self._connection: Any = database if is_connection else None
        self._is_ready = False
        self._has_lost = False  # what the user has written since the last put
        self._opening = asyncio.Lock()
        self._num_closed = 0

    @property
    def commits_outputs(self) -> bool:
        """Whether ``put`` commits what the user has written: the connection is the user's."""
        return self._path is None

    async def check_begin(self) -> None:
        """FailedPreconditionError if the connection has writes of before the stream, which it would commit."""
        connection = await self._open()
        with self._telling("it cannot be read"):
            has_writes = self.commits_outputs and connection.in_transaction
        if has_writes:
            raise FailedPreconditionError(
                f"{self!r}: the connection has uncommitted writes, which the first checkpoint would commit",
                hint="before a stream begins, commit them; after one that was left early, roll back",
            )

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* in place of what is there, and commit it with what else the connection has written."""
        await self._put(key, f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?)", checked_key(key), value)  # noqa: S608

    async def put_guarded(self, key: str, value: bytes, guard: str, expected: bytes) -> bool:
        """As ``put``, if *expected* is what *guard* has; whether it has been stored."""
        statement = (
            f"INSERT OR REPLACE INTO {self._table} SELECT ?, ?"  # noqa: S608
            f" WHERE EXISTS (SELECT 1 FROM {self._table} WHERE key = ? AND value = ?)"
        )
        return await self._put(key, statement, checked_key(key), value, guard, expected)

    async def _put(self, key: str, statement: str, *values: object) -> bool:
        connection = await self._open()
        if self._has_lost:
            raise FailedPreconditionError(
                f"{self!r}: SQLite has rolled back what was written since the last checkpoint",
                hint="end the stream; the next one goes on from that checkpoint",
            )
        with self._telling(f"{key!r} cannot be written"):
            had_writes = self.commits_outputs and connection.in_transaction
            try:
                # For one row, too: sqlite3 asks for the GIL once less, which the event loop has to wait for.
                cursor = await connection.executemany(statement, [values])
                is_stored = bool(cursor.rowcount)
                if self.commits_outputs and is_stored:
                    await connection.commit()
                elif self.commits_outputs and not had_writes:
                    await connection.rollback()  # else it would keep others from writing
            except sqlite3.Error:
                # A full disk, for one, ends the transaction: a later put would commit a position without its results.
                self._has_lost = had_writes and not connection.in_transaction
                raise
        return is_stored

    async def put_new(self, key: str, value: bytes) -> bool:
        """As ``put``, unless *key* is there; whether it has been stored."""
        connection = await self._open()
        pair = checked_key(key), value
        with self._telling(f"{key!r} cannot be written"):
            cursor = await connection.execute(f"INSERT OR IGNORE INTO {self._table} VALUES (?, ?)", pair)  # noqa: S608
            is_new = bool(cursor.rowcount)
            await cursor.close()
            await connection.commit()
        return is_new

    async def get(self, key: str) -> bytes:
        """The bytes of *key*; NotFoundError when there are none."""
        rows = await self._ask(f"SELECT value FROM {self._table} WHERE key = ?", checked_key(key))  # noqa: S608
        if not rows:
            raise not_found(key, repr(self))
        return bytes(rows[0][0])

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with *prefix*, sorted."""
        rows = await self._ask(
            f"SELECT key FROM {self._table} WHERE substr(key, 1, ?) = ? ORDER BY key",  # noqa: S608
            len(prefix),
            prefix,
        )
        return [key for (key,) in rows]

    async def delete(self, key: str) -> None:
        """Forget *key*; on the user's connection, with its next commit."""
        connection = await self._open()
        pair = (checked_key(key),)
        with self._telling(f"{key!r} cannot be deleted"):
            await connection.execute(f"DELETE FROM {self._table} WHERE key = ?", pair)  # noqa: S608

    async def close(self) -> None:
        """Close the connection, unless it is the user's."""
        if self.commits_outputs:
            return
        self._num_closed += 1  # so who opens it just now gives up
        async with self._opening:
            connection, self._connection, self._is_ready = self._connection, None, False
            if connection is not None:
                await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _ask(self, statement: str, *values: object) -> Any:
        connection = await self._open()
        with self._telling("it cannot be read"):
            async with connection.execute(statement, values) as cursor:
                return list(await cursor.fetchall())

    async def _open(self) -> Any:
        if self._is_ready:
            return self._connection
        num_closed = self._num_closed
        async with self._opening:
            if not self._is_ready:
                self._check_open(num_closed)
                await self._prepare(num_closed)
                self._is_ready = True
        return self._connection

    async def _prepare(self, num_closed: int) -> None:
        is_own = self._connection is None
        with self._telling("it cannot be opened"):
            if self._path is not None:
                await asyncio.to_thread(_try_to_open, self._path)  # aiosqlite leaves its thread behind if that fails
            connection = self._connection
            if is_own:  # each statement commits itself
                connection = await self._aiosqlite.connect(self._path, isolation_level=None)
            try:
                await self._make_table(connection, num_closed)
            except BaseException:
                if is_own:
                    await connection.close()
                raise
        self._connection = connection

    async def _make_table(self, connection: Any, num_closed: int) -> None:
        if self.commits_outputs:
            await self._check_transactions(connection)
        else:
            await self._write_ahead(connection, num_closed)
            await connection.execute("PRAGMA synchronous=FULL")
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} (key TEXT PRIMARY KEY, value BLOB NOT NULL)"
        )
        self._check_open(num_closed)

    async def _write_ahead(self, connection: Any, num_closed: int) -> None:
        """Give the database a write-ahead log; while others write to one without, wait for the connection's timeout.

        SQLite itself does not wait here: of two connections that both want the log, each would wait for the other.
        """
        (timeout_ms,) = await (await connection.execute("PRAGMA busy_timeout")).fetchone()
        now = asyncio.get_running_loop().time
        until = now() + timeout_ms / 1e3
        while True:
            try:
                await connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or now() >= until:
                    raise
            await asyncio.sleep(_AGAIN)
            self._check_open(num_closed)

    def _check_open(self, num_closed: int) -> None:
        """FailedPreconditionError if the store has been closed since it was closed so many times."""
        if self._num_closed != num_closed:
            raise FailedPreconditionError(
                f"{self!r} has been closed while it was opened", hint="close it when nothing uses it any more"
            )

    async def _check_transactions(self, connection: Any) -> None:
        """FailedPreconditionError unless transactions of the user's connection begin with the first write."""
        # Python 3.12 has the attribute, for the thread of the connection alone.
        autocommit = await connection._execute(getattr, connection._conn, "autocommit", None)
        if autocommit is True or connection.isolation_level is None:
            raise FailedPreconditionError(
                f"{self!r}: the connection commits each statement by itself, so a checkpoint and your results would"
                " not be one transaction",
                hint="connect without isolation_level=None, and without autocommit=",
            )
        if autocommit is False:
            raise FailedPreconditionError(
                f"{self!r}: the connection is always in a transaction, so it does not tell uncommitted writes",
                hint="connect without autocommit=: a transaction begins with the first write, and put commits it",
            )

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Raise typed errors for those of SQLite."""
        try:
            yield
        except OpError:
            raise
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise self._told(error, what) from error

    def _told(self, error: Exception, what: str) -> OpError:
        code = getattr(error, "sqlite_errorcode", None)
        kind, hint = _ERRORS.get((code or 0) & 0xFF, _OTHER)
        if isinstance(error, (OverflowError, sqlite3.DataError)):
            kind, hint = _ERRORS[sqlite3.SQLITE_TOOBIG]
        elif isinstance(error, ValueError) or (isinstance(error, sqlite3.ProgrammingError) and code is None):
            kind, hint = FailedPreconditionError, "keep the connection open for as long as the store is used"
        return kind(f"{self!r}: {what}: {error}", hint=hint)

    def __repr__(self) -> str:
        shown = "on your connection" if self.commits_outputs else repr(self._path)
        return f"<ax.checkpoint.SQLiteStore {shown} table {self._table!r}>"


def _try_to_open(path: str | bytes) -> None:
    sqlite3.connect(path).close()
