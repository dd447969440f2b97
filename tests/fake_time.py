"""Time that a test owns, for sessions and pools that are to measure by it."""

from __future__ import annotations

from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S

# A slice of it is never over in a step, and what is built in slices of 1 ms gives way to others wherever it can.
_BUILD_STEP_NS: Final = 10_000_000
_NO_SLICES_MS: Final = 1e12


class FakeTime:
    """Goes on by *step_ns* whenever it is read, and whenever a test says so; ``clock`` tells it."""

    def __init__(self, step_ns: int = 0) -> None:
        self.now_ns = NS_PER_S
        self.step_ns = step_ns
        self.clock = ax.Clock(now_ns=self._read)

    def _read(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


def in_single_steps(config: ax.SessionConfig | None = None) -> dict[str, Any]:
    """Arguments of a session in which whatever is built in slices of time gives way to others at each yield."""
    settings = (config or ax.SessionConfig()).model_copy(update={"slice_ms": _NO_SLICES_MS})
    return {"config": settings, "clock": FakeTime(_BUILD_STEP_NS).clock}
