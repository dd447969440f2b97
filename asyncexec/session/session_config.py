"""How a session, and one run of it, behave."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from asyncexec.framework.file_errors import checked_path
from asyncexec.framework.queue_policy import QueuePolicy


def _as_path(path: object) -> object:
    return checked_path(path, "where a record is written") if isinstance(path, (str, PathLike)) else path


RecordPath: TypeAlias = Annotated[Path, BeforeValidator(_as_path)]
RECORD_LIMIT: Final = 256 * 2**20


class SessionConfig(BaseModel):
    """Settings of a session; pydantic.ValidationError, a ValueError, if one is unknown or wrong.

    >>> config = ax.SessionConfig(max_concurrent_steps=100, timeout=2.0)
    >>> session = ax.Session(ax.Graph(), config)

    Attributes:
        device_count: the number of devices of each type.
        allow_soft_placement: run a node on another device if the device that it asks for does not exist.
        log_device_placement: log the device of each node.
        place_pruned_graph: place only the nodes that a run needs; other nodes may ask for devices that do not exist.
        optimization: the optimizer passes that run when a signature is optimized, after many compiled runs or before
            the first run: "on" for all, "L1" for those of each device's graph, "off" or "L0" for none.  Your own passes
            (``ax.graph_pass``) always run.
        executor_type: the type of the executors.  "DEFAULT", or ``""``: the general executor runs first and measures
            the kernels; then the cheap nodes are compiled to Python.  "TAGGED_TOKEN": the general executor alone.
            "COMPILED": compiled before the first run.  "BREADTH_FIRST": one node at a time.  Or a type of your own
            (``ax.executor_factory``).
        schedule_seed: draw the order of ready nodes from this seed, to show that results do not depend on it.
        timeout: the longest time in seconds of each run, and call of a callable, if its RunOptions have none.
        retries: how often a run, or call of a callable, is begun again after a worker was lost, if its RunOptions do
            not say.  Signatures with state are not begun again.
        num_worker_threads: the number of worker threads for each device, which only this session uses.  By default the
            session shares as many threads as cores with all sessions of the process that have no number of their own.
        blas_threads: how many threads BLAS takes for a product of matrices.  "auto": one, so that kernels which run
            side by side do not fight for the cores.  A long product that runs alone on a worker thread is shared with
            others, if cores are idle; a decomposition takes several threads of BLAS then.  BLAS has one number for the
            whole process, so it is set while kernels run.  "host": as many as the application has set, whatever runs.
        jit: what runs clusters of convolutions, products of matrices and the nodes around them.  "auto": ONNX Runtime,
            where it is installed (extra ``ort``), there is much to multiply, and it is measured to be quicker than our
            own kernels; where it is not installed, constant batch normalizations go into the filters of convolutions,
            and these become native code once they have had much to do (extra ``jit``).
            "onnxruntime": ONNX Runtime, from the first run on.  "off": our own kernels for the nodes as they are.
            Results differ in the last bits (docs/heavy_kernels.md).
        num_processes: the number of worker processes for ops with ``executor="process"``, by default one for each core.
        worker_grace_s: the grace period in seconds for calls on worker threads, after a failure of their step or when
            the session is closed.  After it the calls are left to their threads, with a warning, and calls in worker
            processes are killed.  None means no limit.
        cancel_grace_s: the same after a timeout, or after a cancellation by the caller.
        async_grace_s: the grace period in seconds for async kernels that clean up after their cancellation.
        slice_ms: the longest time in milliseconds that cheap kernels hold the event loop at a stretch.
        feed_fetch_medium: how feeds and fetches travel: in a call frame, or through the rendezvous of the step by
            ``_Recv`` and ``_Send`` nodes, as values between devices do.  Results are the same; a call frame is quicker.
        max_concurrent_steps: the largest number of calls under way; further calls wait in a queue, first come, first
            served (see QueuePolicy).  A call that a step makes itself is a part of that step, and does not wait.
        max_queued_steps: the largest number of waiting calls; further calls raise ResourceExhaustedError.
        drain_timeout_s: the time in seconds that ``close`` gives to running and waiting calls before it ends them; None
            means no limit.
        slow_inline_ms: warn (KernelWarning, once for each node) of kernels that hold the event loop longer; None for
            never.
        keep_freed_memory: let the process keep the memory of freed large arrays.  Without it, kernels on arrays of a
            megabyte take three times as long.  It holds for the whole process, until its end (docs/event_loop.md).
        memory_limit: the largest number of bytes that the arrays made by the kernels of one step may take together.  A
            kernel whose outputs would take more raises ResourceExhaustedError before it runs, if their size follows
            from its inputs, and afterwards if not.  Feeds, variables, arrays under 4 KiB and what a kernel takes while
            it runs are not counted.  It costs some microseconds a kernel.  With None a kernel that would make more than
            64 MiB of much smaller inputs raises the same error if the machine, or the process's control group, has not
            so much memory left.
        record_failures: a folder for the records of runs that fail or are cancelled, and of items of streams that fail:
            each has a file of its own, which ``asyncexec replay`` runs again.  Runs are executed by the general
            executor then, and what nodes give is kept until the run has ended.
        python_scalars: give 0-d results as Python ``bool``, ``int``, ``float``, ``complex`` and ``str`` (as bytes if
            they are not UTF-8), as JSON and databases take them; by default they are numpy scalars and bytes.
        node_statistics: count and time the calls of your own ops, async kernels and expensive kernels, for
            ``session.statistics().nodes``; costs some microseconds a call.
        debug: check that the results of every kernel have the dtypes and shapes that its op declares, and that no
            kernel changes an input that others may see; slow.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    device_count: dict[str, int] = Field(default_factory=lambda: {"CPU": 1})
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    place_pruned_graph: bool = False
    optimization: Literal["on", "off", "L0", "L1"] = "on"
    executor_type: str = ""
    schedule_seed: int | None = None
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    retries: int = Field(default=0, ge=0)
    num_worker_threads: int | None = Field(default=None, ge=1)
    blas_threads: Literal["auto", "host"] = "auto"
    jit: Literal["auto", "off", "onnxruntime"] = "auto"
    num_processes: int | None = Field(default=None, ge=1)
    worker_grace_s: float | None = Field(default=5.0, ge=0)
    cancel_grace_s: float | None = Field(default=0.025, ge=0)
    async_grace_s: float | None = Field(default=30.0, ge=0)
    slice_ms: float = Field(default=0.5, gt=0)
    feed_fetch_medium: Literal["call_frame", "rendezvous"] = "call_frame"
    max_concurrent_steps: int | None = Field(default=None, ge=1)
    max_queued_steps: int | None = Field(default=None, ge=0)
    drain_timeout_s: float | None = Field(default=0.0, ge=0)
    slow_inline_ms: float | None = Field(default=100.0, gt=0)
    keep_freed_memory: bool = True
    memory_limit: int | None = Field(default=None, ge=1)
    record_failures: RecordPath | None = None
    python_scalars: bool = False
    node_statistics: bool = False
    debug: bool = False

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_queued_steps is not None and self.max_concurrent_steps is None:
            raise ValueError("max_queued_steps needs max_concurrent_steps: without it nobody waits in a queue")
        return self


class RunOptions(BaseModel):
    """Settings of one run; pydantic.ValidationError, a ValueError, if one is unknown or wrong.

    >>> ax.RunOptions(timeout=0.5, trace=True).timeout
    0.5

    Attributes:
        timeout: the longest time of the run in seconds; past it the run raises DeadlineExceededError.
        retries: how often the run is begun again if it fails because a worker of its cluster was lost; for signatures
            without state (variables, queues, tables, session handles).  By default as SessionConfig says.
        queue: how the run waits for its turn: its priority, and how long it may wait.
        trace: fill ``metadata.step_stats``.
        python_scalars: overrides the setting of SessionConfig.
        run_id: the name of the run in the session's journal: a run of a name that was begun before goes on where it
            was, and one that has given its result gives it again.  Without a name, a run is kept when it pauses.
        record: write a record of the run to this file, however the run ends: ``asyncexec replay FILE`` and
            ``asyncexec.testing.replay`` run it again.  In a folder that is there, each run has a file of its own.
        record_limit: the largest number of bytes of feeds and results that a record holds; a run with more raises
            ResourceExhaustedError when it has ended.
        record_when: "failure" writes the records of runs that fail or are cancelled alone.
        output_partition_graphs: fill ``metadata.partition_graphs``.
        output_pass_graphs: put the graph after each pass into ``metadata.passes``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout: float | None = Field(default=None, gt=0)
    retries: int | None = Field(default=None, ge=0)
    queue: QueuePolicy | None = None
    trace: bool = False
    python_scalars: bool | None = None
    run_id: str | None = None
    record: RecordPath | None = None
    record_limit: int = Field(default=RECORD_LIMIT, ge=1)
    record_when: Literal["always", "failure"] = "always"
    output_partition_graphs: bool = False
    output_pass_graphs: bool = False
    _is_recorded: bool = PrivateAttr(False)  # it is the run inside of one that is recorded

    def inside_record(self) -> RunOptions:
        """These options for the run itself, which somebody records."""
        made = self.model_copy(update={"record": None, "trace": True})
        made._is_recorded = True
        return made

    @property
    def is_recorded(self) -> bool:
        """Whether somebody records the run."""
        return self._is_recorded
