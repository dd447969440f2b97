"""What a worker tells of a step that is traced, and when that was by the clock of another process.

Times in StepStats are nanoseconds since 1970, which are those of the clock of a connection (``monotonic_ns``) and an
offset.  The wall clocks of two machines may differ by any time, and pings tell only how far the other clocks are apart.
So a worker sends its offset, too.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from asyncexec.framework.step_stats import StepStats


class _Traced(BaseModel):
    """StepStats on their way; *epoch_offset_ns* less, their times are those of the worker's ``monotonic_ns``."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, defer_build=True)

    epoch_offset_ns: int
    step_stats: StepStats


def pack_stats(stats: StepStats, epoch_offset_ns: int) -> dict[str, object]:
    """*stats*, whose times are those of ``monotonic_ns`` and *epoch_offset_ns*, as JSON."""
    return {"epoch_offset_ns": epoch_offset_ns, "step_stats": stats.model_dump(mode="json")}


def unpack_stats(told: dict[str, object], clock_offset_ns: int, epoch_offset_ns: int) -> StepStats:
    """The StepStats that a worker has *told*, with times of this process.

    Args:
        clock_offset_ns: the worker's ``monotonic_ns`` less that of this process.
        epoch_offset_ns: what is added here to ``monotonic_ns`` to get nanoseconds since 1970.

    Raises:
        pydantic.ValidationError: they are none; a ValueError.
    """
    traced = _Traced.model_validate(told)
    later_ns = epoch_offset_ns - traced.epoch_offset_ns - clock_offset_ns
    for device in traced.step_stats.dev_stats:
        for node in device.node_stats:
            node.all_start_nanos += later_ns
            node.all_start_micros = node.all_start_nanos // 1000
            node.scheduled_nanos += later_ns
            node.scheduled_micros = node.scheduled_nanos // 1000
    return traced.step_stats
