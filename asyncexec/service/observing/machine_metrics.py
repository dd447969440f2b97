"""Processor and memory of the machine, with Triton's names; there are none where there is no ``/proc``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

_PROC: Final = Path("/proc")
_IDLE: Final = slice(3, 5)  # of the times in the first line of /proc/stat: idle, and waiting for disks
_GUEST: Final = 8  # from there on, times that are a part of others
_BYTES: Final = 1024


class MachineMetrics:
    """Reads files of *proc* when it is asked."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._last = (0, 0)

    def describe(self) -> Iterable[Metric]:
        """Nothing: it does not depend on what has happened."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        try:
            times = [int(each) for each in self._read("stat").split("\n", 1)[0].split()[1:]][:_GUEST]
            memory = {name: rest.split() for name, _, rest in (row.partition(":") for row in self._rows("meminfo"))}
            total, free = (int(memory[name][0]) * _BYTES for name in ("MemTotal", "MemAvailable"))
        except (OSError, ValueError, KeyError, IndexError):
            return
        told = "share of the processor time of the machine that was used, since it was last asked for"
        yield GaugeMetricFamily("nv_cpu_utilization", told, self._utilization(sum(times), sum(times[_IDLE])))
        yield GaugeMetricFamily("nv_cpu_memory_total_bytes", "memory of the machine", total)
        yield GaugeMetricFamily("nv_cpu_memory_used_bytes", "memory of the machine that is used", total - free)

    def _utilization(self, total: int, idle: int) -> float:
        (last_total, last_idle), self._last = self._last, (total, idle)
        return 0.0 if total <= last_total else min(1.0, max(0.0, 1 - (idle - last_idle) / (total - last_total)))

    def _read(self, name: str) -> str:
        return (self._proc / name).read_text(encoding="ascii", errors="replace")

    def _rows(self, name: str) -> list[str]:
        return self._read(name).splitlines()
