"""Rendezvous: which values are copied, by whom, and what becomes of a copy that is cut short."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from anyio import WouldBlock

import asyncexec as ax
from asyncexec.framework.derived import is_derived
from asyncexec.framework.device import HOST_MEMORY, Device, DeviceAttributes
from asyncexec.framework.errors import (
    AbortedError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from asyncexec.framework.rendezvous import RendezvousArgs, RendezvousInterface, RendezvousStatistics, args_on
from asyncexec.rendezvous.intra_process import Rendezvous
from tests.rendezvous.conformance import BAR, EMPTY, FOO, Outcome, RendezvousConformance
from tests.running import settle, started

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


class TestIntraProcess(RendezvousConformance):
    @pytest.fixture
    def rendezvous(self) -> RendezvousInterface:
        return Rendezvous()


@dataclass(frozen=True)
class OnDevice:
    """A value in the memory of a FakeContext."""

    value: Any
    context: FakeContext


class FakeContext:
    """A device with memory of its own; it copies when it is let, and counts."""

    def __init__(self) -> None:
        self.copies: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None

    async def copy_in(self, value: Any) -> Any:
        assert not isinstance(value, OnDevice)
        await self._copy("in")
        return OnDevice(value, self)

    async def copy_out(self, value: Any) -> Any:
        assert value.context is self
        await self._copy("out")
        return value.value

    async def sync(self) -> None: ...

    async def _copy(self, direction: str) -> None:
        await self.goes_on.wait()
        self.copies.append(direction)
        if self.error is not None:
            raise self.error


@pytest.fixture
async def gpu() -> FakeContext:
    return FakeContext()


@pytest.fixture
async def other_gpu() -> FakeContext:
    return FakeContext()


@pytest.fixture
async def rendezvous() -> Rendezvous:
    return Rendezvous()


def device_with(context: FakeContext | None) -> Device:
    attributes = DeviceAttributes("/job:localhost/replica:0/task:0/device:GPU:0", "GPU")
    if context is None:
        return Device(attributes)
    return Device(attributes, context=context, shares_host_memory=False)


async def test_between_host_memories_the_value_is_passed_on(rendezvous: Rendezvous) -> None:
    value = np.arange(3)
    rendezvous.send(FOO, value, args=args_on(device_with(None)))
    assert rendezvous.recv_nowait(FOO, args_on(device_with(None)))[0] is value


async def test_from_a_device_to_the_host(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    rendezvous.send(FOO, OnDevice(5, gpu), args=RendezvousArgs(gpu))
    with pytest.raises(WouldBlock):
        rendezvous.recv_nowait(FOO)
    assert await rendezvous.recv(FOO) == (5, False, RendezvousArgs(gpu))
    assert gpu.copies == ["out"]
    assert rendezvous.statistics() == EMPTY


async def test_from_the_host_to_a_device(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    waiting = await started(rendezvous.recv(FOO, args_on(device_with(gpu))))
    rendezvous.send(FOO, 5)
    assert (await waiting)[0] == OnDevice(5, gpu)
    assert gpu.copies == ["in"]


async def test_from_device_to_device(rendezvous: Rendezvous, gpu: FakeContext, other_gpu: FakeContext) -> None:
    rendezvous.send(FOO, OnDevice(5, gpu), args=RendezvousArgs(gpu))
    assert (await rendezvous.recv(FOO, RendezvousArgs(other_gpu)))[0] == OnDevice(5, other_gpu)
    assert (gpu.copies, other_gpu.copies) == (["out"], ["in"])


async def test_on_one_device_the_value_stays(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    value = OnDevice(5, gpu)
    rendezvous.send(FOO, value, args=RendezvousArgs(gpu))
    assert rendezvous.recv_nowait(FOO, RendezvousArgs(gpu))[0] is value


@pytest.mark.parametrize("to_host", [False, True])
async def test_between_host_and_device_memory_of_one_device(
    rendezvous: Rendezvous, gpu: FakeContext, to_host: bool
) -> None:
    on_host, on_device = RendezvousArgs(gpu, HOST_MEMORY), RendezvousArgs(gpu)
    sender, receiver = (on_device, on_host) if to_host else (on_host, on_device)
    rendezvous.send(FOO, OnDevice(5, gpu) if to_host else 5, args=sender)
    assert (await rendezvous.recv(FOO, receiver))[0] == (5 if to_host else OnDevice(5, gpu))
    assert len(gpu.copies) == 1


async def test_what_is_on_the_host_on_both_sides_stays(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    rendezvous.send(FOO, b"text", args=RendezvousArgs(gpu, HOST_MEMORY))
    assert rendezvous.recv_nowait(FOO)[0] == b"text"
    assert gpu.copies == []


async def test_a_dead_value_is_not_copied(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    rendezvous.send(FOO, None, is_dead=True, args=RendezvousArgs(gpu))
    assert rendezvous.recv_nowait(FOO)[:2] == (None, True)
    assert gpu.copies == []


@pytest.mark.parametrize("value", [b"text", np.array([b"a", b"b"], object)])
async def test_strings_do_not_get_into_a_devices_memory(rendezvous: Rendezvous, gpu: FakeContext, value: Any) -> None:
    rendezvous.send(FOO, value)
    with pytest.raises(InvalidArgumentError, match=r"Non-DMA-safe string .*Key: .*foo"):
        await rendezvous.recv(FOO, RendezvousArgs(gpu))
    outcome = Outcome()
    rendezvous.recv_async(FOO, RendezvousArgs(gpu), outcome)
    rendezvous.send(FOO, value)
    await outcome.is_done.wait()
    assert isinstance(outcome.error, InvalidArgumentError)


@pytest.mark.parametrize("value_first", [False, True])
async def test_a_callback_gets_the_copy(rendezvous: Rendezvous, gpu: FakeContext, value_first: bool) -> None:
    outcome = Outcome()
    if value_first:
        rendezvous.send(FOO, 5)
    waiter = rendezvous.recv_async(FOO, RendezvousArgs(gpu), outcome)
    if not value_first:
        rendezvous.send(FOO, 5)
    assert waiter is not None
    assert await outcome.value() == OnDevice(5, gpu)
    assert not waiter.cancel()
    assert rendezvous.statistics() == EMPTY


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(RuntimeError("no power"), InternalError), (ResourceExhaustedError("full"), ResourceExhaustedError)],
)
async def test_a_copy_that_fails(
    rendezvous: Rendezvous, gpu: FakeContext, raised: Exception, kind: type[Exception]
) -> None:
    gpu.error, outcome = raised, Outcome()
    for _ in range(2):
        rendezvous.send(FOO, 5)
    with pytest.raises(kind, match=r"no power|full"):
        await rendezvous.recv(FOO, RendezvousArgs(gpu))
    rendezvous.recv_async(FOO, RendezvousArgs(gpu), outcome)
    await outcome.is_done.wait()
    assert isinstance(outcome.error, kind)
    assert not is_derived(outcome.error)
    assert rendezvous.statistics() == EMPTY


async def test_a_task_cancelled_while_it_copies_gives_the_value_back(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    gpu.goes_on.clear()
    rendezvous.send(FOO, 5)
    task = await started(rendezvous.recv(FOO, RendezvousArgs(gpu)))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert rendezvous.recv_nowait(FOO)[0] == 5


async def test_a_callback_cancelled_while_its_value_is_copied_gives_it_back(
    rendezvous: Rendezvous, gpu: FakeContext
) -> None:
    gpu.goes_on.clear()
    first, second = Outcome(), Outcome()
    waiter = rendezvous.recv_async(FOO, RendezvousArgs(gpu), first)
    rendezvous.recv_async(FOO, RendezvousArgs(gpu), second)
    rendezvous.send(FOO, 5)
    await settle()
    assert rendezvous.statistics() == RendezvousStatistics(0, 2)
    assert waiter is not None
    assert waiter.cancel()
    await first.is_done.wait()
    assert isinstance(first.error, CancelledError)
    gpu.goes_on.set()
    assert await second.value() == OnDevice(5, gpu)


async def test_a_cancel_counts_though_the_copy_ends_in_the_same_turn(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    outcome = Outcome()
    waiter = rendezvous.recv_async(FOO, RendezvousArgs(gpu), outcome)
    rendezvous.send(FOO, 5)
    assert waiter is not None
    assert waiter.cancel()  # before the copy's task has run at all
    await outcome.is_done.wait()
    assert isinstance(outcome.error, CancelledError)
    assert rendezvous.recv_nowait(FOO)[0] == 5


async def test_an_abort_ends_the_copies_of_callbacks(rendezvous: Rendezvous, gpu: FakeContext) -> None:
    gpu.goes_on.clear()
    outcomes = [Outcome() for _ in range(3)]
    for key, outcome in zip((FOO, BAR, FOO), outcomes, strict=True):
        rendezvous.send(key, 5)
        rendezvous.recv_async(key, RendezvousArgs(gpu), outcome)
    await settle()
    rendezvous.start_abort(AbortedError("falling sky"))
    for outcome in outcomes:
        await outcome.is_done.wait()
        assert isinstance(outcome.error, AbortedError)
        assert is_derived(outcome.error)
    assert rendezvous.statistics() == EMPTY
    assert gpu.copies == []


def test_keys_are_made_of_parts_and_read_back() -> None:
    key = ax.Rendezvous.create_key(CPU, 7, CPU, "edge")
    assert key == f"{CPU};0000000000000007;{CPU};edge;0:0"
    assert ax.Rendezvous.parse_key(key).edge_name == "edge"
    with pytest.raises(InvalidArgumentError):
        ax.Rendezvous.parse_key("edge")
