"""Device factories: who makes the devices of a type, and which types come first.

After ``tensorflow/core/common_runtime/device_factory.cc``.  A type of higher priority is preferred for nodes that can
run on several; of two factories for one type the one of higher priority is used.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from asyncexec.framework.device import DEFAULT_MEMORY_LIMIT, Device, DeviceAttributes
from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError

HOST_TYPE: Final = "CPU"
LOCAL_PREFIX: Final = "/job:localhost/replica:0/task:0"
DEFAULT_PRIORITY: Final = 50
CPU_PRIORITY: Final = 70
MAX_DEVICES_OF_A_TYPE: Final = 4096
_INCARNATION_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What the devices of a session should be like.

    Attributes:
        device_count: how many there are of a type; where a type is not named, its factory decides.
        name_prefix: job, replica and task of their names.
        num_workers: worker threads of each device of a type; where a type is not named, there is no limit of its own.
        memory_limit: bytes that tensors on each device of a type may take.
        seed: draws the incarnations, which are random otherwise.
    """

    device_count: Mapping[str, int] = field(default_factory=dict)
    name_prefix: str = LOCAL_PREFIX
    num_workers: Mapping[str, int] = field(default_factory=dict)
    memory_limit: Mapping[str, int] = field(default_factory=dict)
    seed: int | None = None

    def attributes(self, device_type: str, index: int, physical_device_desc: str = "") -> DeviceAttributes:
        """The attributes of device *index* of a type, with an incarnation of its own."""
        name = f"{self.name_prefix}/device:{device_type}:{index}"
        return DeviceAttributes(
            name,
            device_type,
            self.memory_limit.get(device_type, DEFAULT_MEMORY_LIMIT),
            incarnation=new_incarnation(None if self.seed is None else f"{self.seed} {name}"),
            physical_device_desc=physical_device_desc,
        )


# Makes the devices of one type.
DeviceFactory: TypeAlias = Callable[[DeviceOptions], Sequence[Device]]


def new_incarnation(seed: str | None = None) -> int:
    """A random number of 64 bits that is not 0; the same one for the same *seed*."""
    while True:
        bits = secrets.randbits(_INCARNATION_BITS) if seed is None else random.Random(seed).getrandbits(64)
        if bits:
            return bits
        seed = None if seed is None else seed + "+"


class DeviceFactories:
    """Device type -> its factory and its priority."""

    def __init__(self) -> None:
        self._factories: dict[str, tuple[DeviceFactory, int]] = {}

    def register(self, device_type: str, factory: DeviceFactory, priority: int = DEFAULT_PRIORITY) -> None:
        """Let *factory* make the devices of a type; AlreadyExistsError when another of that priority does."""
        _, present = self._factories.get(device_type, (None, None))
        if present == priority:
            raise AlreadyExistsError(f"there is already a device factory for {device_type} of priority {priority}")
        if present is None or present < priority:
            self._factories[device_type] = factory, priority

    def priority(self, device_type: str) -> int:
        """How much devices of that type are preferred; -1 when nobody makes any."""
        _, priority = self._factories.get(device_type, (None, -1))
        return priority

    @property
    def device_types(self) -> list[str]:
        """The types there are, by priority, then by name."""
        return sorted(self._factories, key=lambda kind: (-self.priority(kind), kind))

    def create_devices(self, options: DeviceOptions) -> list[Device]:
        """The devices that *options* ask for, type by type.

        Raises:
            InvalidArgumentError: there is no factory for a type, a number is out of range, or there is no device.
        """
        unknown = sorted(kind for kind, count in options.device_count.items() if count and kind not in self._factories)
        if unknown:
            raise InvalidArgumentError(
                f"there are no devices of type {', '.join(unknown)} here; there is {', '.join(self.device_types)}"
            )
        for kind, count in options.device_count.items():
            if not 0 <= count <= MAX_DEVICES_OF_A_TYPE:
                raise InvalidArgumentError(
                    f"there can be from 0 to {MAX_DEVICES_OF_A_TYPE} devices of type {kind}, not {count}"
                )
        devices = [device for kind in self.device_types for device in self._factories[kind][0](options)]
        if not any(device.device_type == HOST_TYPE for device in devices) and HOST_TYPE in self._factories:
            raise InvalidArgumentError("a session needs at least one CPU device, not 0")
        return devices


device_factories: Final = DeviceFactories()


def register_device_factory(device_type: str, factory: DeviceFactory, priority: int = DEFAULT_PRIORITY) -> None:
    """Let *factory* make the devices of a type from now on; errors as of DeviceFactories.register."""
    device_factories.register(device_type, factory, priority)


def create_devices(options: DeviceOptions, factories: DeviceFactories = device_factories) -> list[Device]:
    """The devices of a session; errors as of DeviceFactories.create_devices."""
    return factories.create_devices(options)


def _cpu_devices(options: DeviceOptions) -> list[Device]:
    count = options.device_count.get(HOST_TYPE, 1)
    return [Device(options.attributes(HOST_TYPE, i), options.num_workers.get(HOST_TYPE)) for i in range(count)]


register_device_factory(HOST_TYPE, _cpu_devices, CPU_PRIORITY)
