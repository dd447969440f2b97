"""Stores of journals that give what is none: told by a typed error, or left out with a warning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.checkpoint import CheckpointWarning, MemoryStore
from asyncexec.durable.record import JsonCodec, Record, to_bytes

NAMED = ax.RunOptions(run_id="run")


@ax.op
async def ask(x: float) -> float:
    return x + await ax.pause("more")


def asking() -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(ask(ax.placeholder(ax.float64, [], name="x")), name="asked")
    return graph


class Store(MemoryStore):
    """Gives *keys* for a list, and *content* for a get, where they are set."""

    keys: Any = ...
    content: Any = ...

    async def list(self, prefix: str = "") -> Any:
        return await super().list(prefix) if self.keys is ... else self.keys

    async def get(self, key: str) -> Any:
        return await super().get(key) if self.content is ... else self.content


async def paused(session: ax.Session, options: ax.RunOptions | None = None) -> ax.Pause:
    with pytest.raises(ax.PausedError) as caught:
        await session.run("asked:0", {"x:0": 1.0}, options=options)
    return caught.value.pauses[0]


@pytest.mark.parametrize("keys", [None, "", (), {}, [1], [b"runs/run/run"], ["runs/run/run", None], object()])
async def test_a_list_that_is_no_list_of_keys_is_told_and_no_run_begins_anew(keys: Any) -> None:
    store = Store()
    async with ax.Session(asking(), journal=store) as session:
        pause = await paused(session, NAMED)
        store.keys = keys
        for call in (
            lambda: session.run("asked:0", {"x:0": 1.0}, options=NAMED),
            lambda: session.resume(pause.token, 1.0),
            lambda: session.resume_run("run"),
            session.pauses,
            session.unfinished_runs,
            lambda: session.forget_run("run"),
        ):
            with pytest.raises(ax.errors.InvalidTypeError, match=r"the store Store gave .* and no list of strings"):
                await call()
        store.keys = ...
        assert await session.resume(pause.token, 1.0) == 2.0


@pytest.mark.parametrize("content", [None, "text", 5, [b"a"]])
async def test_a_get_that_gives_no_bytes_is_told(content: Any) -> None:
    store = Store()
    async with ax.Session(asking(), journal=store) as session:
        pause = await paused(session, NAMED)
        store.content = content
        for call in (
            lambda: session.run("asked:0", {"x:0": 1.0}, options=NAMED),
            lambda: session.resume(pause.token, 1.0),
            lambda: session.resume_run("run"),
            session.pauses,
        ):
            with pytest.raises(ax.errors.InvalidTypeError, match=f"gave {type(content).__name__} for .*not bytes"):
                await call()
        store.content = ...
        assert await session.resume(pause.token, 1.0) == 2.0


async def test_keys_of_something_else_are_passed_over() -> None:
    store = MemoryStore()
    async with ax.Session(asking(), journal=store) as session:
        pause = await paused(session)
        for key in ("runs/x", "pauses/x", "runs/x/y/z", "pauses/x/y/z"):
            await store.put(key, b"foreign")
        assert await session.unfinished_runs() == []
        assert await session.pauses() == [pause]


async def test_a_list_that_takes_no_notice_of_the_prefix_serves_too() -> None:
    class Whole(MemoryStore):
        async def list(self, prefix: str = "") -> list[str]:
            return await super().list("")

    store = Whole()
    async with ax.Session(asking(), journal=store) as session:
        first, second = await paused(session), await paused(session, NAMED)
        assert await session.pauses() == [first, second]
        await session.forget_run("run")
        assert await session.pauses() == [first]
        assert await session.resume(first.token, 1.0) == 2.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"foreign",
        to_bytes(Record({"kind": "pause"}, {}), JsonCodec()),
        to_bytes(Record({}, {"a": 1}), JsonCodec()),
    ],
)
async def test_the_pauses_beside_one_that_cannot_be_read_are_told(content: bytes) -> None:
    store = MemoryStore()
    async with ax.Session(asking(), journal=store) as session:
        first, second = await paused(session), await paused(session)
        key = (await store.list(f"pauses/{first.run_id}/"))[0]
        await store.put(key, content)
        with pytest.warns(CheckpointWarning, match="a pause cannot be read"):
            assert await session.pauses() == [second]
        assert await session.resume(second.token, 1.0) == 2.0


class Hanging(MemoryStore):
    """Its *hangs_at*-th put never ends; with *is_stored*, it has its effect before."""

    def __init__(self, hangs_at: int, *, is_stored: bool) -> None:
        super().__init__()
        self.num_puts = 0
        self.hangs_at = hangs_at
        self.is_stored = is_stored

    async def put(self, key: str, value: bytes) -> None:
        self.num_puts += 1
        is_hanging = self.num_puts == self.hangs_at
        if self.is_stored or not is_hanging:
            await super().put(key, value)
        if is_hanging:
            await asyncio.Event().wait()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("hangs_at", range(1, 8))
async def test_a_run_ends_after_its_deadline_though_the_store_hangs(hangs_at: int, is_stored: bool) -> None:
    """Its puts are those of the run, of a result, of the pause, of its mark; of the answer, of a result, of the end."""

    @ax.op
    async def work(x: float) -> float:
        return x + 1.0

    with ax.Graph() as graph:
        asked = ask(work(ax.constant(0.0, ax.float64)))
    store = Hanging(hangs_at, is_stored=is_stored)
    options = ax.RunOptions(run_id="run", timeout=60.0)
    loop, ends = asyncio.get_running_loop(), list[float]()
    async with ax.Session(graph, journal=store) as session:
        for _ in range(4):
            pauses = await session.pauses()
            began = loop.time()
            try:
                if pauses:
                    assert await session.resume(pauses[0].token, 10.0, options=options) == 11.0
                else:
                    assert await session.run(asked, options=options) == 11.0
            except ax.PausedError:
                continue
            except ax.errors.DeadlineExceededError:
                ends.append(loop.time() - began)
                assert not session.statistics().running_steps
            else:
                break
        else:
            pytest.fail("the run has not ended")
    assert ends == pytest.approx([61.0], abs=0.5)
