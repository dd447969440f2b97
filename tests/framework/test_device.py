"""Devices, their factories, what memory they ask for, and the host's own context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from asyncexec.framework.device import HOST_MEMORY, AllocatorAttributes, Device, DeviceAttributes, HostContext
from asyncexec.framework.device_factory import (
    DeviceFactories,
    DeviceOptions,
    create_devices,
    device_factories,
    new_incarnation,
)
from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError


def test_a_session_has_as_many_cpu_devices_as_it_asks_for() -> None:
    devices = create_devices(DeviceOptions({"CPU": 3}))
    assert [str(device) for device in devices] == [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(3)]
    assert {device.array_namespace for device in devices} == {"numpy"}
    assert len(create_devices(DeviceOptions())) == 1


def test_what_devices_of_a_type_are_like() -> None:
    options = DeviceOptions({"CPU": 2}, "/job:w/replica:0/task:1", num_workers={"CPU": 2}, memory_limit={"CPU": 1024})
    attributes = [device.attributes for device in create_devices(options)]
    assert [one.name for one in attributes] == [f"/job:w/replica:0/task:1/device:CPU:{i}" for i in range(2)]
    assert [one.memory_limit for one in attributes] == [1024, 1024]
    assert [device.num_workers for device in create_devices(options)] == [2, 2]


def test_incarnations_differ_unless_a_seed_says_otherwise() -> None:
    def incarnations(seed: int | None) -> list[int]:
        return [device.incarnation for device in create_devices(DeviceOptions({"CPU": 4}, seed=seed))]

    first, second = incarnations(None), incarnations(None)
    assert len({*first, *second}) == 8
    assert incarnations(7) == incarnations(7) != incarnations(8)
    assert len(set(incarnations(7))) == 4
    assert all(0 < number < 2**64 for number in [*first, *incarnations(7)])


def test_an_incarnation_is_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([0, 5])
    monkeypatch.setattr("secrets.randbits", lambda bits: next(drawn))
    assert new_incarnation() == 5


@pytest.mark.parametrize("count", [{"CPU": 0}, {"CPU": -1}, {"CPU": 10**6}, {"TPU": 1}, {"CPU": 1, "": 1}])
def test_devices_that_cannot_be_had(count: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        create_devices(DeviceOptions(count))


def test_a_device_that_is_not_asked_for_need_not_exist() -> None:
    assert len(create_devices(DeviceOptions({"GPU": 0, "CPU": 1}))) == 1


def made_by(maker: str) -> Device:
    return Device(DeviceAttributes("/job:a/replica:0/task:0/device:D:0", "D", physical_device_desc=maker))


def test_the_factory_of_higher_priority_makes_the_devices_of_a_type() -> None:
    factories = DeviceFactories()
    asked: list[DeviceOptions] = []

    def first(options: DeviceOptions) -> Sequence[Device]:
        asked.append(options)
        return [made_by("first")]

    factories.register("D", first)
    factories.register("E", lambda options: [], 60)
    options = DeviceOptions()
    assert [device.attributes.physical_device_desc for device in factories.create_devices(options)] == ["first"]
    assert asked == [options]
    factories.register("D", lambda options: [made_by("lower")], 49)
    assert [device.attributes.physical_device_desc for device in factories.create_devices(options)] == ["first"]
    factories.register("D", lambda options: [made_by("higher")], 99)
    assert [device.attributes.physical_device_desc for device in factories.create_devices(options)] == ["higher"]
    assert factories.device_types == ["D", "E"]
    with pytest.raises(AlreadyExistsError):
        factories.register("D", first, 99)


def test_the_cpu_has_a_priority() -> None:
    assert device_factories.priority("CPU") == 70
    assert device_factories.priority("Nothing") == -1


@pytest.mark.parametrize("name", ["/device:CPU:0", "", "/job:a/replica:0/task:0", "nonsense"])
def test_a_device_has_a_whole_name(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Device(DeviceAttributes(name, "CPU"))


def test_a_device_has_a_worker_thread_at_least() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one worker thread"):
        Device(DeviceAttributes("/job:a/replica:0/task:0/device:CPU:0", "CPU"), num_workers=0)


def test_each_device_is_itself_alone() -> None:
    one, other = made_by("x"), made_by("x")
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize("first", [AllocatorAttributes(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("second", [AllocatorAttributes(a, b) for a in (False, True) for b in (False, True)])
def test_merged_memory_satisfies_both(first: AllocatorAttributes, second: AllocatorAttributes) -> None:
    merged = first.merge(second)
    assert merged == second.merge(first)
    assert merged.on_host == (first.on_host or second.on_host)
    assert merged.gpu_compatible == (first.gpu_compatible or second.gpu_compatible)
    assert first.is_equal_or_less_restrictive_than(merged)
    assert first.is_equal_or_less_restrictive_than(second) == (merged == second)
    assert HOST_MEMORY.on_host


async def test_the_host_has_nothing_to_copy_and_nothing_to_wait_for() -> None:
    context, value = HostContext(), np.arange(3)
    assert await context.copy_in(value) is value
    assert await context.copy_out(value) is value
    await context.sync()
