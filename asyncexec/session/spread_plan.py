"""The plan of a map over workers: one replica of its signature on each, and what chooses among them.

A replica is the signature, placed so that nodes prefer the devices of its worker.  All replicas feed and fetch the
same, so what converts feeds and makes results is that of any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.plans.tier import Tier
from asyncexec.executor.streams.spread import Spread
from asyncexec.executor.streams.stream_options import StreamPlan
from asyncexec.framework.cooperative import STRIDE, Stage, run_in_slices
from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.graph.node import Node
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.fetch_mapper import FetchMapper, structure_key
from asyncexec.session.run_metadata import defer_step_stats
from asyncexec.session.stream_plan import (
    StreamHost,
    StreamTrace,
    checked_mapping,
    converter,
    letter_maker,
)
from asyncexec.session.workers import Workers

_LOGGER: Final = logging.getLogger("asyncexec.cluster")
_REPLICA: Final = object()  # stands between feeds and worker in the key of a signature


@dataclass(frozen=True, slots=True)
class SpreadOptions:
    """Where the items of a map go.

    Attributes:
        workers: the names of the workers, all that there are when the map is made.
        wanted: what names of workers that join later are to match.
        retries: how often an item whose worker was lost begins again.
        window: of the map.
    """

    workers: tuple[str, ...]
    wanted: tuple[DeviceName, ...]
    retries: int
    window: int

    @classmethod
    def of(cls, host: StreamHost, workers: str | Sequence[str], retries: int, window: int) -> SpreadOptions:
        """What a user has asked for; InvalidArgumentError, InvalidTypeError where that cannot be."""
        if type(retries) is not int or retries < 0:
            raise InvalidArgumentError(f"retries of a map over workers is a number of 0 or more, not {retries!r}")
        wanted: Any = [workers] if isinstance(workers, str) else workers
        if not isinstance(wanted, Sequence) or not all(isinstance(name, str) for name in wanted):
            raise InvalidTypeError(
                f"workers= of a map names workers, and {workers!r:.200} is no name and no list of names",
                hint="name a job, such as '/job:worker', or tasks, such as ['/job:worker/task:0']",
            )
        return cls(find_workers(host, wanted), tuple(map(parse_device_name, wanted)), retries, window)


def find_workers(host: StreamHost, wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of the workers that *wanted* names: jobs, or tasks of jobs.

    Raises:
        InvalidArgumentError: a name is malformed, or there is no such worker.
    """
    names = () if host.workers is None else host.workers.names()
    known = [parse_device_name(name) for name in names]
    found: dict[str, None] = {}
    for text in wanted:
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
    host: StreamHost, fetches: object, options: SpreadOptions, trace: StreamTrace | None, first: object
) -> StreamPlan:
    """The plan of a map over workers whose first item feeds *first*."""
    keys = tuple(checked_mapping(first))
    replicas = _Replicas(host, fetches, keys, options)
    for worker in options.workers:
        await replicas.add(worker)
    if trace is not None:
        await replicas.trace()
        defer_step_stats(trace.metadata, trace.collector, replicas.device_of)
    replica = replicas.known[options.workers[0]]
    return StreamPlan(
        replica.executor,
        Tier(None),
        converter(keys, replica),
        replica.result,
        lambda error: _explained(error, replicas.known),
        host.holds,
        host.counts,
        (),
        host.spans if host.spans.hooks or replica.tells_step else None,
        None if trace is None else trace.collector,
        Spread(replicas.usable, options.window, options.retries, replicas.join),
        replicas.executors,
        letter_maker(host.graph, keys),
    )


class _Replicas:
    """The replicas of a map.

    Attributes:
        known, executors: the replicas, and what makes their steps, by worker.
    """

    def __init__(self, host: StreamHost, fetches: object, keys: Sequence[object], options: SpreadOptions) -> None:
        assert host.workers is not None  # some of them have been named
        self.known: dict[str, ExecutorsAndKeys] = {}
        self.executors: dict[str, GeneralExecutor | PartitionedExecutor] = {}
        self._host = host
        self._workers: Workers = host.workers
        self._mapper = FetchMapper(host.graph, fetches)
        self._structure = structure_key(fetches)
        self._keys = keys
        self._wanted = options.wanted
        self._names: Sequence[str] = self._workers.names()  # those of the cluster that were seen last
        self._tried = set(options.workers)
        self._joining: Sequence[str] = ()  # those that match, and are not among them
        self._present: Sequence[str] = options.workers  # those of *known* that have not left
        self._devices: dict[Node, str] | None = None  # of nodes of this process, where items are traced

    async def add(self, worker: str) -> None:
        """Prepare the replica for *worker*; InvalidArgumentError if it has state."""
        signature = (self._structure, *self._keys, _REPLICA, worker)
        replica = await self._host.prepare(signature, self._mapper, self._keys, worker)
        await self._host.state_finder.check_has_none(replica.graph, "a map over workers")
        if self._devices is not None:
            await self._note_devices([replica])
        self.known[worker], self.executors[worker] = replica, replica.executor

    def usable(self) -> Sequence[str]:
        """Workers that can be reached; if none can, all that have not left: their steps wait for them."""
        return [name for name in self._present if self._workers.is_up(name)] or self._present

    def join(self) -> Coroutine[Any, Any, None] | None:
        """What makes a worker that has joined ready for items; None where there is none."""
        names = self._workers.names()
        if names != self._names:
            self._names = names
            matching = [name for name in names if any(each.accepts(parse_device_name(name)) for each in self._wanted)]
            self._present = [name for name in matching if name in self.known] or self._present
            self._joining = [name for name in matching if name not in self._tried]
        for name in self._joining:
            if self._workers.is_up(name):
                self._joining = [each for each in self._joining if each != name]
                self._tried.add(name)
                return self._take_in(name)
        return None

    async def _take_in(self, worker: str) -> None:
        try:
            await self.add(worker)
        except OpError as error:  # the others go on
            _LOGGER.warning("a map does not use %s, which has joined: %s", worker, error)
        else:
            self._names = ()  # look who is there

    async def trace(self) -> None:
        """Take note of the devices of nodes."""
        self._devices = {}
        await self._note_devices(self.known.values())

    def device_of(self, node: Node) -> str:
        """The device of a node that runs in this process; workers tell of theirs themselves."""
        assert self._devices is not None  # items are traced
        return self._devices[node]

    async def _note_devices(self, replicas: Iterable[ExecutorsAndKeys]) -> None:
        assert self._devices is not None
        self._devices.update(await run_in_slices(_local_devices(self._host, replicas), self._host.holds.clock))


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
