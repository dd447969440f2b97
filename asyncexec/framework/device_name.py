"""Names of devices, whole and partial: ``/job:worker/replica:0/task:1/device:CPU:0``.

After ``tensorflow/core/util/device_name_utils.cc`` and ``tensorflow/python/framework/device_spec.py``: every part may
be left out or be ``*``; of a part given twice the last one counts; ``cpu:0``, ``gpu:0`` and ``tpu:0``, in either case
and with or without the index, are short for ``device:CPU:0`` and so on.  One device type a name.

A name with open parts is a *specification*: of two, the one that has all parts of the other, and the same, is a
specification of the other.  There are four ways to make one name of two:

===========================  =======================================================================================
``merge``                    both hold; InvalidArgumentError where they differ, but for a soft type or index, which
                             are left open then
``merge_override``           both hold; where type or index differ, the other's
``merged_over``              the first holds, and the second where the first is open (nested device scopes)
``ensure_specification``     the second holds, and the first where the second is open
===========================  =======================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError

MAX_NAME_LENGTH: Final = 1000
_MAX_INDEX: Final = 2**31 - 1
_SHORT_TYPES: Final = frozenset({"CPU", "GPU", "TPU"})
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_INDEX: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_Parts: TypeAlias = "tuple[str | int | None, ...]"


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device, or the devices that fit where a part is None."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    index: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it names exactly one device."""
        return None not in self._parts

    @property
    def has_details(self) -> bool:
        """Whether any part is given."""
        return self != NO_DEVICE

    @property
    def address_space(self) -> DeviceName:
        """The process that the device is in: job, replica and task."""
        return DeviceName(self.job, self.replica, self.task)

    @property
    def local_name(self) -> str:
        """What it is called within its process: ``CPU:0``."""
        return f"{self.device_type or '*'}:{'*' if self.index is None else self.index}"

    @property
    def sort_key(self) -> tuple[tuple[bool, str | int], ...]:
        """Orders names part by part, indices as numbers, open parts first."""
        return tuple((part is not None, "" if part is None else part) for part in self._parts)

    def accepts(self, other: DeviceName) -> bool:
        """Whether *other* has every part that is given here."""
        return all(mine is None or mine == theirs for mine, theirs in zip(self._parts, other._parts, strict=True))

    def is_specification_of(self, less_specific: DeviceName) -> bool:
        """Whether this name has every part that *less_specific* has."""
        return less_specific.accepts(self)

    def is_compatible_with(self, other: DeviceName) -> bool:
        """Whether no part is given in both and different."""
        return self._conflict(other) is None

    def is_same_address_space(self, other: DeviceName) -> bool:
        """Whether both are known to be in one process."""
        mine = self._parts[:3]
        return None not in mine and mine == other._parts[:3]

    def merge(self, other: DeviceName, *, allow_soft_placement: bool = False) -> DeviceName:
        """What both this name and *other* ask for.

        Raises:
            InvalidArgumentError: they differ in a part; with *allow_soft_placement* only in job, replica or task.
        """
        conflict = self._conflict(other)
        if conflict is None:
            return other._over(self)
        if conflict < _TYPE or not allow_soft_placement:
            raise InvalidArgumentError(
                f"Cannot merge devices with incompatible {_PLURALS[conflict]}: '{self}' and '{other}'"
            )
        if conflict == _TYPE:
            return replace(other._over(self), device_type=None, index=None)
        return replace(other._over(self), index=None)

    def merge_override(self, other: DeviceName) -> DeviceName:
        """What both ask for, *other* where type or index differ; InvalidArgumentError where the rest does."""
        conflict = self._conflict(other)
        if conflict is not None and conflict < _TYPE:
            return self.merge(other)  # which says why not
        return other._over(self)

    def merged_over(self, default: DeviceName) -> DeviceName:
        """This name, with the parts that it leaves open taken from *default*."""
        merged = self._over(default)
        takes_index = self.device_type is None or self.device_type == default.device_type
        return merged if takes_index else replace(merged, index=self.index)

    def ensure_specification(self, less_specific: DeviceName) -> DeviceName:
        """This name, changed to be a specification of *less_specific*."""
        return less_specific._over(self)

    def _over(self, default: DeviceName) -> DeviceName:
        if self is default or default is NO_DEVICE:
            return self
        if self is NO_DEVICE:
            return default
        mine, theirs = self._parts, default._parts
        return DeviceName(*(a if a is not None else b for a, b in zip(mine, theirs, strict=True)))  # type: ignore[arg-type]

    def _conflict(self, other: DeviceName) -> int | None:
        """The position of the first part that is given in both and different."""
        if self is other or self is NO_DEVICE or other is NO_DEVICE:
            return None
        for position, (mine, theirs) in enumerate(zip(self._parts, other._parts, strict=True)):
            if mine != theirs and mine is not None and theirs is not None:
                return position
        return None

    @property
    def _parts(self) -> _Parts:
        return self.job, self.replica, self.task, self.device_type, self.index

    def __str__(self) -> str:
        text = "".join(
            f"/{key}:{value}"
            for key, value in (("job", self.job), ("replica", self.replica), ("task", self.task))
            if value is not None
        )
        return text if self.device_type is None and self.index is None else f"{text}/device:{self.local_name}"


NO_DEVICE: Final = DeviceName()
_PLURALS: Final = ("jobs", "replicas", "tasks", "types", "ids")
_TYPE: Final = 3


@lru_cache(1024)
def parse_device_name(text: str) -> DeviceName:
    """The device name that *text* spells; ``""`` leaves every part open.

    Raises:
        InvalidArgumentError: *text* is no device name.
    """
    name, type_part = NO_DEVICE, None
    if len(text) > MAX_NAME_LENGTH:
        raise _malformed(text)
    for part in text.split("/"):
        key, *values = part.split(":")
        if not part:
            continue
        if key == "job" and len(values) == 1:
            name = replace(name, job=_word(values[0], text))
        elif key == "replica" and len(values) == 1:
            name = replace(name, replica=_number(values[0], text))
        elif key == "task" and len(values) == 1:
            name = replace(name, task=_number(values[0], text))
        else:
            if type_part is not None:
                raise _malformed(text, "it has two device types")
            type_part = part
            name = _with_type(name, key, values, text)
    return name


def merge_device_names(inner: str, outer: str) -> str:
    """*inner*, its open parts taken from *outer*, as text; InvalidArgumentError when either is malformed."""
    return str(parse_device_name(inner).merged_over(parse_device_name(outer)))


def parse_local_name(text: str) -> DeviceName:
    """The device that *text*, such as ``CPU:10``, is called within its process.

    Raises:
        InvalidArgumentError: *text* is not a device type and an index.
    """
    kind, _, index = text.partition(":")
    if _WORD.fullmatch(kind) is None or _INDEX.fullmatch(index) is None:
        raise _malformed(text, "a local name is a device type and an index")
    return DeviceName(device_type=kind, index=_number(index, text))


def split_device_name(text: str) -> tuple[str, str]:
    """``("/job:a/replica:0/task:1", "CPU:0")`` of a name; the first is ``""`` where no such part is given.

    Raises:
        InvalidArgumentError: *text* is malformed, or names no single device within a process.
    """
    name = parse_device_name(text)
    if not text.startswith("/") or name.device_type is None or name.index is None:
        raise _malformed(text, "it has no device type and index")
    return str(name.address_space), name.local_name


def canonical_device_name(text: str, basename: str) -> str:
    """The whole name of the device that *text* is to who is at *basename*, itself a whole name.

    Raises:
        InvalidArgumentError: either is malformed, or *basename* is not a whole name.
    """
    base = parse_device_name(basename)
    if not base.is_complete:
        raise InvalidArgumentError(f"Basename: {basename[:200]!r} should be fully specified")
    return str(parse_device_name(text)._over(base))


def device_mapping_names(name: DeviceName) -> tuple[str, ...]:
    """The texts that a device may be looked up by: its name and the legacy form of it; none of a partial name."""
    if not name.is_complete or name.device_type is None:
        return ()
    return str(name), f"{name.address_space}/{name.device_type.lower()}:{name.index}"


def _with_type(name: DeviceName, key: str, values: list[str], text: str) -> DeviceName:
    if key in ("device", "DEVICE") and values:
        kind, *values = values
    elif key.upper() in _SHORT_TYPES:
        kind = key
    else:
        raise _malformed(text, f"{key[:100]!r} is no part of one")
    if len(values) > 1:
        raise _malformed(text)
    device_type = _word(kind, text)
    if device_type is not None and device_type.upper() in _SHORT_TYPES:
        device_type = device_type.upper()
    return replace(name, device_type=device_type, index=_number(values[0], text) if values else None)


def _word(value: str, text: str) -> str | None:
    if value == "*":
        return None
    if _WORD.fullmatch(value) is None:
        raise _malformed(text, f"{value[:100]!r} is no word of letters, digits and _")
    return value


def _number(value: str, text: str) -> int | None:
    if value == "*":
        return None
    if _INDEX.fullmatch(value) is None or int(value) > _MAX_INDEX:
        raise _malformed(text, f"{value[:100]!r} is no index")
    return int(value)


def _malformed(text: str, why: str = "") -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Malformed device specification {text[:200]!r}" + (f": {why}" if why else ""),
        hint="write '/cpu:0', '/device:CPU:0' or '/job:worker/replica:0/task:0/device:CPU:0', or a part of it",
    )
