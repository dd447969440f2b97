"""StepCounts: how many steps of a session have ended, and how."""

from __future__ import annotations


class StepCounts:
    """Each item of a stream counts as a step.

    Attributes:
        completed: those that ran to their end.
        failed: those that ended by an error or were cancelled.
    """

    __slots__ = ("completed", "failed")

    def __init__(self) -> None:
        self.completed: int = 0
        self.failed: int = 0
