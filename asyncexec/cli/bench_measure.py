"""Measures calls: how long each takes, how many there are a second, how late the event loop is, and the memory."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_MS, NS_PER_S, monotonic_ns

if TYPE_CHECKING:
    from asyncexec.framework.step_stats import RunMetadata

_resource: Any = resource  # None is no module to type checkers
_TICK_S: Final = 0.001
_PROCESS: Final = Path("/proc/self")

Call = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of calls of one kind.

    Attributes:
        runs: how many calls ended while it was measured.
        median_ms, p99_ms: how long a call took.
        per_second: how many items there were a second: calls by the batch.
        loop_p99_ms, loop_most_ms: how late a timer of a millisecond was in the event loop meanwhile.
        peak_memory_bytes: the most that the process had of the machine's memory; None where the system does not tell.
    """

    what: str
    batch: int
    concurrency: int
    runs: int
    median_ms: float
    p99_ms: float
    per_second: float
    loop_p99_ms: float
    loop_most_ms: float
    peak_memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class NodeCost:
    """How long one node, or all of one op, took in a step, on average."""

    name: str
    op: str
    ms: float
    calls: float


async def measure(what: str, call: Call, batch: int, concurrency: int, seconds: float, warmups: int) -> Measured:
    """Call *call* again and again for *seconds*, *concurrency* at a time, after *warmups* calls."""
    for _ in range(warmups):
        await call()
    await asyncio.to_thread(_forget_peak)
    took_ns: list[int] = []
    start_ns = monotonic_ns()
    end_ns = start_ns + round(seconds * NS_PER_S)

    async def caller() -> None:
        while True:  # at least once
            began_ns = monotonic_ns()
            await call()
            ended_ns = monotonic_ns()
            took_ns.append(ended_ns - began_ns)
            if ended_ns >= end_ns:
                return
            await asyncio.sleep(0)  # a call that never waits leaves the loop to others here alone

    async with _lateness() as late_ns:
        await asyncio.gather(*(caller() for _ in range(concurrency)))
    total_s = (monotonic_ns() - start_ns) / NS_PER_S
    return Measured(
        what,
        batch,
        concurrency,
        len(took_ns),
        quantile(took_ns, 0.5) / NS_PER_MS,
        quantile(took_ns, 0.99) / NS_PER_MS,
        len(took_ns) * batch / total_s,
        quantile(late_ns, 0.99) / NS_PER_MS,
        max(late_ns, default=0) / NS_PER_MS,
        await asyncio.to_thread(_peak_memory),
    )


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of *values* that *part* of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@contextlib.asynccontextmanager
async def _lateness() -> AsyncIterator[list[int]]:
    """How late each tick of a millisecond is in the running loop, while the block runs."""
    late_ns: list[int] = []

    async def tick() -> None:
        while True:
            due_ns = monotonic_ns() + round(_TICK_S * NS_PER_S)
            await asyncio.sleep(_TICK_S)
            late_ns.append(max(0, monotonic_ns() - due_ns))

    task = asyncio.create_task(tick())
    try:
        yield late_ns
    finally:
        task.cancel()
        await asyncio.wait([task])


async def node_costs(run: Callable[[RunMetadata], Awaitable[object]], steps: int) -> list[NodeCost]:
    """What each node took in *steps* steps that are traced, the longest first."""
    total_ns: dict[str, int] = {}
    calls: dict[str, int] = {}
    ops: dict[str, str] = {}
    for _ in range(steps):
        metadata = ax.RunMetadata()
        await run(metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                name = node.node_name
                total_ns[name] = total_ns.get(name, 0) + node.op_end_rel_nanos - node.op_start_rel_nanos
                calls[name] = calls.get(name, 0) + 1
                ops[name] = op_of(node.timeline_label)
    costs = [NodeCost(name, ops[name], total_ns[name] / steps / NS_PER_MS, calls[name] / steps) for name in total_ns]
    return sorted(costs, key=lambda cost: -cost.ms)


def op_of(label: str) -> str:
    """The op in the label of a node, ``name = Op(inputs)``."""
    return label.partition(" = ")[2].partition("(")[0]


def by_op(costs: Sequence[NodeCost]) -> list[NodeCost]:
    """*costs* of all nodes of each op together, the longest first; the calls are those of all of them."""
    found: dict[str, NodeCost] = {}
    for cost in costs:
        so_far = found.get(cost.op, NodeCost("", cost.op, 0.0, 0.0))
        found[cost.op] = NodeCost("", cost.op, so_far.ms + cost.ms, so_far.calls + cost.calls)
    return sorted(found.values(), key=lambda cost: -cost.ms)


def _forget_peak() -> None:
    """Let Linux measure the peak from now on."""
    with contextlib.suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5", encoding="ascii")


def _peak_memory() -> int | None:
    with contextlib.suppress(OSError):
        for line in (_PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if _resource is None:
        return None
    most: int = _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
