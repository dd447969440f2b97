"""torch devices: values get in and out unchanged, and on the CPU without a copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from asyncexec.devices.array_device import ArrayDeviceContext
from asyncexec.devices.torch_device import cuda_library, torch_cpu_library
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.errors import InvalidArgumentError
from tests.devices.round_trips import ARRAYS, DTYPES, assert_same, layouts

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def context() -> ArrayDeviceContext:
    return ArrayDeviceContext(torch_cpu_library())


@pytest.mark.parametrize("dtype", DTYPES)
async def test_values_come_back_as_they_were(context: ArrayDeviceContext, dtype: str) -> None:
    for value in ARRAYS[dtype]:
        there = await context.copy_in(value)
        assert isinstance(there, torch.Tensor)
        assert there.dtype == getattr(torch, dtype)
        back = await context.copy_out(there)
        assert_same(back, value)


@pytest.mark.parametrize("dtype", DTYPES)
async def test_nothing_is_copied_where_the_memory_is_the_same(context: ArrayDeviceContext, dtype: str) -> None:
    value = ARRAYS[dtype][0]
    there = await context.copy_in(value)
    assert there.data_ptr() == value.ctypes.data
    assert np.shares_memory(await context.copy_out(there), value)


@pytest.mark.parametrize("layout", layouts())
async def test_any_layout_gets_there(context: ArrayDeviceContext, layout: str) -> None:
    value = layouts()[layout]
    back = await context.copy_out(await context.copy_in(value))
    np.testing.assert_array_equal(back, value)
    assert back.dtype == np.float32


async def test_views_that_only_torch_knows_come_out(context: ArrayDeviceContext) -> None:
    there = await context.copy_in(np.array([[1 + 2j, 3 - 4j]], np.complex64))
    np.testing.assert_array_equal(await context.copy_out(there.conj()), [[1 - 2j, 3 + 4j]])
    np.testing.assert_array_equal(await context.copy_out(there.conj().imag), [[-2, 4]])
    np.testing.assert_array_equal(await context.copy_out(there.mT), [[1 + 2j], [3 - 4j]])


@pytest.mark.parametrize(
    "value",
    [b"text", np.zeros(2, ml_dtypes.float8_e4m3fn), np.array([b"a"], object)],
    ids=["bytes", "float8", "object"],
)
async def test_what_has_no_form_there_is_refused(context: ArrayDeviceContext, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="has no form in the memory of a torch device"):
        await context.copy_in(value)


async def test_the_cpu_is_always_done(context: ArrayDeviceContext) -> None:
    assert await context.sync() is None


def test_a_session_has_the_devices_it_names() -> None:
    cpu, *devices = create_devices(DeviceOptions({"CPU": 1, "TORCH": 2}))
    assert cpu.shares_host_memory
    assert [device.parsed_name.local_name for device in devices] == ["TORCH:0", "TORCH:1"]
    assert {device.array_namespace for device in devices} == {"torch"}


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InvalidArgumentError, match=r"no GPU 0 here; torch .* finds 0\n.*TORCH"):
        cuda_library(0)
