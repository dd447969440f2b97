"""The memory that this process can still take: of the machine, and of the control groups that the process is in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.process.control_groups import ROOT, control_groups

# Bytes from which on somebody who wants memory asks first: that takes some 100 microseconds.
LARGE_BYTES: Final = 2**26
_KIB: Final = 1024
_NO_LIMIT: Final = 2**60  # what version 1 says instead
# By the version of control groups: the limit, what is in use, and what of that the page cache has.
_FILES: Final = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def check_room(num_bytes: int) -> None:
    """ResourceExhaustedError if *num_bytes* are many, and more than this process can still take."""
    if num_bytes < LARGE_BYTES:
        return
    free = free_bytes()
    if free is not None and num_bytes > free:
        raise ResourceExhaustedError(
            f"the outputs of this node take up to {num_bytes:,} bytes, and {free:,} bytes of memory are free",
            hint="SessionConfig(memory_limit=...) holds each step to a limit of your own",
        )


def free_bytes(root: Path = ROOT) -> int | None:
    """How many bytes this process can still take; None where the system, whose files are in *root*, does not tell."""
    try:
        told = _fields(root / "proc/meminfo")
        free = (told["MemAvailable:"] + told.get("SwapFree:", 0)) * _KIB
    except (OSError, ValueError, KeyError):
        return None
    return min([free, *_free_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """What each control group has left of its limit; what its files take in the page cache counts as free."""
    for folder, version in control_groups("memory", root):
        limit, usage, cache = _FILES[version]
        try:
            most = int((folder / limit).read_text(encoding="ascii"))
            used = int((folder / usage).read_text(encoding="ascii"))
            yield max(0, most - used + _cached(folder / "memory.stat", cache))
        except (OSError, ValueError):  # no limit is "max"
            continue


def memory_limit(root: Path = ROOT) -> int | None:
    """How many bytes the control groups of this process let it take; None where they set no limit."""
    found: list[int] = []
    for folder, version in control_groups("memory", root):
        with contextlib.suppress(OSError, ValueError):
            found.append(int((folder / _FILES[version][0]).read_text(encoding="ascii")))
    return min((limit for limit in found if limit < _NO_LIMIT), default=None)


def _cached(stat: Path, name: str) -> int:
    """Bytes of files in the page cache, as *stat* tells under *name*; a kernel may tell nothing."""
    try:
        return _fields(stat).get(name, 0)
    except (OSError, ValueError):
        return 0


def _fields(path: Path) -> dict[str, int]:
    """The numbers in a file with one name and one number a line."""
    words = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1}
