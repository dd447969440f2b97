"""Names of devices, whole and partial: ``/job:worker/replica:0/task:1/device:CPU:0``.

After ``tensorflow/core/util/device_name_utils.cc`` and ``tensorflow/python/framework/device_spec.py``: every part may
be left out or be ``*``; of a part given twice the last one counts; ``cpu:0``, ``gpu:0`` and ``tpu:0``, in either case
and with or without the index, are short for ``device:CPU:0`` and so on.  One device type a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError

MAX_NAME_LENGTH: Final = 1000
_MAX_INDEX: Final = 2**31 - 1
_SHORT_TYPES: Final = frozenset({"CPU", "GPU", "TPU"})
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_INDEX: Final = re.compile(r"[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device, or the devices that fit where a part is None."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    index: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether it names exactly one device."""
        return None not in (self.job, self.replica, self.task, self.device_type, self.index)

    def accepts(self, other: DeviceName) -> bool:
        """Whether *other* has every part that is given here."""
        return all(mine is None or mine == theirs for mine, theirs in zip(self._parts, other._parts, strict=True))

    def merged_over(self, default: DeviceName) -> DeviceName:
        """This name, with the parts that it leaves open taken from *default*."""
        takes_index = self.device_type is None or self.device_type == default.device_type
        return DeviceName(
            self.job if self.job is not None else default.job,
            self.replica if self.replica is not None else default.replica,
            self.task if self.task is not None else default.task,
            self.device_type if self.device_type is not None else default.device_type,
            default.index if self.index is None and takes_index else self.index,
        )

    @property
    def _parts(self) -> tuple[str | int | None, ...]:
        return self.job, self.replica, self.task, self.device_type, self.index

    def __str__(self) -> str:
        text = "".join(
            f"/{key}:{value}"
            for key, value in (("job", self.job), ("replica", self.replica), ("task", self.task))
            if value is not None
        )
        if self.device_type is None and self.index is None:
            return text
        return f"{text}/device:{self.device_type or '*'}:{'*' if self.index is None else self.index}"


@lru_cache(1024)
def parse_device_name(text: str) -> DeviceName:
    """The device name that *text* spells; ``""`` leaves every part open.

    Raises:
        InvalidArgumentError: *text* is no device name.
    """
    name, type_part = DeviceName(), None
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
