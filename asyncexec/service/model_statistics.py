"""What a model has done, as Triton's statistics extension tells it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Duration:
    """How often something was done, and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class ModelStatistics:
    """Counts of one version of a model.

    Attributes:
        last_inference_ms: when the last call ended, in milliseconds since 1970; 0 if none has.
        inference_count: the rows of the calls that succeeded: a call of four rows counts four.
        success, fail, cancel: calls by how they ended.
        compute_input, compute_infer, compute_output: of the calls that succeeded: checking and reading what was sent;
            the run, with the time in queues; making what is sent.
        cache_hit, cache_miss: of the calls that looked for their answer in the cache: looking for it.
    """

    last_inference_ms: int = 0
    inference_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    cache_hit: Duration = field(default_factory=Duration)
    cache_miss: Duration = field(default_factory=Duration)

    def note_success(self, rows: int, begin_ns: int, ready_ns: int, done_ns: int, end_ns: int) -> None:
        """A call of *rows* rows: it began, could run, had run and ended then."""
        self.last_inference_ms = time.time_ns() // 1_000_000
        self.inference_count += rows
        self.success.add(end_ns - begin_ns)
        self.compute_input.add(ready_ns - begin_ns)
        self.compute_infer.add(done_ns - ready_ns)
        self.compute_output.add(end_ns - done_ns)

    def note_failure(self, ns: int) -> None:
        """A call failed after *ns* nanoseconds."""
        self.fail.add(ns)

    def note_cancelled(self, ns: int) -> None:
        """The caller went away after *ns* nanoseconds."""
        self.cancel.add(ns)
