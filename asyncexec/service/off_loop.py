"""Work on large messages, outside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import anyio.to_thread

T = TypeVar("T")
Args = TypeVarTuple("Args")

_LARGE_BYTES: Final = 64 * 2**10  # handling more takes long enough for other calls to notice


async def off_loop(num_bytes: int, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
    """What *work* returns for *args*; a worker thread runs it where *num_bytes* make it long."""
    return work(*args) if num_bytes <= _LARGE_BYTES else await anyio.to_thread.run_sync(work, *args)
