"""Kernels of one op for several types of device."""

from __future__ import annotations

from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel_registry import KernelRegistration, KernelRegistry


def kernel(construction: Any) -> Any:
    return abs


@pytest.fixture
def kernels() -> KernelRegistry:
    registry = KernelRegistry()
    floats = {"T": frozenset({ax.float32, ax.float64})}
    registry.register("Op", "CPU", KernelRegistration(kernel, constraints=floats))
    registry.register("Op", "CPU", KernelRegistration(kernel, constraints={"Tidx": frozenset({ax.int32})}))
    registry.register("Op", "GPU", KernelRegistration(kernel, priority=2))
    return registry


def test_what_an_op_has_kernels_for(kernels: KernelRegistry) -> None:
    assert kernels.device_types("Op") == ["CPU", "GPU"]
    assert kernels.device_types("Other") == []
    assert kernels.constrained_attrs("Op") == ("T", "Tidx")
    assert kernels.constrained_attrs("Other") == ()


def test_a_kernel_is_found_by_device_type_and_attrs(kernels: KernelRegistry) -> None:
    found = kernels.find("Op", "CPU", {"T": ax.float32, "Tidx": ax.int64})
    assert found is kernels.lookup("Op", "CPU", {"T": ax.float64})
    assert kernels.find("Op", "CPU", {"T": ax.int64, "Tidx": ax.int32}) not in (None, found)
    assert kernels.find("Op", "CPU", {"T": ax.int64, "Tidx": ax.int64}) is None
    assert kernels.lookup("Op", "GPU", {"T": ax.int64}).priority == 2
    with pytest.raises(InvalidArgumentError, match="No OpKernel was registered to support Op 'Op' on CPU"):
        kernels.lookup("Op", "CPU", {"T": ax.int64})


def test_a_kernel_takes_a_list_of_types_when_it_takes_each_of_them(kernels: KernelRegistry) -> None:
    assert kernels.find("Op", "CPU", {"T": (ax.float32, ax.float64)})
    assert kernels.find("Op", "CPU", {"T": ()})
    assert kernels.find("Op", "CPU", {"T": (ax.float32, ax.int64)}) is None


def test_kernels_in_words(kernels: KernelRegistry) -> None:
    assert kernels.describe("Op") == "CPU T in (float32, float64); CPU Tidx in (int32); GPU"
    assert kernels.registered_kernels("Op") == (
        "  device='CPU'; T in [float32, float64]\n  device='CPU'; Tidx in [int32]\n  device='GPU'"
    )
    assert kernels.registered_kernels("Other") == "  <no registered kernels>"


def test_a_kernel_may_take_the_place_of_others(kernels: KernelRegistry) -> None:
    kernels.register("Op", "CPU", KernelRegistration(kernel), replace=True)
    assert kernels.describe("Op") == "CPU; GPU"
