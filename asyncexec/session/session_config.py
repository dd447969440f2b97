"""How a session, and one run of it, behave."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SessionConfig(BaseModel):
    """Settings of a session; unknown ones are refused.

    Attributes:
        device_count: how many devices of each type there are.
        allow_soft_placement: run a node elsewhere when the device it asks for does not exist.
        log_device_placement: log where each node was placed.
        optimization: whether graphs are optimized before they run (there are no passes yet, so both are alike).
        executor_type: which executor runs them; ``""`` leaves the choice to the session.
        schedule_seed: draw the order of ready nodes from this seed, to show that results do not depend on it.
        num_worker_threads: threads for expensive kernels, by default one a core.
        slice_ms: milliseconds that cheap kernels may hold the event loop at a stretch.
        debug: check what every kernel gives against its op's promise.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    device_count: dict[str, int] = Field(default_factory=lambda: {"CPU": 1})
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    optimization: Literal["on", "off"] = "on"
    executor_type: Literal["", "TAGGED_TOKEN"] = ""
    schedule_seed: int | None = None
    num_worker_threads: int | None = Field(default=None, ge=1)
    slice_ms: float = Field(default=1.0, gt=0)
    debug: bool = False


class RunOptions(BaseModel):
    """Settings of one run.

    Attributes:
        timeout: seconds the run may take, else DeadlineExceededError.
        trace: fill ``metadata.step_stats``.
        output_partition_graphs: fill ``metadata.partition_graphs``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout: float | None = Field(default=None, gt=0)
    trace: bool = False
    output_partition_graphs: bool = False
