"""Graphs and kernels for tests of running: ops whose kernel is any callable, and what tests wait for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.cooperative import TURNS
from asyncexec.framework.interpreter import IS_FREE_THREADED
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import unknown
from asyncexec.frontend.create_op import add_op

# Warnings are errors, but for those of kernels that hold the loop, which any does on a machine that is busy.
STRICT = ("-W", "error", "-W", "ignore:node '")
# Of a session whose slices no pause of the machine ends.
STILL_CLOCK = ax.Clock(now_ns=lambda: 0)
# Modules that sessions import when they are first needed.
LATE = (
    "asyncexec.passes.arithmetic",
    "asyncexec.passes.dead_branches",
    "asyncexec.passes.loop_invariants",
    "asyncexec.passes.pass_graph",
    "asyncexec.passes.partition_optimizer",
    "asyncexec.pruning.feed_fetch_rewrite",
    "asyncexec.rendezvous.collective_executor",
    "asyncexec.session.client_channels",
    "asyncexec.session.stream_plan",
)


def worker_jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of nodes, as they go to worker threads from now on."""
    names: list[str] = []
    submit = WorkerPool.submit_calls

    def submit_calls(pool: WorkerPool, calls: Any, done: Any) -> Any:
        names.extend(call.name for call in calls)
        return submit(pool, calls, done)

    monkeypatch.setattr(WorkerPool, "submit_calls", submit_calls)
    return names


def raw_op(
    op: str,
    kernel: Callable[..., Any],
    *,
    outputs: int = 1,
    dtype: ax.DType = ax.object,
    kind: KernelKind = KernelKind.CHEAP,
    is_expensive: bool | None = None,
) -> Callable[..., Any]:
    """What adds a node whose kernel is *kernel* itself, unchecked, as kernels in a registry are."""
    op_def = OpDef(
        op,
        (ArgDef("args", type_list_attr="Tin"),),
        tuple(ArgDef(f"output_{i}", dtype) for i in range(outputs)),
        {"Tin": AttrDef("Tin", "list(type)")},
        is_stateful=True,
    )
    registration = OpRegistration(
        op_def, unknown, KernelRegistration(lambda _: kernel, kind, is_expensive=is_expensive)
    )

    def add_node(*inputs: Any, name: str | None = None) -> Any:
        return add_op(registration, [list(inputs)], {}, name)

    return add_node


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """What is freed in it is freed because nothing refers to it: no collector breaks its cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def import_all_names() -> None:
    """Import every module of the package, and read what else they read: in a loop, no test may read files."""
    for name in dir(ax):
        getattr(ax, name)
    for module in LATE:
        importlib.import_module(module)
    assert "Fact" in op_registry  # an op of the list, which is read now
    ax.SessionConfig()
    ax.RunOptions()


def begin_tasks_eagerly() -> None:
    """Let tasks of the running loop begin, and maybe end, while they are made: new in Python 3.12."""

    loop = asyncio.get_running_loop()
    factory: Any = asyncio.eager_task_factory  # type: ignore[attr-defined]

    def make(loop: Any, coroutine: Coroutine[Any, Any, Any], *, eager_start: None = None, **options: Any) -> Any:
        return factory(loop, coroutine, **options)

    # uvloop passes an argument on that asyncio's factory takes since Python 3.14 only; asyncio's own is known to anyio.
    passes_too_much = sys.version_info[:2] == (3, 13) and type(loop).__module__.startswith("uvloop")
    loop.set_task_factory(make if passes_too_much else factory)


async def settle(turns: int = 20 * TURNS) -> None:
    """Let every task run as far as it can; to prepare a small graph takes some slices, and turns between them."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def let_others_end(turns: int) -> None:
    """Let other tasks go on for so many *turns*; a busy machine takes more slices, and so more turns."""
    await settle(turns)
    for _ in range(50 * TURNS):
        if len(asyncio.all_tasks()) == 1:
            return
        await asyncio.sleep(0)


async def let_threads_free(left: Callable[[], object]) -> None:
    """Wait until nothing is *left*, where worker threads free what they have made, and not who has it last."""
    for _ in range(1000):
        if not (IS_FREE_THREADED and left()):
            return
        await asyncio.sleep(0.001)


async def started(coroutine: Any) -> asyncio.Task[Any]:
    """A task that has run as far as it can."""
    task = asyncio.ensure_future(coroutine)
    await settle()
    return task
