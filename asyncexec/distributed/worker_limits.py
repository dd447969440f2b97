"""WorkerLimits: how much clients may make a worker hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from asyncexec.framework.errors import InvalidArgumentError

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """How much clients may make a worker hold.  A client that wants more gets ResourceExhaustedError.

    ``WorkerLimits(...)`` raises InvalidArgumentError for numbers below 1.

    >>> ax.cluster.WorkerLimits(max_sessions=10).max_graphs
    10000

    Attributes:
        max_sessions: sessions on a worker; graphs and steps below are those of one session.
        max_graphs: graphs that are registered.
        max_steps: steps that have begun and are not forgotten; also those that have values and have not begun.
        max_early_bytes: how many bytes such values may have.
        max_queued_bytes: how many bytes may wait for a client, or another worker, that reads too slowly, before more is
            sent.  Then its connection is ended.
    """

    max_sessions: int = 1000
    max_graphs: int = 10_000
    max_steps: int = 100_000
    max_early_bytes: int = _GIB
    max_queued_bytes: int = 4 * _GIB

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if type(limit) is not int or limit < 1:
                raise InvalidArgumentError(f"{name} must be a number from 1 on, not {limit!r}")
