"""Freed memory is kept: arrays that come and go again and again cause no page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np

if "keep" in sys.argv:
    from asyncexec.process.allocator import keep_freed_memory

    keep_freed_memory()

def count_faults(repeats):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(repeats):
        doubled = x + x
        doubled * doubled + x
        del doubled
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

x = np.ones(250_000, np.float32)
count_faults(10)
print(count_faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how malloc learns is glibc's own")
def test_arrays_take_the_memory_of_those_before() -> None:
    def faults(*arguments: str) -> int:
        done = subprocess.run([sys.executable, "-c", FAULTS, *arguments], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults() > 1000  # 4 KB each, of some megabytes that are given back every time
    assert faults("keep") < 100


SESSION = """
import asyncio, sys
import asyncexec as ax
from asyncexec.process import allocator

async def main(keeps):
    with ax.Graph() as graph:
        y = ax.constant(1.0) + 1.0
    async with ax.Session(graph, ax.SessionConfig(keep_freed_memory=keeps)) as session:
        await session.run(y)
    print(allocator.keep_freed_memory.cache_info().currsize)

asyncio.run(main(sys.argv[1] == "yes"))
"""


@pytest.mark.parametrize(("keeps", "count"), [("yes", "1"), ("no", "0")])
def test_a_session_asks_for_it_unless_told_not_to(keeps: str, count: str) -> None:
    done = subprocess.run([sys.executable, "-c", SESSION, keeps], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == count
