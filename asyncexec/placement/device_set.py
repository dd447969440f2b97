"""The devices of a session (``tensorflow/core/common_runtime/device_set.cc``)."""

from __future__ import annotations

from collections.abc import Mapping

from asyncexec.framework.device_name import DeviceName
from asyncexec.framework.errors import InvalidArgumentError


class DeviceSet:
    """The devices there are, the first of them the default.

    Raises:
        InvalidArgumentError: *device_count* names a device type there is none of, or no device at all.
    """

    def __init__(self, device_count: Mapping[str, int]) -> None:
        unknown = sorted(kind for kind, count in device_count.items() if kind != "CPU" and count > 0)
        if unknown:
            raise InvalidArgumentError(f"there are no devices of type {', '.join(unknown)} here; there is CPU")
        count = device_count.get("CPU", 1)
        if count < 1:
            raise InvalidArgumentError(f"a session needs at least one CPU device, not {count}")
        self.devices = tuple(DeviceName("localhost", 0, 0, "CPU", index) for index in range(count))

    @property
    def default(self) -> DeviceName:
        return self.devices[0]

    def matching(self, wanted: DeviceName) -> DeviceName | None:
        """The first device that *wanted* fits, or None."""
        return next((device for device in self.devices if wanted.accepts(device)), None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.devices))
