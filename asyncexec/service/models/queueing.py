"""How the requests of a model wait: the queue policies of its config, and answers in the order of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError
from asyncexec.framework.queue_policy import QueuePolicy
from asyncexec.service.models.statistics import is_rejection
from asyncexec.service.requests import US_PER_S, InferRequest
from asyncexec.session.session_config import RunOptions

T = TypeVar("T")


class RequestQueues:
    """How requests wait, by the ``dynamic_batching`` of a model's config.

    Its priority levels are those of QueuePolicy: 1 has its turn first.
    """

    def __init__(self, batching: Any) -> None:
        self._most: int = batching.priority_levels
        self._default: int = batching.default_priority_level if self._most else 0
        self._by_default = batching.default_queue_policy
        self._policies = dict(batching.priority_queue_policy)
        self._levels: dict[int, _Level] = {}  # those that requests have asked for

    def options(self, request: InferRequest) -> RunOptions | None:
        """How *request* waits, and how long it may take; None for as long as it likes, first come, first served."""
        level = self._default
        if self._most:
            level = _priority(request) or self._default
            level = level if level <= self._most else self._default
        found = self._levels.get(level)
        if found is None:
            found = self._levels[level] = _Level(level, self._policies.get(level, self._by_default))
        asked = request.timeout_s
        if asked is None or not found.allows_override:
            return found.options
        return RunOptions(timeout=asked, queue=found.policy)


class _Level:
    """A priority level: its policy, and the options of a run that has no timeout of its own."""

    def __init__(self, priority: int, config: Any) -> None:
        timeout = config.default_timeout_microseconds / US_PER_S or None
        self.allows_override: bool = config.allow_timeout_override or timeout is None
        action = "delay" if config.timeout_action else "reject"
        policy = QueuePolicy.model_validate(
            {
                "priority": priority,
                "max_queued": config.max_queue_size or None,
                "timeout": timeout,
                "timeout_action": action,
            }
        )
        is_plain = policy == QueuePolicy()
        self.policy: QueuePolicy | None = None if is_plain else policy
        self.options: RunOptions | None = None if is_plain else RunOptions(queue=policy)


def _priority(request: InferRequest) -> int:
    priority = request.parameters.get("priority", 0)
    if type(priority) is not int or not 0 <= priority < 2**64:
        raise InvalidArgumentError(f"parameter 'priority' is an integer from 0, not {priority!r}")
    return priority


class AnswersInOrder:
    """Lets requests be answered in the order in which they came, whenever they have run, also those that failed.

    One that has not run, as the queue refused it or its time was over, is answered at once.
    """

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    async def run(self, work: Awaitable[T], timeout_s: float | None = None) -> T:
        """What *work* gives, when all that came before have ended.

        Raises:
            DeadlineExceededError: they have not within *timeout_s*, which *work* has for itself, too.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        before, mine = self._last, loop.create_future()
        self._last = mine
        try:
            try:
                result = await work
            except Exception as error:
                if before is not None and not is_rejection(error):
                    await _wait_for(before, deadline)
                raise
            if before is not None:
                await _wait_for(before, deadline)
            return result
        finally:
            if before is None or before.done():
                _end(mine)
            else:
                before.add_done_callback(lambda _: _end(mine))
            if self._last is mine and mine.done():
                self._last = None


async def _wait_for(before: asyncio.Future[None], deadline: float | None) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(before)
    except TimeoutError:
        told = "the call took more than its timeout: it has run, and a call before it has not ended"
        raise DeadlineExceededError(told) from None


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def check_batching(name: str, batching: Any) -> None:
    """Raise InvalidArgumentError where the priorities and policies of model *name* do not fit together."""
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        raise InvalidArgumentError(f"default priority level must be in range [1, {levels}] for {name}")
    for level in batching.priority_queue_policy:
        if levels and not 1 <= level <= levels:
            raise InvalidArgumentError(
                f"priority queue policy must have priority level in range [1, {levels}] for {name}"
            )
    if not batching.preserve_ordering:
        return
    if levels > 1:
        raise InvalidArgumentError(f"Only one priority level is allowed when 'preserve_ordering' is true for {name}")
    if any(policy.timeout_action for _, policy in policies_of(batching)):
        raise InvalidArgumentError(
            f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}"
        )


def policies_of(batching: Any) -> Iterator[tuple[str, Any]]:
    """The queue policies of *batching* that have an effect, by their fields."""
    yield "default_queue_policy", batching.default_queue_policy
    if not batching.priority_levels:
        return
    for level, policy in batching.priority_queue_policy.items():
        yield f"priority_queue_policy[{level}]", policy
