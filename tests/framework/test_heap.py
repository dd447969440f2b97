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
    from asyncexec.framework.heap import keep_freed_memory

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
