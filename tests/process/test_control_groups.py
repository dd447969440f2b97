"""What containers let a process have: cores and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncexec.process import cores
from asyncexec.process.cores import core_limit, num_cores, usable_cores
from asyncexec.process.free_memory import memory_limit

V2, CPU, MEMORY = "sys/fs/cgroup", "sys/fs/cgroup/cpu", "sys/fs/cgroup/memory"
IN_V2, IN_V1 = {"proc/self/cgroup": "0::/a/b\n"}, {"proc/self/cgroup": "2:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        (IN_V2, None),
        (IN_V2 | {f"{V2}/a/b/cpu.max": "max 100000\n"}, None),
        (IN_V2 | {f"{V2}/a/b/cpu.max": "150000 100000\n"}, 1.5),
        (IN_V2 | {f"{V2}/a/b/cpu.max": "150000 100000\n", f"{V2}/a/cpu.max": "50000 100000\n"}, 0.5),
        (IN_V2 | {f"{V2}/cpu.max": "of no use\n"}, None),
        (IN_V1 | {f"{CPU}/a/cpu.cfs_quota_us": "-1\n", f"{CPU}/a/cpu.cfs_period_us": "100000\n"}, None),
        (IN_V1 | {f"{CPU}/a/cpu.cfs_quota_us": "300000\n", f"{CPU}/a/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_the_tightest_limit_of_cores_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], limit: float | None
) -> None:
    _write(tmp_path, files)
    assert core_limit(tmp_path) == limit
    monkeypatch.setattr(cores, "_LIMIT", limit)
    assert num_cores() == (usable_cores() if limit is None else max(1, min(usable_cores(), round(limit))))


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        (IN_V2 | {f"{V2}/a/b/memory.max": "max\n"}, None),
        (IN_V2 | {f"{V2}/a/b/memory.max": "1048576\n", f"{V2}/memory.max": "4096\n"}, 4096),
        (IN_V1 | {f"{MEMORY}/a/memory.limit_in_bytes": "4096\n"}, 4096),
        (IN_V1 | {f"{MEMORY}/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_the_tightest_limit_of_memory_counts(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    _write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


def _write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
