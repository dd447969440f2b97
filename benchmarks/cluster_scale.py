"""Row of scale: what 1,000 workers and 1,000,000 steps cost a coordinator and a worker, and what saturates first.

The coordinator is real: a session, its ClientSession, and 1,000 connections, whose transports take what is written and
answer as workers would.  What it sends is counted, and its time is measured; system calls are measured by themselves.
The figures go into a model of many workers and coordinators that runs on the virtual clock.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import asyncexec as ax
from asyncexec.distributed.client_session import ClientSession
from asyncexec.distributed.cluster_spec import worker_name
from asyncexec.distributed.graph_wire import WorkerPolicy
from asyncexec.distributed.messages import Done, Kind, pack_done, pack_json, unpack_done, unpack_run
from asyncexec.distributed.peer_link import PeerLink
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.transport.frames import FRAME, PING, PING_BODY, PONG, PONG_BODY
from asyncexec.distributed.transport.identity import Identity
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.worker_session import WorkerSession
from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.errors import UnavailableError
from asyncexec.testing import VirtualClockLoop
from benchmarks.measure import Settings, Times
from benchmarks.report import OURS, Benchmark, Row

NUM_WORKERS: Final = 1000
NUM_STEPS: Final = 1_000_000
TRACED: Final = 100  # workers; with more of them, tracing takes minutes
SIZES: Final = (1, 10, 100, NUM_WORKERS)
OPTIONS: Final = TransportOptions(heartbeat_s=30.0, silence_s=90.0)
NETWORK_S: Final = 100e-6  # one way, in the model
WORK_S: Final = 10e-3  # of a worker for its part of a step, in the model
PART: Final = 8  # workers that a step of the model takes


class WorkerEnd(asyncio.Transport):
    """A transport that answers as a worker would, at once, and counts what it is sent."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.counts = counts
        self.answer_ns = 0  # what the answers took that a worker would have made

    def write(self, data: Any) -> None:
        start = monotonic_ns()
        data, place = bytes(data), 0
        self.counts["writes"] += 1
        self.counts["bytes"] += len(data)
        while place < len(data):
            length, kind = FRAME.unpack_from(data, place)
            place += FRAME.size + length
            self._answer(kind, data[place - length : place])
        self.answer_ns += monotonic_ns() - start

    def _answer(self, kind: int, body: bytes) -> None:
        if kind == PING:
            (sent,) = PING_BODY.unpack(body)
            self._later(PONG, PONG_BODY.pack(sent, sent))
            return
        self.counts["messages"] += kind < PING
        if kind == Kind.OPEN:
            self._later(Kind.OPENED, pack_json({"session": _session_of(body)}))
        elif kind == Kind.RUN:
            self.counts["messages"] += 1
            self._later(Kind.DONE, pack_done(Done(unpack_run(body).step_id)))
        elif kind == Kind.CLOSE:
            self._later(Kind.CLOSED, body)

    def _later(self, kind: int, body: bytes) -> None:
        assert self.connection is not None
        asyncio.get_running_loop().call_soon(self._feed, FRAME.pack(len(body), kind) + body)

    def _feed(self, frame: bytes) -> None:
        if self.connection is not None and self.connection.is_open:
            memory = self.connection.reader.free_memory()
            memory[: len(frame)] = frame
            self.connection.reader.advance(len(frame))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.connection = None


def _session_of(body: bytes) -> int:
    return int(body.partition(b":")[2].partition(b",")[0])


class Answers:
    """What the coordinator hears."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self._name = name

    def on_message(self, kind: int, body: bytes) -> None:
        session = self._fleet.session
        if kind == Kind.DONE:
            session.done(self._name, unpack_done(body), 0)
        elif kind == Kind.OPENED:
            session.opened_by(self._name)
        elif kind == Kind.CLOSED:
            session.closed_by(self._name)

    def on_tensor(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        self._fleet.session.arrive(step_id, key, value, is_dead)

    def on_bad_tensor(self, step_id: int, key: str, error: ax.errors.OpError) -> None:
        raise error

    def on_lost(self, error: ax.errors.OpError) -> None:
        raise error


class Fleet:
    """A cluster for sessions, of workers that only answer."""

    def __init__(self, num_workers: int) -> None:
        self.counts: Counter[str] = Counter()
        self.ends: list[WorkerEnd] = []
        self.is_open = True
        self.objects = False
        self._devices: list[Device] = []
        self._links: dict[str, PeerLink] = {}
        self.session: ClientSession
        for number in range(num_workers):
            name = worker_name("worker", number)
            self._links[name] = self._connect(name)
            for device in create_devices(DeviceOptions({"CPU": 1}, name)):
                self._devices.append(Device(device.attributes, is_remote=True))

    def _connect(self, name: str) -> PeerLink:
        end = WorkerEnd(self.counts)
        self.ends.append(end)
        end.connection = Connection(end, Identity(name, 1, "worker"), name, OPTIONS, (0, 0), objects=False)
        end.connection.start(Answers(self, name), b"")
        link = PeerLink(name, _never, lambda name, error: None, lambda step_id, error: None)
        link.connection = end.connection
        return link

    def begin_session(self) -> ClientSession:
        self.session = ClientSession(self)
        for link in self._links.values():
            assert link.connection is not None
            link.connection.send(Kind.OPEN, pack_json({"session": self.session.number, "peers": {}}))
        return self.session

    def devices(self) -> Sequence[Device]:
        return self._devices

    def link(self, worker: str) -> PeerLink | None:
        return self._links.get(worker)

    def links(self) -> Sequence[PeerLink]:
        return list(self._links.values())

    def end_session(self, number: int) -> None:
        for end in self.ends:
            if end.connection is not None:
                end.connection.abort()


async def _never() -> Connection:
    raise UnavailableError("it is not dialed")


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step over so many workers costs the coordinator."""

    num_workers: int
    messages: float
    num_bytes: float
    writes: float
    coordinator_s: float
    kept_bytes: float  # by a worker, of the coordinator's memory


async def step_cost(num_workers: int, num_rounds: int) -> StepCost:
    """Measure steps in which each worker gets a scalar."""
    gc.collect()
    if num_workers <= TRACED:
        tracemalloc.start()
    fleet = Fleet(num_workers)
    with ax.Graph() as graph:
        feed = ax.placeholder(ax.float32, [])
        parts = []
        for number in range(num_workers):
            with ax.device(f"/job:worker/task:{number}"):
                parts.append(ax.negative(feed).op)
    async with ax.Session(graph, cluster=fleet) as session:
        for _ in range(3):
            await session.run(parts, {feed: 1.0})
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]  # 0 where it does not trace
        tracemalloc.stop()
        fleet.counts.clear()
        best = float("inf")
        for _ in range(num_rounds):
            answers = sum(end.answer_ns for end in fleet.ends)
            start = monotonic_ns()
            await session.run(parts, {feed: 1.0})
            await asyncio.sleep(0)  # what is told at its end goes out
            elapsed = monotonic_ns() - start - (sum(end.answer_ns for end in fleet.ends) - answers)
            best = min(best, elapsed / NS_PER_S)
        counts = {name: count / num_rounds for name, count in fleet.counts.items()}
    return StepCost(num_workers, counts["messages"], counts["bytes"], counts["writes"], best, kept / num_workers)


def system_call_s() -> float:
    """A small write to a socket, and the read of an answer."""
    near, far = socket.socketpair()
    with near, far:
        best = float("inf")
        for _ in range(20):
            start = monotonic_ns()
            for _ in range(100):
                near.send(bytes(64))
                far.recv(4096)
            best = min(best, (monotonic_ns() - start) / NS_PER_S / 100)
    return best


async def worker_memory() -> dict[str, float]:
    """Bytes that a worker keeps of a session, and of a step whose first value has come."""
    counts: Counter[str] = Counter()
    end = WorkerEnd(counts)
    end.connection = Connection(
        end, Identity("/job:localhost/replica:0/task:0", 1, "client"), "", OPTIONS, (0, 0), objects=False
    )
    connection = end.connection
    host, cpu = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"

    def make(number: int) -> WorkerSession:
        name = worker_name("worker", 0)
        return WorkerSession(number, name, connection, ax.SessionConfig(), WorkerPolicy(), None, lambda device: None)

    first = make(1)  # what all share
    sessions: list[WorkerSession] = []
    found = {"session": _grown(lambda: sessions.extend(make(number) for number in range(2, 52)), 50)}

    def push() -> None:
        for number in range(1, 1001):
            first.arrive((1 << 32) + number, f"{host};0000000000000001;{cpu};edge_{number};0:0", 1.0, False)

    found["step"] = _grown(push, 1000)
    for session in (first, *sessions):
        await session.close(UnavailableError("it is over"))
    connection.abort()
    return found


def _grown(act: Callable[[], object], count: int) -> float:
    gc.collect()
    tracemalloc.start()
    act()
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / count


class Model:
    """Coordinators that share workers; each process does one thing at a time.

    Args:
        begin_s, end_s: a coordinator's time at the begin of a step, and at its end.
        in_flight: steps of one coordinator at a time.
    """

    def __init__(self, num_coordinators: int, begin_s: float, end_s: float, in_flight: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin_s, self._end_s = begin_s, end_s
        self._free_s = [0.0] * num_coordinators  # when each coordinator is free again
        self._workers_s = [0.0] * NUM_WORKERS
        self._in_flight = in_flight
        self._draw = random.Random(1)
        self._left = 0
        self._ended = self._loop.create_future()

    async def run(self, num_steps: int) -> tuple[float, float, float]:
        """Steps in a second, and how busy coordinators and workers are."""
        self._left = self._to_begin = num_steps
        for number in range(len(self._free_s)):
            for _ in range(self._in_flight):
                self._begin(number)
        await self._ended
        elapsed = self._loop.time()
        per_coordinator = num_steps * (self._begin_s + self._end_s) / len(self._free_s)
        return num_steps / elapsed, per_coordinator / elapsed, num_steps * PART * WORK_S / NUM_WORKERS / elapsed

    def _begin(self, number: int) -> None:
        if not self._to_begin:
            return
        self._to_begin -= 1
        arrives_s = self._take(number, self._begin_s) + NETWORK_S
        done_s = 0.0
        for _ in range(PART):
            worker = self._draw.randrange(NUM_WORKERS)
            self._workers_s[worker] = max(self._workers_s[worker], arrives_s) + WORK_S
            done_s = max(done_s, self._workers_s[worker])
        self._loop.call_at(done_s + NETWORK_S, self._done, number)

    def _done(self, number: int) -> None:
        self._loop.call_at(self._take(number, self._end_s), self._end, number)

    def _end(self, number: int) -> None:
        self._left -= 1
        if not self._left:
            self._ended.set_result(None)
        self._begin(number)

    def _take(self, number: int, time_s: float) -> float:
        self._free_s[number] = max(self._free_s[number], self._loop.time()) + time_s
        return self._free_s[number]


def simulate(num_coordinators: int, step_s: float, num_steps: int) -> tuple[float, float, float]:
    """A model in which a step takes a coordinator *step_s*; there is always enough to do."""

    async def run() -> tuple[float, float, float]:
        in_flight = max(1, 4 * NUM_WORKERS // PART // num_coordinators)
        return await Model(num_coordinators, step_s * 0.6, step_s * 0.4, in_flight).run(num_steps)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(run())


def measure_scale(settings: Settings) -> Row:
    """The whole table."""
    sizes = SIZES[:2] if settings.is_quick else SIZES
    costs = [asyncio.run(step_cost(size, settings.rounds(20))) for size in sizes]
    call_s = system_call_s()
    memory = asyncio.run(worker_memory())
    notes = [
        f"{'workers':>8} {'messages':>9} {'bytes':>9} {'writes':>7} {'coordinator':>13} {'a worker':>10}  (of a step)"
    ]
    for cost in costs:
        total_s = cost.coordinator_s + 2 * cost.num_workers * call_s
        notes.append(
            f"{cost.num_workers:>8} {cost.messages:>9.0f} {cost.num_bytes:>9.0f} {cost.writes:>7.0f}"
            f" {total_s * 1e6:>10.0f} µs {total_s / cost.num_workers * 1e6:>7.1f} µs"
        )
    notes.append(
        f"a write and a read of the system: {call_s * 1e6:.1f} µs, two for each worker and step, counted above"
    )
    kept_kb = max(cost.kept_bytes for cost in costs[1:]) / 1024
    notes.append(f"memory of the coordinator: {kept_kb:.1f} KB a worker (session, graph and connection)")
    session_kb, step_kb = memory["session"] / 1024, memory["step"] / 1024
    notes.append(f"memory of a worker: {session_kb:.1f} KB a session, {step_kb:.1f} KB a step under way")
    worker_s = costs[-1].coordinator_s / costs[-1].num_workers + 2 * call_s
    one, few = costs[:2]
    more_s = (few.coordinator_s - one.coordinator_s) / (few.num_workers - one.num_workers) + 2 * call_s
    step_s = one.coordinator_s + 2 * call_s + (PART - 1) * more_s
    notes.append(f"model: {NUM_WORKERS} workers, a step takes {PART} of them for {WORK_S * 1e3:.0f} ms each,")
    notes.append(f"  and a coordinator for {step_s * 1e6:.0f} µs")
    for num_coordinators, num_steps in (
        (1, NUM_STEPS),
        (4, NUM_STEPS // 10),
        (16, NUM_STEPS // 10),
        (64, NUM_STEPS // 10),
    ):
        done = num_steps // 1000 if settings.is_quick else num_steps
        rate, busy, workers = simulate(num_coordinators, step_s, done)
        notes.append(
            f"  {num_coordinators:>3} coordinators, {done:>9} steps: {rate:>7.0f} steps/s,"
            f" coordinators {busy:>4.0%} busy, workers {workers:>4.0%}"
        )
    return Row("cluster_scale", "µs a worker", {OURS: Times((worker_s * 1e6,))}, (), tuple(notes))


BENCHMARKS: Final = (Benchmark("cluster_scale", measure_scale, is_long=True),)
