"""How much memory is free: of the machine, and of the control groups of the process."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from asyncexec.framework.errors import ResourceExhaustedError
from asyncexec.process import free_memory
from asyncexec.process.free_memory import LARGE_BYTES, check_array, check_room, free_bytes

MACHINE = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 1000 kB\nSwapFree: 24 kB\n"}
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"


def system(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def group(folder: str, limit: str, used: int, cached: int, again: int = 0) -> dict[str, str]:
    v2 = not folder.startswith(V1)
    names = ("memory.max", "memory.current") if v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    total = "" if v2 else "total_"
    return {
        f"{folder}/{names[0]}": f"{limit}\n",
        f"{folder}/{names[1]}": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\n{total}inactive_file {cached}\n{total}active_file {again}\n",
    }


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (MACHINE, 1024 * 1024),
        ({}, None),
        ({"proc/meminfo": "nothing of use"}, None),
        (MACHINE | {"proc/self/cgroup": "0::/a/b\n"} | group(f"{V2}/a/b", "max", 10, 0), 1024 * 1024),
        (MACHINE | {"proc/self/cgroup": "0::/a/b\n"} | group(f"{V2}/a/b", "5000", 3000, 500), 2500),
        (MACHINE | {"proc/self/cgroup": "0::/a/b\n"} | group(f"{V2}/a/b", "5000", 4900, 500, again=3000), 3600),
        (MACHINE | {"proc/self/cgroup": "4:memory:/job\n"} | group(f"{V1}/job", "5000", 4900, 500, 3000), 3600),
        (MACHINE | {"proc/self/cgroup": "0::/a/b\n"} | group(f"{V2}/a", "700", 300, 0), 400),
        (MACHINE | {"proc/self/cgroup": "0::/\n"} | group(V2, "700", 900, 0), 0),
        (
            MACHINE | {"proc/self/cgroup": "3:cpu:/x\n4:memory:/job\n0::/\n"} | group(f"{V1}/job", "5000", 4000, 100),
            1100,
        ),
        *(
            (MACHINE | {"proc/self/cgroup": f"{line}\n"}, 1024 * 1024)
            for line in ("odd", "0:/a", "0::", "0::a", "", ":::")
        ),
        (MACHINE | {"proc/self/cgroup": "odd\n0::/a\n"} | group(f"{V2}/a", "5000", 3000, 500), 2500),
        (MACHINE | {"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "700", f"{V2}/memory.current": "300"}, 400),
        (
            MACHINE | {"proc/self/cgroup": "0::/\n"} | group(V2, "700", 300, 0) | {f"{V2}/memory.stat": "anon odd\n"},
            400,
        ),
    ],
)
def test_the_tightest_limit_counts(tmp_path: Path, files: dict[str, str], free: int | None) -> None:
    assert free_bytes(system(tmp_path, files)) == free


@pytest.mark.parametrize(
    ("wanted", "free", "is_refused"),
    [
        (LARGE_BYTES, LARGE_BYTES, False),
        (LARGE_BYTES, LARGE_BYTES - 1, True),
        (LARGE_BYTES - 1, 0, False),
        (LARGE_BYTES, None, False),
        (2**41, None, True),
    ],
)
def test_only_what_is_large_is_refused(
    monkeypatch: pytest.MonkeyPatch, wanted: int, free: int | None, is_refused: bool
) -> None:
    monkeypatch.setattr(free_memory, "free_bytes", lambda: free)
    with pytest.raises(ResourceExhaustedError, match="memory_limit") if is_refused else nullcontext():
        check_room(wanted)


def test_a_limit_on_addresses_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory._resource, "getrlimit", lambda kind: (50 * free_memory._resource.getpagesize(), -1))
    files = MACHINE | {"proc/self/statm": "30 20 10 1 0 5 0\n"}
    assert free_bytes(system(tmp_path, files)) == 20 * free_memory._resource.getpagesize()


def test_an_array_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "free_bytes", lambda: LARGE_BYTES)
    check_array([LARGE_BYTES], np.dtype(np.uint8))
    with pytest.raises(
        ResourceExhaustedError, match=r"OOM .* \[16777217\] and type float32: it takes up to 67,108,868"
    ):
        check_array([LARGE_BYTES // 4 + 1], np.dtype(np.float32))
