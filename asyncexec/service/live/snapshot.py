"""What the live page shows of the models of a repository, as JSON: read from their statistics when it is asked for.

Counters count from the start; the page makes rates of two snapshots.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import orjson

from asyncexec.framework.clock import NS_PER_MS, monotonic_ns
from asyncexec.framework.under_way import NodeUnderWay
from asyncexec.process.loop_lag import LoopLag
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import READY, ModelRepository
from asyncexec.service.server_info import NAME, VERSION
from asyncexec.session.workers import Cluster

MOST_MODELS: Final = 200  # that are told of; the page says how many more there are
MOST_FAILURES: Final = 30
MOST_NODES: Final = 20  # of a model
MOST_RANGES: Final = 4  # of iterations
MOST_GROUPS: Final = 40  # of nodes under way, of a model
MOST_WORKERS: Final = 100
MOST_NAMES: Final = 20  # of the models of a worker


async def snapshot(repository: ModelRepository, lag: LoopLag) -> bytes:
    """The snapshot of now.  Other work goes on between two models."""
    models = repository.models()
    told: list[dict[str, object]] = []
    for model in models[:MOST_MODELS]:
        told.append(_model(model))
        await asyncio.sleep(0)
    failures = _failures(models[:MOST_MODELS])
    await asyncio.sleep(0)
    states = [state for state in repository.index() if state.state != READY]
    return encoded(
        {
            "server": {"name": NAME, "version": VERSION, "ready": repository.is_ready},
            "at_ms": monotonic_ns() / NS_PER_MS,
            "time_ms": time.time_ns() // NS_PER_MS,
            "cpu_s": time.process_time(),
            "loop": {"lag_ms": lag.mean_ms, "most_lag_ms": lag.most_ms},
            "models": told,
            "workers": _workers(models),
            "not_ready": [state._asdict() for state in states[:MOST_MODELS]],
            "left_out": max(0, len(models) - MOST_MODELS) + max(0, len(states) - MOST_MODELS),
            "failures": failures,
        }
    )


def encoded(told: object) -> bytes:
    """*told* as JSON; names may have surrogates, of which orjson makes nothing."""
    try:
        return orjson.dumps(told)
    except orjson.JSONEncodeError:
        return json.dumps(told).encode()


def _model(model: Model) -> dict[str, object]:
    done, now = model.statistics, model.session.statistics()
    percentiles = model.recent.percentiles_ms(50, 95, 99)
    nodes = sorted(now.nodes.items(), key=lambda item: -item[1].total_s)
    groups = grouped(now.under_way)
    return {
        "name": model.name,
        "version": model.version,
        "calls": done.success.count,
        "failures": done.fail.count,
        "cancelled": done.cancel.count,
        "rows": done.inference_count,
        "runs": now.completed_steps,
        "percentiles_ms": percentiles or None,
        "running": now.running_steps,
        "queued": now.queued_steps,
        "waiting_in_batch": model.num_waiting - now.queued_steps,
        "batches": list(model.batch_sizes.items()),
        "longest_node": now.longest_node,
        "longest_node_ms": now.longest_node_ms,
        "longest_slice_ms": now.longest_slice_ms,
        "under_way": [asdict(group) for group in groups[:MOST_GROUPS]],
        "streams": [asdict(stream) for stream in now.streams],
        "nodes": [{"node": name, **asdict(each)} for name, each in nodes[:MOST_NODES]],
        "pools": [{"device": device, **asdict(pool)} for device, pool in now.worker_pools.items()],
    }


def _workers(models: Iterable[Model]) -> list[dict[str, object]]:
    """The workers of *models*, each once, with the names of those that it works for."""
    by_cluster: dict[int, tuple[Cluster, list[str]]] = {}
    for model in models:
        cluster = model.workers.cluster
        if cluster is not None:
            names = by_cluster.setdefault(id(cluster), (cluster, []))[1]
            if model.name not in names:
                names.append(model.name)
    found = [(each, names) for cluster, names in by_cluster.values() for each in cluster.statistics()]
    return [asdict(each) | {"models": names[:MOST_NAMES]} for each, names in found[:MOST_WORKERS]]


@dataclass(slots=True)
class NodesUnderWay:
    """Calls of one node that are under way in one loop, and wait for the same.

    Attributes:
        loop: the loops around the node, with the iteration of each but the innermost.
        iterations: those of the innermost loop, such as ``"0-3"`` and ``"7"``.
        oldest_s: how long the oldest has been under way; None if that is not known.
    """

    node: str
    op: str
    waits_for: Sequence[str]
    loop: str
    iterations: list[str] = field(default_factory=list)
    count: int = 0
    oldest_s: float | None = None


def grouped(nodes: Iterable[NodeUnderWay]) -> list[NodesUnderWay]:
    """*nodes* by what they have in common, those that are the most first."""
    groups: dict[tuple[str, Sequence[str], str], NodesUnderWay] = {}
    numbers: dict[int, list[int]] = {}
    for each in nodes:
        loop, _, number = each.iteration.rpartition(" ")
        key = each.node, each.waits_for, loop
        group = groups.get(key)
        if group is None:
            group = groups[key] = NodesUnderWay(each.node, each.op, each.waits_for, loop)
        group.count += 1
        if each.since_s is not None:
            group.oldest_s = max(each.since_s, group.oldest_s or 0.0)
        if number.isdecimal():
            numbers.setdefault(id(group), []).append(int(number))
    for group in groups.values():
        group.iterations = ranges(numbers.get(id(group), ()))
    return sorted(groups.values(), key=lambda group: -group.count)


def ranges(numbers: Iterable[int]) -> list[str]:
    """*numbers* as text: ``["0-3", "7"]``; only the first are told."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in found]
    return texts if len(texts) <= MOST_RANGES else [*texts[:MOST_RANGES], "..."]


def _failures(models: Iterable[Model]) -> list[dict[str, object]]:
    """The last failures of *models*, the latest first."""
    found = ((model, failure) for model in models for failure in reversed(model.recent.failures))
    latest = heapq.nlargest(MOST_FAILURES, found, key=lambda each: each[1].at_ms)
    return [{"model": model.name, "version": model.version, **asdict(failure)} for model, failure in latest]
