"""Runs of signatures that have been compiled to one plain function: no task, no step, no suspension."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from asyncexec.executor.diagnostics.step_counts import StepCounts
from asyncexec.framework.errors import OpError
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.session_config import RunOptions


class NotCalledError(Exception):
    """The plan is none that can be called: nothing has run."""


def call_plan(
    prepared: ExecutorsAndKeys, values: Collection[Any], counts: StepCounts, options: RunOptions | None = None
) -> Any:
    """What the signature gives for the *values* of its feeds.

    Raises:
        LargeFeedError: a value takes long to convert; nothing has run.
        NotCalledError: the step is to be started; nothing has run.
        OpError: what the step failed with.
    """
    plan = prepared.tier.plain
    if plan is None:
        raise NotCalledError
    feeds = prepared.convert(values)
    try:
        fetched = plan.call(feeds)
    except OpError as error:
        counts.failed += 1
        raise explained(error, prepared) from error.__cause__
    except BaseException:
        counts.failed += 1
        raise
    if fetched is None:
        prepared.tier.plain = None
        raise NotCalledError
    counts.completed += 1
    prepared.tier.note_compiled_run(plan)
    return prepared.result(fetched, options)
