"""A warning of a kernel where warnings are errors: the loop's exception handler has it, and nothing else with it."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from asyncexec.framework.kernel_warning import KernelWarning, warn_of_kernel


async def test_the_warning_holds_no_frames() -> None:
    """Else a handler that keeps it would keep the tensors of the step that was ending just then."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            raise ValueError("what the step has failed with")
        except ValueError:
            warn_of_kernel("slow")
    (context,) = told
    raised = context["exception"]
    assert isinstance(raised, KernelWarning)
    assert (context["message"], str(raised)) == ("slow", "slow")
    assert (raised.__context__, raised.__traceback__) == (None, None)
