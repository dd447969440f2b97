"""DeviceSet: order of priority, names, what fits a partial name (TensorFlow's device_set_test.cc)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from asyncexec.framework.device import Device, DeviceAttributes
from asyncexec.framework.device_factory import DeviceFactories, DeviceOptions, create_devices
from asyncexec.framework.device_name import parse_device_name
from asyncexec.framework.errors import AlreadyExistsError, FailedPreconditionError
from asyncexec.placement.device_set import DeviceSet


def no_devices(options: DeviceOptions) -> Sequence[Device]:
    return []


FACTORIES = DeviceFactories()
FACTORIES.register("d1", no_devices)
FACTORIES.register("d2", no_devices, 51)
FACTORIES.register("d3", no_devices, 49)


def device(kind: str, index: int) -> Device:
    return Device(DeviceAttributes(f"/job:a/replica:0/task:0/device:{kind}:{index}", kind))


def test_types_come_by_the_priority_of_their_factories() -> None:
    devices = DeviceSet(factories=FACTORIES)
    assert [devices.device_type_order(kind) for kind in ("d1", "d2", "d3", "d4")] == [50, 51, 49, -1]
    seen = [devices.device_types]
    for kind, index in (("d1", 0), ("d1", 1), ("d2", 0), ("d3", 0)):
        devices.add_device(device(kind, index))
        seen.append(devices.device_types)
    assert seen == [(), ("d1",), ("d1",), ("d2", "d1"), ("d2", "d1", "d3")]


def test_the_order_is_known_anew_when_a_device_is_added() -> None:
    d1, d2, d3 = (device(kind, 0) for kind in ("d1", "d2", "d3"))
    devices = DeviceSet([d1, d2], FACTORIES)
    assert devices.prioritized_devices == ((d2, 51), (d1, 50))
    assert devices.prioritized_device_types == (("d2", 51), ("d1", 50))
    devices.add_device(d3)
    assert devices.prioritized_devices == ((d2, 51), (d1, 50), (d3, 49))
    assert devices.prioritized_device_types == (("d2", 51), ("d1", 50), ("d3", 49))
    assert devices.devices == (d1, d2, d3)
    assert devices.default is d2


def test_devices_with_priorities_of_their_own() -> None:
    made = {(kind, index): device(kind, index) for kind in ("d1", "d2", "d3") for index in (0, 1)}
    given = [("d3", 1, 30), ("d1", 0, 10), ("d2", 0, 20), ("d3", 0, 30), ("d1", 1, 20), ("d2", 1, 10)]
    devices = DeviceSet(made.values(), FACTORIES)
    found = devices.sorted_devices((made[kind, index], priority) for kind, index, priority in given)
    expected = [("d3", 0, 30), ("d3", 1, 30), ("d2", 0, 20), ("d1", 1, 20), ("d2", 1, 10), ("d1", 0, 10)]
    assert found == tuple((made[kind, index], priority) for kind, index, priority in expected)


def test_types_with_priorities_of_their_own() -> None:
    devices = DeviceSet(factories=FACTORIES)
    assert devices.sorted_types([("d3", 20), ("d1", 20), ("d2", 30)]) == (("d2", 30), ("d1", 20), ("d3", 20))


def test_devices_are_found_by_whole_names_in_either_form() -> None:
    cpu = create_devices(DeviceOptions({"CPU": 2}))[1]
    devices = DeviceSet([cpu])
    assert devices.find("/job:localhost/replica:0/task:0/device:CPU:1") is cpu
    assert devices.find("/job:localhost/replica:0/task:0/cpu:1") is cpu
    assert devices.find("/device:CPU:1") is None
    with pytest.raises(AlreadyExistsError):
        devices.add_device(cpu)


def test_what_fits_a_partial_name() -> None:
    made = [device(kind, index) for index in (0, 1) for kind in ("d1", "d2")]
    devices = DeviceSet(made, FACTORIES)
    assert devices.matching(parse_device_name("/device:d2:*")) == [made[1], made[3]]
    assert devices.matching(parse_device_name("/device:*:1")) == [made[2], made[3]]
    assert devices.matching(parse_device_name("/job:b")) == []
    assert list(devices) == devices.matching(parse_device_name(""))


def test_indices_are_numbers() -> None:
    made = [device("d1", index) for index in (10, 2, 1)]
    assert [one.parsed_name.index for one in DeviceSet(made, FACTORIES).by_priority] == [1, 2, 10]


def test_there_is_no_default_without_devices() -> None:
    with pytest.raises(FailedPreconditionError, match="No devices are registered"):
        _ = DeviceSet().default
