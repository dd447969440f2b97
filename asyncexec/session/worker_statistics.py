"""WorkerStatistics: how a worker of a cluster is doing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """The state of a worker at one moment, as the process of the session knows it.

    All sessions of a cluster share one connection to each worker: what is sent and received is that of all.

    Attributes:
        name: such as ``/job:worker/replica:0/task:1``.
        is_connected: whether it can be reached now.
        times_lost: how often the connection to it was lost.
        running_steps: the number of steps under way that it takes part in.
        tensors_sent: the number of values that were sent to it.
        tensors_received: the number of values that came from it.
        bytes_sent: the bytes of the values that were sent.
        bytes_received: the bytes of the values that came.
        tensors_from_workers: the number of values that came to it from other workers, as of its last step.
        bytes_from_workers: the bytes of these values.
        queued_bytes: what waits to be sent to it.
        round_trip_ms: how long the last ping took, which is asked every few seconds: on the network, and until both
            event loops had a turn; None while it is not connected.
        shortest_round_trip_ms: how long the fastest of the last pings took, hardly more than the network takes; None
            while it is not connected.
    """

    name: str
    is_connected: bool
    times_lost: int
    running_steps: int
    tensors_sent: int
    tensors_received: int
    bytes_sent: int
    bytes_received: int
    tensors_from_workers: int
    bytes_from_workers: int
    queued_bytes: int
    round_trip_ms: float | None
    shortest_round_trip_ms: float | None
