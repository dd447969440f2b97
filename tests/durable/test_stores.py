"""Stores: each does what a dict does, survives what a crash leaves, and tells what is wrong by a typed error."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import AsyncMock

import aiosqlite
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.durable.store import Store, checked_store

KINDS = ["memory", "files", "sqlite", "connection", "objects"]
Act: TypeAlias = tuple[str, str, bytes]


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "memory":
        yield ax.checkpoint.MemoryStore()
    elif kind == "files":
        yield ax.checkpoint.FileStore(folder / "store")
    elif kind == "sqlite":
        async with ax.checkpoint.SQLiteStore(folder / "store.db") as store:
            yield store
    elif kind == "connection":
        async with aiosqlite.connect(folder / "users.db") as connection:
            yield ax.checkpoint.SQLiteStore(connection)
    else:
        obstore = pytest.importorskip("obstore")
        yield ax.checkpoint.ObjectStore(obstore.store.MemoryStore())


def in_loop(test: Callable[..., Any], *args: Any) -> None:
    asyncio.run(test(*args))


keys = st.sampled_from(["a", "a/1", "a/2", "ab/1", "b/c/d", "b/c.e"])
acts = st.lists(st.tuples(st.sampled_from(["put", "get", "list", "delete"]), keys, st.binary(max_size=40)), max_size=12)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "objects"])
@settings(max_examples=25, deadline=None)
@given(acts=acts)
def test_a_store_is_a_dict(kind: str, tmp_path_factory: pytest.TempPathFactory, acts: list[Act]) -> None:
    in_loop(act_as_dict, kind, tmp_path_factory.mktemp("store"), acts)


@settings(max_examples=25, deadline=None)
@given(acts=acts)
def test_a_folder_is_a_dict(tmp_path_factory: pytest.TempPathFactory, acts: list[Act]) -> None:
    """Keys are words here of which none is a folder of another key."""
    in_loop(act_as_dict, "files", tmp_path_factory.mktemp("store"), [act for act in acts if act[1] != "a"])


async def act_as_dict(kind: str, folder: Path, acts: list[Act]) -> None:
    model: dict[str, bytes] = {}
    async with opened(kind, folder) as store:
        for action, key, value in acts:
            if action == "put":
                await store.put(key, value)
                model[key] = value
            elif action == "delete":
                await store.delete(key)
                model.pop(key, None)
            elif action == "list":
                assert await store.list(key) == sorted(each for each in model if each.startswith(key))
            elif key in model:
                assert await store.get(key) == model[key]
            else:
                with pytest.raises(ax.errors.NotFoundError, match=key):
                    await store.get(key)
        assert await store.list() == sorted(model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", "a b", "a\n", "x" * 251])
async def test_a_key_that_not_every_store_can_have_is_refused(kind: str, key: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as store:
        with pytest.raises(ax.errors.InvalidArgumentError, match="no key of a store"):
            await store.put(key, b"")


@pytest.mark.parametrize("store", [None, {}, "orders.db", ax.checkpoint.MemoryStore])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match="put, get, list and delete"):
        checked_store(store)


async def test_a_store_goes_on_in_another_object(tmp_path: Path) -> None:
    for kind in ("files", "sqlite"):
        async with opened(kind, tmp_path) as store:
            await store.put("a/1", b"one")
        async with opened(kind, tmp_path) as store:
            assert await store.get("a/1") == b"one"


async def test_a_file_that_was_not_completed_is_not_read(tmp_path: Path) -> None:
    store = ax.checkpoint.FileStore(tmp_path)
    await store.put("a/1", b"one")
    (tmp_path / "a" / ".written-0123").write_bytes(b"on")
    assert await store.list() == ["a/1"]


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = ax.checkpoint.FileStore(tmp_path / "file")
    with pytest.raises(ax.errors.UnavailableError, match="'a' cannot be written"):
        await store.put("a", b"")


async def test_a_full_disk_is_told(tmp_path: Path) -> None:
    store = ax.checkpoint.SQLiteStore(tmp_path / "small.db")
    async with store:
        await store.put("a", b"small")
        await store._connection.execute("PRAGMA max_page_count=8")
        with pytest.raises(ax.errors.ResourceExhaustedError, match="full"):
            await store.put("b", bytes(100_000))
        assert await store.get("a") == b"small"


async def test_a_locked_database_is_told_and_used_when_it_is_free(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db", timeout=0.01) as connection:
        store = ax.checkpoint.SQLiteStore(connection)
        await store.put("a", b"1")
        async with aiosqlite.connect(tmp_path / "orders.db") as other:
            await other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(ax.errors.UnavailableError, match="locked"):
                await store.put("a", b"2")
            await other.rollback()
        await store.put("a", b"3")
        assert await store.get("a") == b"3"


async def test_a_new_database_that_others_write_to_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    async with aiosqlite.connect(path) as other, ax.checkpoint.SQLiteStore(path) as store:
        await other.execute("BEGIN IMMEDIATE")

        async def commit(_seconds: float) -> None:
            await other.commit()

        with pytest.MonkeyPatch.context() as patch:
            waits = AsyncMock(side_effect=commit)
            patch.setattr(asyncio, "sleep", waits)
            await store.put("a", b"1")
        waits.assert_awaited_once()
        assert await store.get("a") == b"1"


async def test_a_store_that_is_closed_while_it_is_opened_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    async with aiosqlite.connect(path) as other:
        await other.execute("BEGIN IMMEDIATE")
        async with ax.checkpoint.SQLiteStore(path) as store:
            puts = [asyncio.ensure_future(store.put(key, b"1")) for key in "ab"]
            while not store._opening.locked():  # noqa: ASYNC110
                await asyncio.sleep(0)
        await other.rollback()
        for put in puts:
            with pytest.raises(ax.errors.FailedPreconditionError):
                await put
        assert store._connection is None


async def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "orders.db").write_bytes(b"this is a text, and long enough to be taken for a page" * 100)
    async with ax.checkpoint.SQLiteStore(tmp_path / "orders.db") as store:
        with pytest.raises(ax.errors.DataLossError, match="not a database"):
            await store.get("a")


async def test_a_folder_of_a_database_must_be_there(tmp_path: Path) -> None:
    async with ax.checkpoint.SQLiteStore(tmp_path / "none" / "orders.db") as store:
        with pytest.raises(ax.errors.PermissionDeniedError, match="unable to open"):
            await store.put("a", b"")


async def test_results_and_value_are_one_transaction(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db") as connection:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        store = ax.checkpoint.SQLiteStore(connection)
        await store.put("position", b"0")
        await connection.execute("INSERT INTO orders VALUES (1)")
        await store.put("position", b"1")
        await connection.execute("INSERT INTO orders VALUES (2)")
        # The process ends here: what was not committed is not there.
        await connection.rollback()
        async with connection.execute("SELECT number FROM orders") as cursor:
            assert await cursor.fetchall() == [(1,)]
        assert await store.get("position") == b"1"


async def test_results_that_a_full_disk_has_rolled_back_are_not_passed_over(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db") as connection:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        store = ax.checkpoint.SQLiteStore(connection)
        await store.put("position", b"0")
        await connection.execute("INSERT INTO orders VALUES (1)")
        await connection.execute("PRAGMA max_page_count=8")
        with pytest.raises(ax.errors.ResourceExhaustedError, match="full"):
            await store.put("position", bytes(100_000))
        await connection.execute("PRAGMA max_page_count=100000")
        async with connection.execute("SELECT number FROM orders") as cursor:
            assert await cursor.fetchall() == []
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"rolled back[\s\S]*end the stream"):
            await store.put("position", b"1")
        assert await store.get("position") == b"0"


async def test_uncommitted_writes_of_others_are_told_when_a_stream_begins(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db") as connection:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        store = ax.checkpoint.SQLiteStore(connection)
        await store.check_begin()
        await connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"uncommitted writes[\s\S]*roll back"):
            await store.check_begin()
        await connection.rollback()
        await store.check_begin()


def with_autocommit(value: bool) -> dict[str, Any]:
    """Options of ``connect``, of which Python 3.12 has the argument."""
    if sys.version_info >= (3, 12):
        return {"autocommit": value}
    return {"factory": type("Connection", (sqlite3.Connection,), {"autocommit": value})}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"isolation_level": None}, "commits each statement by itself"),
        (with_autocommit(True), "commits each statement by itself"),
        (with_autocommit(False), "is always in a transaction"),
    ],
)
async def test_a_connection_whose_transactions_are_others_is_refused(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db", **options) as connection:
        store = ax.checkpoint.SQLiteStore(connection)
        for act in (store.check_begin(), store.put("a", b"")):
            with pytest.raises(ax.errors.FailedPreconditionError, match=rf"{told}[\s\S]*without autocommit="):
                await act


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        (sqlite3.SQLITE_READONLY, ax.errors.PermissionDeniedError, "read and write the file and its folder"),
        (sqlite3.SQLITE_PERM, ax.errors.PermissionDeniedError, "read and write the file and its folder"),
        (sqlite3.SQLITE_CORRUPT, ax.errors.DataLossError, "a copy of the file"),
        (sqlite3.SQLITE_IOERR_WRITE, ax.errors.UnavailableError, "the disk is in order"),
        (sqlite3.SQLITE_MISUSE, ax.errors.UnavailableError, "table= names another"),
    ],
)
async def test_what_sqlite_says_is_told_with_what_to_do(
    code: int, error: type[ax.errors.OpError], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = sqlite3.OperationalError("no")
    failure.sqlite_errorcode = code

    def fail(*_: Any) -> Any:
        raise failure

    async with aiosqlite.connect(tmp_path / "orders.db") as connection:
        store = ax.checkpoint.SQLiteStore(connection)
        monkeypatch.setattr(connection, "executemany", fail)
        with pytest.raises(error) as raised:
            await store.put("a", b"")
        assert hint in str(raised.value.hint)


async def test_a_database_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    async with ax.checkpoint.SQLiteStore(tmp_path / "orders.db") as store:
        await store.put("a", b"")
        await store._connection.execute("PRAGMA query_only=ON")
        with pytest.raises(ax.errors.PermissionDeniedError, match=r"readonly[\s\S]*hint: let the process"):
            await store.put("a", b"")


@pytest.mark.parametrize(
    ("number", "error", "hint"),
    [
        (errno.EACCES, ax.errors.PermissionDeniedError, "let the process read and write the folder"),
        (errno.EROFS, ax.errors.PermissionDeniedError, "let the process read and write the folder"),
        (errno.EIO, ax.errors.UnavailableError, "the disk is in order"),
    ],
)
async def test_what_a_disk_says_is_told_with_what_to_do(
    number: int, error: type[ax.errors.OpError], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    store = ax.checkpoint.FileStore(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error) as raised:
        await store.put("a", b"")
    assert hint in str(raised.value.hint)


async def test_a_closed_connection_is_told(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "orders.db") as connection:
        store = ax.checkpoint.SQLiteStore(connection)
        await store.put("a", b"")
    with pytest.raises(ax.errors.FailedPreconditionError, match="keep the connection open"):
        await store.put("a", b"")


@pytest.mark.parametrize("table", ["", "a b", "a;DROP TABLE orders", "1a"])
def test_a_name_that_is_no_table_is_refused(table: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="no name of a table"):
        ax.checkpoint.SQLiteStore("orders.db", table=table)


def test_what_is_no_database_of_anybody_is_refused() -> None:
    wrong: Any = sqlite3.connect(":memory:")
    wrong.close()
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"aiosqlite\.Connection"):
        ax.checkpoint.SQLiteStore(wrong)


def test_a_bucket_is_one_of_obstore() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(ax.errors.InvalidTypeError, match="no store of obstore"):
        ax.checkpoint.ObjectStore("s3://bucket")


async def test_what_a_crash_has_left_half_written_is_removed_later(tmp_path: Path) -> None:
    old, young = tmp_path / ".written-old", tmp_path / ".written-young"
    for path in (old, young):
        await asyncio.to_thread(path.write_bytes, b"half")
    an_hour_and_more_ago = time.time() - 4000
    os.utime(old, (an_hour_and_more_ago, an_hour_and_more_ago))
    store = ax.checkpoint.FileStore(tmp_path)
    await store.put("key", b"whole")
    assert sorted(await asyncio.to_thread(os.listdir, tmp_path)) == [".written-young", "key"]
