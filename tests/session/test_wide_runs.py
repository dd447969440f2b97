"""Runs with very many feeds, fetches or targets, or of nodes with very many inputs or outputs: the loop stays free.

Each yield of a stage counts as the end of a slice here, so that turns are counted and no time is taken.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import WIDE
from asyncexec.framework.cooperative import PART, STRIDE
from tests.running import import_all_names, raw_op
from tests.session.turns import slow_session, turns_during

COUNT: Final = PART + 8 * STRIDE
RENDEZVOUS: Final = ax.SessionConfig(feed_fetch_medium="rendezvous")


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


class Watched:
    """Ops that tell on which thread they were called."""

    def __init__(self) -> None:
        self.was_inline: list[bool] = []
        self._main = threading.get_ident()

    def note(self, result: Any) -> Any:
        self.was_inline.append(threading.get_ident() == self._main)
        return result


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("has_loop", [False, True])
async def test_a_kernel_with_many_inputs_begins_on_a_worker(*, is_wide: bool, has_loop: bool) -> None:
    watched = Watched()
    op = raw_op("CountWatched", lambda *values: watched.note(np.int32(len(values))), dtype=ax.int32)
    count = WIDE + 1 if is_wide else WIDE
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = op(*[x] * count)
        if has_loop:
            (y,) = ax.while_loop(lambda i: i < 1, lambda i: i + 1, [y])
    async with slow_session(graph) as session:
        assert await session.run(y, {x: 1.0}) == count
    assert watched.was_inline == [not is_wide]


@pytest.mark.parametrize("is_wide", [False, True])
async def test_a_kernel_with_many_outputs_begins_on_a_worker(*, is_wide: bool) -> None:
    watched = Watched()
    count = WIDE + 1 if is_wide else WIDE
    numbers = tuple(np.int32(i) for i in range(count))
    op = raw_op("GiveWatched", lambda _: watched.note(numbers), outputs=count, dtype=ax.int32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = op(x)
    async with slow_session(graph) as session:
        assert await session.run(y, {x: 1.0}) == list(range(count))
    assert watched.was_inline == [not is_wide]


async def test_a_wide_kernel_that_turns_out_to_be_quick_comes_back() -> None:
    watched = Watched()
    op = raw_op("QuickWatched", lambda *_: watched.note(np.int32(0)), dtype=ax.int32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = op(*[x] * (WIDE + 1))
    async with ax.Session(graph) as session:
        for _ in range(20):
            await session.run(y, {x: 1.0})
    assert (watched.was_inline[0], watched.was_inline[-1]) == (False, True)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("config", [None, RENDEZVOUS], ids=["call frame", "rendezvous"])
async def test_many_feeds(config: ax.SessionConfig | None) -> None:
    with ax.Graph() as graph:
        many = [ax.placeholder(ax.float32, []) for _ in range(COUNT)]
        y = ax.add_n(many)
    values = {x: float(i % 3) for i, x in enumerate(many)}
    wanted = sum(values.values())
    async with slow_session(graph, config) as session:
        first, found = await turns_during(session.run(y, values))
        again, found_again = await turns_during(session.run(y, values))
    assert found == found_again == wanted
    assert first > 3 * COUNT / STRIDE
    assert again > COUNT / STRIDE


async def test_what_is_fed_is_what_was_there_when_the_run_began() -> None:
    with ax.Graph() as graph:
        many = [ax.placeholder(ax.float32, []) for _ in range(COUNT)]
        y = ax.add_n(many)
    values = dict.fromkeys(many, 1.0)
    async with slow_session(graph) as session:
        for _ in range(2):
            _, found = await turns_during(session.run(y, values), lambda: values.update({many[-1]: 100.0}))
            assert found == COUNT
            values[many[-1]] = 1.0


@pytest.mark.parametrize("bad", ["twice", "unknown"])
async def test_a_bad_feed_among_many(bad: str) -> None:
    with ax.Graph() as graph:
        many = [ax.placeholder(ax.float32, [], name=f"x{i}") for i in range(COUNT)]
        y = ax.add_n(many)
    key = "x3:0" if bad == "twice" else "nobody:0"
    async with slow_session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="more than once" if bad == "twice" else "nobody"):
            await session.run(y, {**dict.fromkeys(many, 1.0), key: 1.0})


async def test_many_targets() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        targets = [(-x).op for _ in range(COUNT)]
    async with slow_session(graph) as session:
        few, _ = await turns_during(session.run(x, {x: 1.0}, targets=targets[:2]))
        many, found = await turns_during(session.run(x, {x: 1.0}, targets=targets))
    assert found == 1
    assert many - few > 4 * COUNT / STRIDE


@pytest.mark.one_of("loop")
async def test_many_fetches_by_the_rendezvous_some_of_which_are_fed() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        fetches = [-x for _ in range(COUNT)]
    async with slow_session(graph, RENDEZVOUS) as session:
        turns, found = await turns_during(session.run([x, *fetches, x], {x: 1.0}))
    assert found == [1.0, *[-1.0] * COUNT, 1.0]
    assert turns > 4 * COUNT / STRIDE
