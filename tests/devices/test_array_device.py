"""Array devices: values get in and out unchanged, work is awaited without blocking, devices are made when named."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import asyncexec as ax
import asyncexec.devices
from asyncexec.devices.array_device import ArrayDeviceContext, ArrayDeviceType, MakeLibrary
from asyncexec.devices.array_library import ArrayLibrary, PendingCopy, exportable
from asyncexec.devices.jax_device import jax_library
from asyncexec.devices.torch_device import cuda_library, torch_cpu_library
from asyncexec.framework.device_factory import DeviceFactories, DeviceOptions, device_factories
from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError, MissingExtraError
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistry
from asyncexec.framework.op_registry import registry as op_registry
from tests.devices.array_devices import StrictLibrary, strict_library
from tests.devices.round_trips import ARRAYS, DTYPES, assert_same, layouts
from tests.running import settle

STRICT = ArrayDeviceContext(strict_library())


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in ("float16", "bfloat16")])
async def test_values_come_back_as_they_were(dtype: str) -> None:
    for value in ARRAYS[dtype]:
        there = await STRICT.copy_in(value)
        assert there.device == STRICT.library.device
        back = await STRICT.copy_out(there)
        assert_same(back, value)


@pytest.mark.parametrize("layout", layouts())
async def test_any_layout_gets_there(layout: str) -> None:
    value = layouts()[layout]
    back = await STRICT.copy_out(await STRICT.copy_in(value))
    np.testing.assert_array_equal(back, value)
    assert back.dtype == np.float32


def test_only_what_cannot_be_exported_is_copied() -> None:
    copied = {name for name, value in layouts().items() if exportable(value) is not value}
    assert copied == {"backwards", "other byte order", "unaligned"}
    for name, value in layouts().items():
        result = exportable(value)
        np.testing.assert_array_equal(result, value)
        assert name not in copied or (result.flags.c_contiguous and result.dtype.isnative and result.flags.aligned)


@pytest.mark.parametrize(
    "value",
    [
        np.float16(1),
        ml_dtypes.bfloat16(1),
        np.zeros(2, ml_dtypes.float8_e5m2),
        b"text",
        np.array([b"a", "b"], object),
        np.array(["2020-01-01"], "datetime64[D]"),
    ],
    ids=lambda value: np.asarray(value).dtype.name,
)
async def test_what_has_no_form_there_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        await STRICT.copy_in(value)


async def test_a_dtype_that_numpy_cannot_export_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(array: Any) -> Any:
        raise BufferError("not in DLPack")

    monkeypatch.setattr(sys.modules["array_api_strict"], "from_dlpack", refuse)
    value = np.array([1, 2])
    there = await STRICT.copy_in(value)
    value[0] = 7
    np.testing.assert_array_equal(await STRICT.copy_out(there), [1, 2])


@dataclass(slots=True)
class Queue:
    """A device's queue of work, for a test to look into: every question moves it on by one."""

    length: int
    questions: int = 0

    def is_done(self) -> bool:
        self.questions += 1
        self.length -= 1
        return self.length <= 0


@dataclass(frozen=True, slots=True, eq=False)
class QueueingLibrary(StrictLibrary):
    """array-api-strict as if its work were queued."""

    queue: Queue = field(default_factory=lambda: Queue(5))

    @property
    def is_in_host_memory(self) -> bool:
        return False

    def start_copy_out(self, array: Any) -> PendingCopy:
        copy = StrictLibrary.start_copy_out(self, array)

        def take() -> np.ndarray[Any, Any]:
            assert self.queue.length <= 0, "taken before it was there"
            return copy.take()

        return PendingCopy(take, self.queue.is_done)

    def mark(self) -> Any:
        return self.queue.is_done


def queueing(length: int) -> tuple[ArrayDeviceContext, Queue]:
    base = strict_library()
    queue = Queue(length)
    return ArrayDeviceContext(QueueingLibrary(base.name, base.xp, base.device, base.dtypes, queue=queue)), queue


@pytest.mark.parametrize("how", ["copy_out", "sync"])
async def test_others_have_the_loop_while_a_device_works(how: str) -> None:
    context, queue = queueing(50)
    there = await context.copy_in(np.arange(3))
    waiting = asyncio.create_task(context.copy_out(there) if how == "copy_out" else context.sync())
    turns = 0
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)
    assert queue.questions == 50
    assert turns > 10
    if how == "copy_out":
        np.testing.assert_array_equal(waiting.result(), np.arange(3), strict=True)


async def test_who_waits_for_a_device_can_be_cancelled() -> None:
    context, queue = queueing(10**6)
    waiting = asyncio.create_task(context.sync())
    await settle()
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue.length > 0


async def test_a_large_value_is_copied_on_a_thread() -> None:
    context, _ = queueing(1)
    value = np.arange(2**18, dtype=np.int64)
    copying = asyncio.create_task(context.copy_in(value))
    await asyncio.sleep(0)
    assert not copying.done()
    np.testing.assert_array_equal(await context.copy_out(await copying), value, strict=True)


async def test_what_is_made_of_nothing_is_made_in_the_memory_of_its_device() -> None:
    kernels = KernelRegistry()
    devices = ArrayDeviceType("STRICT", strict_library, kernels).make_devices(DeviceOptions({"STRICT": 2}))
    registration = kernels.lookup("Const", "STRICT", {"dtype": ax.float32})
    for device in devices:
        attrs = {"value": np.float32(3), "dtype": ax.float32}
        const = OpKernelConstruction("c", op_registry.lookup("Const").op_def, attrs, device=device.name)
        made: Any = registration.factory(const)
        assert isinstance(device.context, ArrayDeviceContext)
        assert made().device == device.context.library.device


def test_devices_are_made_as_many_as_are_named() -> None:
    asked: list[int] = []

    def make_library(index: int) -> ArrayLibrary:
        asked.append(index)
        return strict_library(index)

    kernels = KernelRegistry()
    strict = ArrayDeviceType("STRICT", make_library, kernels)
    factories = DeviceFactories()
    factories.register("CPU", lambda options: [])
    factories.register("STRICT", strict.make_devices)
    assert strict.make_devices(DeviceOptions({"OTHER": 1})) == []
    assert (asked, kernels.device_types("MatMul")) == ([], [])
    options = DeviceOptions({"STRICT": 2}, num_workers={"STRICT": 3}, seed=1)
    first, second = strict.make_devices(options)
    assert (first.name, second.name) == tuple(f"/job:localhost/replica:0/task:0/device:STRICT:{i}" for i in range(2))
    assert (first.device_type, first.num_workers, first.array_namespace) == ("STRICT", 3, "array_api_strict")
    assert not first.shares_host_memory
    assert "device2" in second.attributes.physical_device_desc
    assert kernels.device_types("MatMul") == ["STRICT"]
    assert isinstance(second.context, ArrayDeviceContext)
    assert strict.library_on(second.name) is second.context.library
    strict.make_devices(options)
    assert asked == [0, 1]
    assert len(kernels.describe("MatMul").split(";")) == 1


@pytest.mark.parametrize(
    ("make_library", "module"), [(torch_cpu_library, "torch"), (cuda_library, "torch"), (jax_library, "jax")]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    make_library: MakeLibrary, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    devices = ArrayDeviceType("X", make_library, KernelRegistry())
    with pytest.raises(MissingExtraError, match=rf"{module} is needed .*\n.*asyncexec\[{module}\]"):
        devices.make_devices(DeviceOptions({"X": 1}))


def test_the_types_are_there_and_none_is_made_unasked() -> None:
    assert {"TORCH", "GPU", "JAX"} <= set(device_factories.device_types)
    assert device_factories.priority("GPU") > device_factories.priority("CPU") > device_factories.priority("TORCH")
    assert {device.device_type for device in device_factories.create_devices(DeviceOptions())} == {"CPU"}
    with pytest.raises(AlreadyExistsError):
        device_factories.register("GPU", lambda options: [], asyncexec.devices.GPU_PRIORITY)
