"""The plan of a map over workers: one replica of its signature on each, and what chooses among them.

A replica is the signature, placed so that nodes prefer the devices of its worker.  All replicas feed and fetch the
same, so what converts feeds and makes results is that of any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.executor.plans.tier import Tier
from asyncexec.executor.streams.spread import Spread
from asyncexec.executor.streams.stream_options import StreamPlan
from asyncexec.framework.cooperative import STRIDE, Stage, run_in_slices
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.graph.node import Node
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.fetch_mapper import FetchMapper, structure_key
from asyncexec.session.run_metadata import defer_step_stats
from asyncexec.session.stream_plan import StreamHost, StreamTrace, checked_mapping, converter, may_be_large
from asyncexec.session.workers import Workers

_REPLICA: Final = object()  # stands between feeds and worker in the key of a signature


@dataclass(frozen=True, slots=True)
class SpreadOptions:
    """Where the items of a map go.

    Attributes:
        workers: the names of the workers, all that there are.
        retries: how often an item whose worker was lost begins again.
        window: of the map.
    """

    workers: tuple[str, ...]
    retries: int
    window: int

    @classmethod
    def of(cls, host: StreamHost, workers: str | Sequence[str], retries: int, window: int) -> SpreadOptions:
        """What a user has asked for; InvalidArgumentError where that cannot be."""
        if type(retries) is not int or retries < 0:
            raise InvalidArgumentError(f"retries of a map over workers is a number of 0 or more, not {retries!r}")
        return cls(find_workers(host, workers), retries, window)


def find_workers(host: StreamHost, wanted: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the workers that *wanted* names: jobs, or tasks of jobs.

    Raises:
        InvalidArgumentError: a name is malformed, or there is no such worker.
    """
    known = [device.parsed_name.address_space for device in host.devices if device.is_remote]
    found: dict[str, None] = {}
    for text in [wanted] if isinstance(wanted, str) else wanted:
        name = parse_device_name(text)
        matching = [str(worker) for worker in known if name.accepts(worker)]
        if not matching:
            there_are = ", ".join(dict.fromkeys(map(str, known)))
            raise InvalidArgumentError(
                f"there is no worker {text!r}"
                + (f"; there are {there_are}" if known else ": the session has no cluster"),
                hint="name a job, such as '/job:worker', or tasks, such as ['/job:worker/task:0']",
            )
        found.update(dict.fromkeys(matching))
    if not found:
        raise InvalidArgumentError("workers names none")
    return tuple(found)


async def open_spread_plan(
    host: StreamHost, fetches: Any, options: SpreadOptions, trace: StreamTrace | None, first: Any
) -> StreamPlan:
    """The plan of a map over workers whose first item feeds *first*."""
    workers = host.workers
    assert workers is not None  # some of them have been named
    keys = tuple(checked_mapping(first))
    mapper = FetchMapper(host.graph, fetches)
    replicas: dict[str, ExecutorsAndKeys] = {}
    for worker in options.workers:
        signature = (structure_key(fetches), *keys, _REPLICA, worker)
        replica = replicas[worker] = await host.prepare(signature, mapper, keys, worker)
        await host.state_finder.check_has_none(replica.graph, "a map over workers")
    if trace is not None:
        devices = await run_in_slices(_local_devices(host, replicas.values()), host.holds.clock)
        defer_step_stats(trace.metadata, trace.collector, devices.__getitem__)
    return StreamPlan(
        replica.executor,
        Tier(None),
        converter(keys, replica),
        replica.result,
        lambda error: _explained(error, replicas),
        host.holds,
        host.counts,
        may_be_large(host.graph, keys),
        (),
        host.spans if host.spans.hooks or replica.tells_step else None,
        None if trace is None else trace.collector,
        Spread(lambda: _usable(workers, options.workers), options.window, options.retries),
        {worker: each.executor for worker, each in replicas.items()},
    )


def _usable(workers: Workers, names: Sequence[str]) -> Sequence[str]:
    """Those that can be reached; if none can, all: their steps wait for them."""
    return [name for name in names if workers.is_up(name)] or names


def _explained(error: OpError, replicas: Mapping[str, ExecutorsAndKeys]) -> OpError:
    for replica in replicas.values():
        if error.node in replica.graph.stand_ins:
            return explained(error, replica)
    return error


def _local_devices(host: StreamHost, replicas: Iterable[ExecutorsAndKeys]) -> Stage[dict[Node, str]]:
    """The device of each node that runs in this process; workers tell of theirs themselves."""
    devices: dict[Node, str] = {}
    for replica in replicas:
        for name, part in replica.graph.partitions.items():
            nodes = () if host.devices.by_name(name).is_remote else part.graph.nodes
            for start in range(0, len(nodes), STRIDE):
                devices.update(dict.fromkeys(nodes[start : start + STRIDE], name))
            yield
    return devices
