"""Tasks that are made without asking their loop, which would do nothing else than to make them."""

from __future__ import annotations

import asyncio


def makes_plain_tasks(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``create_task`` of *loop* would make an ``asyncio.Task`` and do no more, for which it takes a while."""
    kind = type(loop)
    is_known = getattr(kind, "create_task", None) is asyncio.BaseEventLoop.create_task or kind.__module__ == "uvloop"
    return is_known and loop.get_task_factory() is None and not loop.get_debug()
