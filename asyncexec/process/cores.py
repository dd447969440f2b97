"""The cores that this process may use, and how many of them are idle just now."""

from __future__ import annotations

import os
from typing import Final

_LOAD: Final = "/proc/loadavg"


def num_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def num_idle_cores() -> int:
    """How many cores nobody needs just now, but for the calling thread; where the system does not tell, all of them.

    It reads a file of the kernel, which takes some 20 microseconds: not for the event loop's thread.
    """
    cores = num_cores()
    try:
        with open(_LOAD, encoding="ascii") as file:
            runnable = int(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return cores
    return max(1, min(cores, (os.cpu_count() or cores) - runnable + 1))
