"""What a model has done, as Triton's statistics extension and the metrics tell it."""

from __future__ import annotations

from bisect import bisect_left
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from asyncexec.framework.clock import CLOCK, NS_PER_MS
from asyncexec.framework.errors import DeadlineExceededError, ResourceExhaustedError, UnavailableError

FailureReason: TypeAlias = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]

REASONS: Final[tuple[FailureReason, ...]] = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
# Upper bounds of the histograms of time, in milliseconds.
BOUNDS_MS: Final = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
_BOUNDS_NS: Final = tuple(round(bound * NS_PER_MS) for bound in BOUNDS_MS)
_MOST_SIZES: Final = 256  # numbers of rows that are told apart
KNOWN: Final = -1  # instead of the rows of a run
_QUEUES: Final = (UnavailableError, ResourceExhaustedError, DeadlineExceededError)
_BATCH: Final = "BatchFunction"


@dataclass(slots=True)
class Duration:
    """How often something was done, and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


class CallTimes(NamedTuple):
    """When a call that succeeded was at which point, by the clock.

    Attributes:
        begin_ns: it came.
        ready_ns: its inputs were checked; from then on it waited for its turn, or for its batch.
        begun_ns, ran_ns: the run began and ended.
        end_ns: its outputs were there.
        run_rows: the rows of the run; KNOWN where none was needed.
    """

    begin_ns: int
    ready_ns: int
    begun_ns: int
    ran_ns: int
    end_ns: int
    run_rows: int


@dataclass(slots=True)
class RunsOfSize:
    """The runs that had one number of rows.

    Attributes:
        count: how many there were.
        input_ns, infer_ns, output_ns: how long it took in all: to check what their calls sent; to run; to make what
            their calls got.
    """

    count: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0


@dataclass(slots=True)
class ModelStatistics:
    """Counts of one version of a model, since it was loaded; its warm-up is none of them.

    Attributes:
        inference_count: the rows of the calls that succeeded, but for those whose answer was known: a call of four rows
            counts four.
        execution_count: the runs that succeeded: one for each call, or for each batch.
        success, fail, cancel: calls by how they ended; *fail* without those that were cancelled.
        queue_ns, input_ns, infer_ns, output_ns: of the calls that succeeded: waiting for their turn or their batch;
            checking what was sent; the runs that they were a part of; making what is sent.  A call whose answer was
            known has waited at most.
        cache_hit, cache_miss: of the calls that looked for their answer in the cache: looking for it.
        failures: calls that failed or were cancelled, by Triton's reasons: REJECTED, as the queue was full or the
            deadline passed; CANCELED, as the client left; BACKEND, the graph failed; OTHER, such as wrong inputs.
        sizes: runs by their number of rows.
        durations, waits: how many calls that succeeded took, and waited, how long: a count for each of BOUNDS_MS and
            one for those beyond.
    """

    inference_count: int = 0
    execution_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)
    failures: dict[FailureReason, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    sizes: dict[int, RunsOfSize] = field(default_factory=dict)
    durations: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    waits: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    _num_run: int = 0  # calls that were a part of a run
    _last_end_ns: int = 0

    def note_run(self, rows: int, ns: int) -> None:
        """A run of *rows* rows succeeded, after *ns* nanoseconds."""
        self.execution_count += 1
        size = self._size(rows)
        size.count += 1
        size.infer_ns += ns

    def note_success(
        self, rows: int, times: tuple[int, int, int, int, int, int], spent: tuple[int, int, int] | None = None
    ) -> None:
        """A call of *rows* rows succeeded; *times* are CallTimes.

        *spent* is how long it took to check what was sent, to run, and to make what is sent, where *times* do not tell.
        """
        begin_ns, ready_ns, begun_ns, ran_ns, end_ns, run_rows = times
        wait_ns, took_ns = begun_ns - ready_ns, end_ns - begin_ns
        success = self.success
        success.count += 1
        success.ns += took_ns
        self.queue_ns += wait_ns
        self.durations[bisect_left(_BOUNDS_NS, took_ns)] += 1
        self.waits[bisect_left(_BOUNDS_NS, wait_ns) if wait_ns else 0] += 1
        if run_rows == KNOWN:
            return
        input_ns, infer_ns, output_ns = spent or (ready_ns - begin_ns, ran_ns - begun_ns, end_ns - ran_ns)
        ensemble = current_ensemble.get()
        if ensemble is not None:
            ensemble.add(input_ns, infer_ns, output_ns)
        self._last_end_ns = end_ns
        self.inference_count += rows
        self._num_run += 1
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns
        size = self._size(run_rows)
        size.input_ns += input_ns
        size.output_ns += output_ns

    def note_failure(self, ns: int, error: BaseException, *, has_begun: bool) -> None:
        """A call failed after *ns* nanoseconds; *has_begun* if its inputs were found to be right."""
        self.fail.add(ns)
        self.failures[_reason(error) if has_begun else "OTHER"] += 1

    def note_cancelled(self, ns: int) -> None:
        """The caller went away after *ns* nanoseconds."""
        self.cancel.add(ns)
        self.failures["CANCELED"] += 1

    @property
    def last_inference_ms(self) -> int:
        """When the last call ended that was a part of a run, in milliseconds since 1970; 0 if none has."""
        return (self._last_end_ns + CLOCK.epoch_offset_ns()) // NS_PER_MS if self._last_end_ns else 0

    def inference_stats(self) -> dict[str, Duration]:
        """The durations of calls, by Triton's names."""
        count = self._num_run
        return {
            "success": self.success,
            "fail": Duration(self.fail.count + self.cancel.count, self.fail.ns + self.cancel.ns),
            "queue": Duration(self.success.count, self.queue_ns),
            "compute_input": Duration(count, self.input_ns),
            "compute_infer": Duration(count, self.infer_ns),
            "compute_output": Duration(count, self.output_ns),
            "cache_hit": self.cache_hit,
            "cache_miss": self.cache_miss,
        }

    def batch_stats(self) -> dict[int, dict[str, Duration]]:
        """The durations of runs by their number of rows, ascending, by Triton's names."""
        return {
            rows: {
                "compute_input": Duration(size.count, size.input_ns),
                "compute_infer": Duration(size.count, size.infer_ns),
                "compute_output": Duration(size.count, size.output_ns),
            }
            for rows, size in sorted(self.sizes.items())
        }

    def _size(self, rows: int) -> RunsOfSize:
        found = self.sizes.get(rows)
        if found is None:
            if len(self.sizes) >= _MOST_SIZES:  # clients choose the numbers of rows
                rows = 1 << rows.bit_length()
            found = self.sizes.setdefault(rows, RunsOfSize())
        return found


class TimeSpent:
    """How long the models of an ensemble took for one of its calls, all together."""

    __slots__ = ("infer_ns", "input_ns", "output_ns")

    def __init__(self) -> None:
        self.input_ns = self.infer_ns = self.output_ns = 0

    def add(self, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """A call of one of them succeeded."""
        self.input_ns += input_ns
        self.infer_ns += infer_ns
        self.output_ns += output_ns


# What the calls are a part of that are under way in this context.
current_ensemble: Final[ContextVar[TimeSpent | None]] = ContextVar("asyncexec_current_ensemble", default=None)


def is_rejection(error: BaseException) -> bool:
    """Whether a call failed as the queue was full or its time was over; an error of a node is of the graph."""
    return isinstance(error, _QUEUES) and (error.node is None or error.op == _BATCH)


def _reason(error: BaseException) -> FailureReason:
    """Why a call failed whose inputs were right."""
    if is_rejection(error):
        return "REJECTED"
    return "BACKEND" if isinstance(error, Exception) else "OTHER"
