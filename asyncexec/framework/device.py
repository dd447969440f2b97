"""Devices: what a device is told of, and what it is here.

A device is a memory space, an array namespace, a limit on worker threads and, by its context, a queue of asynchronous
work.  What the world is told of one are its DeviceAttributes (``tensorflow/core/framework/device_attributes.proto``);
memory for one tensor is asked for by AllocatorAttributes (``allocator.h``); values get in and out of its memory by its
DeviceContext (``device_base.h``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError

DEFAULT_MEMORY_LIMIT: Final = 256 * 2**20  # bytes, of a CPU device, as TensorFlow says


@dataclass(frozen=True, slots=True)
class DeviceLocality:
    """Where in the machine a device is."""

    bus_id: int = 0
    numa_node: int = 0


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """What others are told of a device.

    Attributes:
        name: its whole name.
        device_type: ``CPU``, ``GPU``, ...
        memory_limit: bytes that tensors on it may take.
        locality: where in the machine it is.
        incarnation: a number that is another whenever the device is made anew; never 0.
        physical_device_desc: what it is, in words.
    """

    name: str
    device_type: str
    memory_limit: int = DEFAULT_MEMORY_LIMIT
    locality: DeviceLocality = DeviceLocality()
    incarnation: int = 1
    physical_device_desc: str = ""


@dataclass(frozen=True, slots=True)
class AllocatorAttributes:
    """What memory one tensor needs.

    Attributes:
        on_host: in the memory of the host, whatever device the kernel runs on.
        gpu_compatible: such that an accelerator can reach it.
    """

    on_host: bool = False
    gpu_compatible: bool = False

    def merge(self, other: AllocatorAttributes) -> AllocatorAttributes:
        """What satisfies both."""
        return AllocatorAttributes(self.on_host or other.on_host, self.gpu_compatible or other.gpu_compatible)

    def is_equal_or_less_restrictive_than(self, other: AllocatorAttributes) -> bool:
        """Whether memory that satisfies *other* satisfies this too."""
        return self.merge(other) == other


HOST_MEMORY: Final = AllocatorAttributes(on_host=True)


class DeviceContext(Protocol):
    """How values get into a device's memory and out of it, and how its work is waited for."""

    async def copy_in(self, value: Any) -> Any:
        """*value*, of the host's memory, in the device's."""

    async def copy_out(self, value: Any) -> Any:
        """*value*, of the device's memory, in the host's: a numpy array or scalar, bytes, or a Python object."""

    async def sync(self) -> None:
        """Return once all work that was given to the device is done."""


class HostContext:
    """The context of devices that share the host's memory and work at once: nothing to copy, nothing to wait for."""

    async def copy_in(self, value: object) -> Any:
        return value

    async def copy_out(self, value: object) -> Any:
        return value

    async def sync(self) -> None:
        return


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device of this process, or one that this process knows of.  Each is equal to itself alone.

    Attributes:
        attributes: what others are told of it.
        parsed_name: its name, complete.
        num_workers: how many kernels may run on worker threads for it at a time; None: as many as there are threads.
        array_namespace: the library whose arrays are its tensors.
        context: how values get into its memory and out.
        shares_host_memory: whether its tensors are the host's too, so that a crossing copies nothing.
        is_remote: whether it is a device of another process: nodes go there only if they ask for it.
    """

    attributes: DeviceAttributes
    num_workers: int | None = None
    array_namespace: str = "numpy"
    context: DeviceContext = field(default_factory=HostContext)
    shares_host_memory: bool = True
    is_remote: bool = False
    parsed_name: DeviceName = field(init=False)

    def __post_init__(self) -> None:
        name = parse_device_name(self.attributes.name)
        if not name.is_complete:
            raise InvalidArgumentError(f"the name of a device is complete, unlike {self.attributes.name!r}")
        if self.num_workers is not None and self.num_workers < 1:
            raise InvalidArgumentError(f"device {name} needs at least one worker thread, not {self.num_workers}")
        object.__setattr__(self, "parsed_name", name)

    @property
    def name(self) -> str:
        """Its whole name."""
        return self.attributes.name

    @property
    def device_type(self) -> str:
        return self.attributes.device_type

    @property
    def incarnation(self) -> int:
        return self.attributes.incarnation

    def __str__(self) -> str:
        return self.attributes.name
