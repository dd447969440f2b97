"""The devices of a session, in order of priority (``tensorflow/core/common_runtime/device_set.cc``).

Devices of this process come first.  Types come by the priority of their factories, then by name; devices of one type by
name, their indices as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import DeviceFactories, device_factories
from asyncexec.framework.device_name import DeviceName, device_mapping_names
from asyncexec.framework.errors import AlreadyExistsError, FailedPreconditionError

# What is preferred first, with how much.
PrioritizedDevices = tuple[tuple[Device, int], ...]
PrioritizedDeviceTypes = tuple[tuple[str, int], ...]


class DeviceSet:
    """Devices, by name and by what fits a partial name.

    Attributes:
        client_device: the one that the caller's values come from and go to, once it is set.
    """

    def __init__(self, devices: Iterable[Device] = (), factories: DeviceFactories = device_factories) -> None:
        self._factories = factories
        self._devices: list[Device] = []
        self._by_name: dict[str, Device] = {}
        self._by_priority: tuple[Device, ...] | None = None
        self.client_device: Device | None = None
        for device in devices:
            self.add_device(device)

    def add_device(self, device: Device) -> None:
        """Add a device; AlreadyExistsError when there is one of that name."""
        if device.name in self._by_name:
            raise AlreadyExistsError(f"there are two devices {device.name}")
        self._devices.append(device)
        for name in device_mapping_names(device.parsed_name):
            self._by_name[name] = device
        self._by_priority = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """All of them, in the order they were added."""
        return tuple(self._devices)

    @property
    def default(self) -> Device:
        """The device of highest priority; FailedPreconditionError when there is none."""
        if not self._devices:
            raise FailedPreconditionError("No devices are registered")
        return self.by_priority[0]

    @property
    def by_priority(self) -> tuple[Device, ...]:
        """All of them, the preferred ones first."""
        if self._by_priority is None:
            self._by_priority = tuple(sorted(self._devices, key=self._device_order))
        return self._by_priority

    @property
    def prioritized_devices(self) -> PrioritizedDevices:
        """All of them with the priorities of their types, the preferred ones first."""
        return tuple((device, self.device_type_order(device.device_type)) for device in self.by_priority)

    @property
    def prioritized_device_types(self) -> PrioritizedDeviceTypes:
        """The types there are with their priorities, the preferred ones first."""
        return tuple((kind, self.device_type_order(kind)) for kind in self.device_types)

    @property
    def device_types(self) -> tuple[str, ...]:
        """The types there are, the preferred ones first."""
        return tuple(dict.fromkeys(device.device_type for device in self.by_priority))

    def device_type_order(self, device_type: str) -> int:
        """How much devices of that type are preferred."""
        return self._factories.priority(device_type)

    def find(self, name: str) -> Device | None:
        """The device of that whole name, or None."""
        return self._by_name.get(name)

    def by_name(self, name: str) -> Device:
        """The device of that whole name, which is known to exist."""
        return self._by_name[name]

    def matching(self, wanted: DeviceName) -> list[Device]:
        """The devices that *wanted* fits, in the order they were added."""
        return [device for device in self._devices if wanted.accepts(device.parsed_name)]

    def sorted_devices(self, devices: Iterable[tuple[Device, int]]) -> PrioritizedDevices:
        """Devices with priorities of their own, the preferred ones first; of equal ones as ever."""
        return tuple(sorted(devices, key=lambda pair: (pair[0].is_remote, -pair[1], self._device_order(pair[0]))))

    def sorted_types(self, device_types: Iterable[tuple[str, int]]) -> PrioritizedDeviceTypes:
        """Device types with priorities of their own, the preferred ones first; of equal ones as ever."""
        return tuple(sorted(device_types, key=lambda pair: (-pair[1], -self.device_type_order(pair[0]), pair[0])))

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)

    def __str__(self) -> str:
        return ", ".join(device.name for device in self.by_priority)

    def _device_order(self, device: Device) -> tuple[object, ...]:
        name = device.parsed_name
        type_order = -self.device_type_order(device.device_type)
        return device.is_remote, type_order, device.device_type, name.sort_key
