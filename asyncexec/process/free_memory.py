"""The memory that this process can still take: of the machine, and of the control groups that the process is in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.framework.memory_budget import check_running
from asyncexec.process.control_groups import ROOT, control_groups

if TYPE_CHECKING:
    from asyncexec.framework.arrays import NumpyDType

_resource: Any = resource  # None is no module to type checkers
# Bytes from which on somebody who wants memory asks first: that takes some 300 microseconds, to fill so many 10,000.
LARGE_BYTES: Final = 2**26
_MOST_BYTES: Final = 2**40  # that are taken where the system does not tell what is free
_KIB: Final = 1024
_NO_LIMIT: Final = 2**60  # what version 1 says instead
# By the version of control groups: the limit, what is in use, and what of that the page cache has, which goes when
# memory is wanted, also where it has been read twice ("active"); files in memory alone (tmpfs) are not in it.
_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
}


def check_room(num_bytes: int, what: str = "the outputs of this node take", held: int = 0) -> None:
    """ResourceExhaustedError if *num_bytes* are many, and more than this process or the running step can take.

    With the bytes *held* of what grows by them they are what the step is to have room for.
    """
    if num_bytes + held < LARGE_BYTES:
        return
    check_running(num_bytes + held)
    free = free_bytes()
    if num_bytes > (_MOST_BYTES if free is None else free):
        told = "no machine has so many" if free is None else f"{free:,} bytes of memory are free"
        raise ResourceExhaustedError(
            f"{what} up to {num_bytes:,} bytes, and {told}",
            hint="SessionConfig(memory_limit=...) holds each step to a limit of your own",
        )


def check_array(shape: Sequence[int], dtype: NumpyDType) -> None:
    """The same for an array that a kernel is about to make."""
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes >= LARGE_BYTES:
        check_room(num_bytes, f"OOM when allocating tensor with shape {list(shape)} and type {dtype.name}: it takes")


def free_bytes(root: Path = ROOT) -> int | None:
    """How many bytes this process can still take; None where the system, whose files are in *root*, does not tell."""
    try:
        told = (root / "proc/meminfo").read_text(encoding="ascii")
        free = (_field(told, "MemAvailable:") + _field(told, "SwapFree:", 0)) * _KIB
    except (OSError, ValueError, KeyError):
        return None
    return min([free, *_free_in_groups(root), *_free_addresses(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """What each control group has left of its limit; what its files take in the page cache counts as free."""
    for folder, version in control_groups("memory", root):
        limit, usage, cache = _FILES[version]
        try:
            most = int((folder / limit).read_text(encoding="ascii"))
            if most < _NO_LIMIT:
                used = int((folder / usage).read_text(encoding="ascii"))
                yield max(0, most - used + _cached(folder / "memory.stat", cache))
        except (OSError, ValueError):  # no limit is "max"
            continue


def _free_addresses(root: Path) -> Iterator[int]:
    """What the process has left of its limit on addresses (``ulimit -v``)."""
    most = -1 if _resource is None else _resource.getrlimit(_resource.RLIMIT_AS)[0]
    if most >= 0:  # else there is no limit
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = int((root / "proc/self/statm").read_text(encoding="ascii").split()[0])
            yield max(0, most - pages * _resource.getpagesize())


def memory_limit(root: Path = ROOT) -> int | None:
    """How many bytes the control groups of this process let it take; None where they set no limit."""
    found: list[int] = []
    for folder, version in control_groups("memory", root):
        with contextlib.suppress(OSError, ValueError):
            found.append(int((folder / _FILES[version][0]).read_text(encoding="ascii")))
    return min((limit for limit in found if limit < _NO_LIMIT), default=None)


def _cached(stat: Path, names: Iterable[str]) -> int:
    """Bytes of files in the page cache, as *stat* tells under *names*; a kernel may tell nothing."""
    try:
        told = stat.read_text(encoding="ascii")
        return sum(_field(told, name, 0) for name in names)
    except (OSError, ValueError):
        return 0


def _field(text: str, name: str, default: int | None = None) -> int:
    """The number after *name*, in a text with one name and one number a line; KeyError where there is none."""
    _, found, rest = f"\n{text}".partition(f"\n{name} ")
    if found:
        return int(rest.split(maxsplit=1)[0])
    if default is None:
        raise KeyError(name)
    return default
