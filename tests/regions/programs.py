"""What the tests of compiled programs have in common: a graph compiled without a session's choosing when."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from typing import Any

import asyncexec as ax
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.cooperative import run_at_once
from asyncexec.regions.program import UnstructuredError
from asyncexec.session.executors_and_keys import build_executors
from asyncexec.session.fetch_mapper import FetchMapper


def compiled(
    session: ax.Session, fetches: Any, feeds: Sequence[Any] = (), *, pauses_often: bool = False
) -> CompiledPlan | None:
    """The plan of a signature; UnstructuredError where it has no structure."""
    mapper = FetchMapper(session.graph, fetches)
    prepared = run_at_once(build_executors(session._state, session.graph, mapper, list(feeds), []))
    prepared.tier.was_slow = pauses_often
    return run_at_once(session._state.compile_plan(prepared.graph, prepared.tier))


def is_structured(session: ax.Session, fetches: Any, feeds: Sequence[Any] = ()) -> bool:
    try:
        return compiled(session, fetches, feeds) is not None
    except UnstructuredError:
        return False


def source(plan: CompiledPlan) -> str:
    """All that has been written for *plan*."""
    return "".join("".join(linecache.getlines(code.co_filename)) for code in plan._code.lines)


COMPILED = ax.SessionConfig(executor_type="COMPILED")
TAGGED = ax.SessionConfig(executor_type="TAGGED_TOKEN")


async def run_both(graph: ax.Graph, fetches: Any, feeds: Mapping[Any, Any] | None = None) -> Any:
    """What a compiled session gives; it is what the general executor gives."""
    async with ax.Session(graph, TAGGED) as session:
        expected = await session.run(fetches, feeds)
    async with ax.Session(graph, COMPILED) as session:
        got = await session.run(fetches, feeds)
        assert next(iter(session._cache.values())).tier.compiled is not None
    return got, expected
