"""How a session, and one run of it, behave."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SessionConfig(BaseModel):
    """Settings of a session; unknown ones are refused.

    Attributes:
        device_count: how many devices of each type there are.
        allow_soft_placement: run a node elsewhere when the device it asks for does not exist.
        log_device_placement: log where each node was placed.
        place_pruned_graph: place only what a run needs, so that other nodes may ask for devices that do not exist.
        optimization: which optimizer passes run when a signature is optimized, which it is after many compiled runs, or
            before the first: "on" for all, "L1" for those of each device's graph, "off" or "L0" for none.  Passes of
            users (``ax.graph_pass``) always run.
        executor_type: which executor runs them.  "DEFAULT", or ``""``: at first the general one, which measures the
            kernels; then what is cheap is compiled to Python, with nodes that are awaited one after the other, or else
            the regions between nodes that await or work.  "TAGGED_TOKEN": the general one alone.  "COMPILED": compiled
            before the first run.  Or one of the user's (``ax.executor_factory``).
        schedule_seed: draw the order of ready nodes from this seed, to show that results do not depend on it.
        timeout: seconds that each run, and call of a callable, may take where its RunOptions say nothing.
        num_worker_threads: threads for expensive kernels, of the session's own, for each of its devices.  By default it
            shares as many threads as cores with all sessions of the process that name no number, device by device in
            turns.
        num_processes: worker processes for ops with ``executor="process"``, by default one a core.
        worker_grace_s: seconds that a step which has failed, or which the close of the session ends, waits for calls on
            worker threads, and then leaves them to their threads, with a warning; calls in worker processes are killed
            then.  None is for ever.
        cancel_grace_s: the same for a step whose timeout is over, or whose caller has cancelled it.
        async_grace_s: seconds that it waits for async kernels to clean up after their cancellation.
        slice_ms: milliseconds that cheap kernels may hold the event loop at a stretch.
        feed_fetch_medium: how feeds and fetches travel: in a call frame, or as those between devices do, through the
            rendezvous of the step by ``_Recv`` and ``_Send`` nodes.  Results are the same; a call frame is quicker.
        max_concurrent_steps: calls that may be under way at once; the others wait in a queue, first come, first served.
            What a step calls itself counts as a part of it, and does not queue.
        max_queued_steps: calls that may wait in that line; past it there is ResourceExhaustedError.
        drain_timeout_s: seconds that ``close`` leaves to calls under way and in line before it ends them; None is for
            ever.
        slow_inline_ms: warn (KernelWarning, once a node) of kernels that hold the event loop longer; None for never.
        keep_freed_memory: let the process use the memory of large arrays again instead of giving it back to the system:
            without, kernels on arrays of a megabyte take three times as long.  What they have used at once may stay
            with the process (docs/event_loop.md); it is so for the whole process, until its end.
        python_scalars: give 0-d results as Python ``bool``, ``int``, ``float``, ``complex`` and ``str`` (as bytes where
            they are not UTF-8), as JSON and databases take them; by default they are numpy scalars and bytes.
        debug: check what every kernel gives against its op's promise, and that it changes no input which others may
            see; slow.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    device_count: dict[str, int] = Field(default_factory=lambda: {"CPU": 1})
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    place_pruned_graph: bool = False
    optimization: Literal["on", "off", "L0", "L1"] = "on"
    executor_type: str = ""
    schedule_seed: int | None = None
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    num_worker_threads: int | None = Field(default=None, ge=1)
    num_processes: int | None = Field(default=None, ge=1)
    worker_grace_s: float | None = Field(default=5.0, ge=0)
    cancel_grace_s: float | None = Field(default=0.025, ge=0)
    async_grace_s: float | None = Field(default=30.0, ge=0)
    slice_ms: float = Field(default=1.0, gt=0)
    feed_fetch_medium: Literal["call_frame", "rendezvous"] = "call_frame"
    max_concurrent_steps: int | None = Field(default=None, ge=1)
    max_queued_steps: int | None = Field(default=None, ge=0)
    drain_timeout_s: float | None = Field(default=0.0, ge=0)
    slow_inline_ms: float | None = Field(default=100.0, gt=0)
    keep_freed_memory: bool = True
    python_scalars: bool = False
    debug: bool = False

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_queued_steps is not None and self.max_concurrent_steps is None:
            raise ValueError("max_queued_steps needs max_concurrent_steps: without it nobody waits in line")
        return self


class RunOptions(BaseModel):
    """Settings of one run.

    Attributes:
        timeout: seconds the run may take, else DeadlineExceededError.
        trace: fill ``metadata.step_stats``.
        python_scalars: as in SessionConfig, whose setting it overrides.
        output_partition_graphs: fill ``metadata.partition_graphs``.
        output_pass_graphs: put the graph after each pass into ``metadata.passes``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout: float | None = Field(default=None, gt=0)
    trace: bool = False
    python_scalars: bool | None = None
    output_partition_graphs: bool = False
    output_pass_graphs: bool = False
