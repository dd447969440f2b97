"""The memory that this process can still take: of the machine, and of the control groups that the process is in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from asyncexec.framework.errors import ResourceExhaustedError

# Bytes from which on somebody who wants memory asks first: that takes some 100 microseconds.
LARGE_BYTES: Final = 2**26
_ROOT: Final = Path("/")
_KIB: Final = 1024


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


def free_bytes(root: Path = _ROOT) -> int | None:
    """How many bytes this process can still take; None where the system, whose files are in *root*, does not tell."""
    try:
        told = _fields(root / "proc/meminfo")
        free = (told["MemAvailable:"] + told.get("SwapFree:", 0)) * _KIB
    except (OSError, ValueError, KeyError):
        return None
    return min([free, *_free_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """What each control group has left of its limit; what its files take in the page cache counts as free."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            files = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        mount, limit, usage, cache = files
        group = PurePosixPath(path)
        for each in (group, *group.parents):
            folder = root / mount / each.relative_to("/")
            try:
                most = int((folder / limit).read_text(encoding="ascii"))
                used = int((folder / usage).read_text(encoding="ascii"))
                yield max(0, most - used + _fields(folder / "memory.stat").get(cache, 0))
            except (OSError, ValueError):  # no limit is "max"; and a container may not see all groups
                continue


def _fields(path: Path) -> dict[str, int]:
    """The numbers in a file with one name and one number a line."""
    words = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1}
