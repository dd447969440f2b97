"""The collectives of several processes, without connections: a network that delivers in any order, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import reduce as fold
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncexec.distributed.collective_calls import LEADER, Call, call_key
from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.collective_leader import CollectiveLeader
from asyncexec.distributed.messages import pack_json
from asyncexec.distributed.step_rendezvous import StepRendezvous
from asyncexec.framework import types
from asyncexec.framework.collective import CollectiveMember, CollectiveStatistics
from asyncexec.framework.derived import is_derived
from asyncexec.framework.errors import AbortedError, CancelledError, InvalidArgumentError, OpError, UnavailableError
from asyncexec.framework.rendezvous import RendezvousStatistics
from asyncexec.rendezvous.collective_executor import OFFLOADED_SIZE
from asyncexec.rendezvous.collective_instances import Operation
from tests.running import settle, started

SPACES: Final = [LEADER, *(f"/job:worker/replica:0/task:{task}" for task in range(3))]
LARGE: Final = 2**14 + 1  # elements of 4 bytes: more than the leader merges
NOTHING: Final = CollectiveStatistics(0, 0, 0)


class Network:
    """The processes of one step; what they send to each other arrives when the test lets it."""

    def __init__(self, seed: int = 0) -> None:
        self.offloaded: list[str] = []
        self.failures: list[OpError] = []
        self.is_cut = False
        self._draw = random.Random(seed)
        self._under_way: list[tuple[StepRendezvous, str, Any]] = []
        self._loop = asyncio.get_running_loop()
        self.rendezvous = {space: StepRendezvous(1, _Route(self, space)) for space in SPACES}
        self.leader = CollectiveLeader(self.rendezvous[LEADER], self.failures.append)
        self.executors = {}
        for space, rendezvous in self.rendezvous.items():
            self.leader.listen(space)
            leader = self.leader if space == LEADER else None
            self.executors[space] = ClusterCollectiveExecutor(rendezvous, space, self._offload, leader)

    def executor(self, device: str) -> ClusterCollectiveExecutor:
        return self.executors[device.split("/device:")[0]]

    def channel(self, space: str) -> Any:
        return _Channel(self, self.rendezvous[space])

    def send(self, rendezvous: StepRendezvous, key: str, value: Any) -> None:
        self._under_way.append((rendezvous, key, value.copy() if isinstance(value, np.ndarray) else value))
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Any of the messages; those on one key keep their order."""
        if self._under_way and not self.is_cut:
            key = self._draw.choice(self._under_way)[1]
            index = next(i for i, message in enumerate(self._under_way) if message[1] == key)
            rendezvous, key, value = self._under_way.pop(index)
            rendezvous.arrive(key, value, is_dead=False)

    async def _offload(self, function: Callable[..., Any], args: Sequence[Any], node: str) -> Any:
        self.offloaded.append(node)
        await asyncio.sleep(0)
        return function(*args)

    def has_nothing_left(self) -> bool:
        left = [each.statistics() for each in self.rendezvous.values()]
        listening = [RendezvousStatistics(0, len(SPACES)), *[RendezvousStatistics(0, 0)] * (len(SPACES) - 1)]
        return left == listening and all(each.statistics() == NOTHING for each in self.executors.values())


class _Route:
    def __init__(self, network: Network, own: str) -> None:
        self._network = network
        self._own = own

    def __call__(self, device: str) -> Any:
        space = device.split("/device:")[0]
        return None if space == self._own else self._network.channel(space)


class _Channel:
    def __init__(self, network: Network, rendezvous: StepRendezvous) -> None:
        self._network = network
        self._rendezvous = rendezvous

    def send_tensor(self, step_id: int, key: str, value: Any, is_dead: bool = False) -> None:
        self._network.send(self._rendezvous, key, value)


DEVICES: Final = [f"{space}/device:CPU:{cpu}" for space in SPACES for cpu in range(2)]


def member(device: str, size: int, **others: Any) -> CollectiveMember:
    return CollectiveMember(device, **{"group_key": 1, "instance_key": 1, "group_size": size} | others)


async def outcomes(calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


@given(
    devices=st.lists(st.sampled_from(DEVICES), min_size=1, max_size=5, unique=True),
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=2),
    is_large=st.booleans(),
    dtype=st.sampled_from(["int32", "int64", "float32", "float64"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=30)
async def test_any_collective_gives_what_numpy_gives(
    devices: list[str], shape: list[int], is_large: bool, dtype: str, seed: int
) -> None:
    network, size = Network(seed), len(devices)
    shape = [*shape[:1], LARGE] if is_large else shape
    generator = np.random.default_rng(seed)
    values = {device: (generator.random(shape) * 100).astype(dtype) for device in devices}
    ordered = [values[device] for device in DEVICES if device in values]
    root = devices[0]

    async def take_part(device: str) -> list[Any]:
        executor, value = network.executor(device), values[device]
        to_root = member(device, size, instance_key=3)
        result = [
            await executor.all_reduce(member(device, size), value, "Add", "Id"),
            await executor.gather(member(device, size), value),
            await executor.reduce(to_root, value, "Max", "Id", is_root=device == root),
        ]
        if device == root:
            result.append(await executor.broadcast_send(to_root, value))
        else:
            result.append(await executor.broadcast_recv(to_root, types.as_dtype(dtype), shape))
        return result

    found = await asyncio.gather(*map(take_part, devices))
    for device, (total, every, largest, sent) in zip(devices, found, strict=True):
        np.testing.assert_allclose(total, fold(np.add, ordered), rtol=1e-5)
        assert total.tobytes() == found[0][0].tobytes()
        np.testing.assert_array_equal(every, np.concatenate(ordered))
        if device == root:
            np.testing.assert_array_equal(largest, fold(np.maximum, ordered))
        else:
            assert largest is None
        np.testing.assert_array_equal(sent, values[root])
    arrays = [each for result in found for each in result[:3] if each is not None]
    arrays += [*values.values(), *(result[3] for device, result in zip(devices, found, strict=True) if device != root)]
    assert not any(np.shares_memory(one, other) for i, one in enumerate(arrays) for other in arrays[:i])
    assert network.has_nothing_left()


@pytest.mark.parametrize("count", [3, LARGE], ids=["small", "large"])
async def test_additions_have_one_order(count: int) -> None:
    """Whoever comes first, and whatever arrives first."""
    generator = np.random.default_rng(7)
    devices = DEVICES[2:7]
    values = {device: generator.random(count, np.float32) for device in devices}
    found = set()
    for seed in range(10):
        network = Network(seed)
        order = random.Random(seed).sample(devices, len(devices))
        calls = [
            network.executor(device).all_reduce(member(device, len(devices)), values[device], "Add", "Id")
            for device in order
        ]
        found |= {result.tobytes() for result in await asyncio.gather(*calls)}
    assert len(found) == 1


async def test_large_values_are_merged_elsewhere() -> None:
    network = Network()
    for count, is_offloaded in ((LARGE, False), (OFFLOADED_SIZE, True)):
        calls = [
            network.executor(device).all_reduce(member(device, 2, node="sum"), np.ones(count), "Add", "Id")
            for device in DEVICES[1:3]
        ]
        for result in await asyncio.gather(*calls):
            assert result[-1] == 2
        assert (set(network.offloaded) == {"sum"}) is is_offloaded


def begin(network: Network, devices: Sequence[str], count: int, size: int) -> list[Coroutine[Any, Any, Any]]:
    return [
        network.executor(device).all_reduce(member(device, size), np.ones(count), "Add", "Id") for device in devices
    ]


@pytest.mark.parametrize("count", [1, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_an_abort_at_any_time_wakes_all(count: int, turns: int) -> None:
    network = Network()
    tasks = [asyncio.ensure_future(call) for call in begin(network, DEVICES[1:6:2], count, 3)]
    for _ in range(turns):
        await asyncio.sleep(0)
    network.is_cut = True
    await settle()
    for executor in network.executors.values():
        executor.start_abort(AbortedError("falling sky"))
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result[0] == 3 if isinstance(result, np.ndarray) else is_derived(result)
    with pytest.raises(AbortedError, match="falling sky"):
        await network.executor(DEVICES[0]).gather(member(DEVICES[0], 1), np.ones(1))
    network.leader.close()
    for rendezvous in network.rendezvous.values():
        assert rendezvous.statistics() == RendezvousStatistics(0, 0)
    assert network.leader.stuck() == []


async def test_who_is_cancelled_ends_it_for_its_process() -> None:
    network = Network()
    tasks = [await started(call) for call in begin(network, DEVICES[2:4], 1, 3)]
    tasks[0].cancel()
    with pytest.raises(CancelledError, match="was cancelled on"):
        await tasks[1]
    assert tasks[0].cancelled()


async def test_nothing_comes_from_a_worker_that_is_lost() -> None:
    rendezvous = StepRendezvous(1, lambda _: None)
    key = f"{DEVICES[2]};0;{DEVICES[4]};edge;0:0"
    rendezvous.arrive(key, 1, is_dead=False)
    rendezvous.lose(SPACES[1], UnavailableError("task 0 is lost"))
    assert (await rendezvous.recv(key))[0] == 1
    with pytest.raises(UnavailableError, match="task 0 is lost"):
        await rendezvous.recv(key)


GOOD: Final = Call(1, member(DEVICES[2], 2), Operation("all-reduce", np.dtype("float32"), (2,)), False)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (np.ones(3), "no text"),
        (b"{", "no JSON"),
        (pack_json({}), "malformed"),
        (GOOD.pack().replace(b'"all-reduce"', b'"whatever"'), "no such collective"),
        (GOOD.pack().replace(b'"Add"', b'"Sub"'), "no such collective"),
        (GOOD.pack().replace(b"float32", b"float99"), "float99"),
        (GOOD.pack().replace(b"[2]", b"[[]]"), "malformed"),
        (GOOD.pack().replace(b"[2]", b"[]").replace(b"all-reduce", b"gather"), "first dimension"),
        (GOOD.pack().replace(b"[2]", b"[3]").replace(b"all-reduce", b"all-to-all"), "first dimension size (3)"),
        (GOOD.pack().replace(b"[2]", b"[3]").replace(b"all-reduce", b"reduce-scatter"), "first dimension size (3)"),
    ],
)
async def test_a_worker_that_says_what_is_no_call(body: Any, text: str) -> None:
    network = Network()
    network.rendezvous[LEADER].arrive(call_key(SPACES[1]), body, is_dead=False)
    (error,) = network.failures
    assert isinstance(error, (InvalidArgumentError, TypeError))
    assert text in str(error)


async def test_a_value_that_is_not_what_the_call_says() -> None:
    network = Network()
    network.rendezvous[SPACES[1]].send(
        f"{SPACES[1]}/device:CPU:0;{0:016x};{LEADER}/device:CPU:0;collective value 1;0:0", np.ones(3)
    )
    network.rendezvous[SPACES[1]].send(call_key(SPACES[1]), GOOD.pack())
    await settle()
    assert "got float64 of shape [3] where float32 of shape [2] was expected" in str(network.failures)


@pytest.mark.parametrize(
    ("kind", "count", "size", "is_led", "has_value"),
    [
        ("all-reduce", 2**13, 4, True, True),
        ("all-reduce", 2**13, 5, False, False),  # 320 KiB together
        ("all-reduce", 2**13 + 1, 2, False, False),  # a frame of its own each: they might change their order
        ("broadcast", 2**13, 4, True, False),
    ],
)
def test_whether_the_leader_merges(kind: str, count: int, size: int, is_led: bool, has_value: bool) -> None:
    call = Call(1, member(DEVICES[0], size), Operation(kind, np.dtype("float64"), (count,)), False)
    assert (call.is_led, call.has_value) == (is_led, has_value)
