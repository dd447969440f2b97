"""How the calls of a user op are made: within a time, again when they fail, so many at once.

An attempt first waits in the queue of the limiter, then has its timeout, and gives the slot back when it ends; so
neither counts the line towards the timeout, nor does back-off hold a slot.  All of it happens in the node's own task.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from asyncexec.durable.journal_scope import begin_attempt
from asyncexec.framework.errors import CancelledError, DeadlineExceededError, InvalidArgumentError
from asyncexec.framework.kernel import do_nothing
from asyncexec.framework.limiter import Limiter, Slot
from asyncexec.framework.ownership import keep
from asyncexec.framework.retry import Retry, Retrying
from asyncexec.framework.step_stats import CallStats, begin_call
from asyncexec.frontend.create_op import TensorSource
from asyncexec.frontend.user_op_workers import WorkerCall
from asyncexec.graph.node import Tensor

AsyncCall: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

OPTION_NAMES: Final = ("timeout", "retries", "limiter", "fallback", "name")


class Fallback:
    """What stands for the result of a call that has failed: a value, or what a function makes of the exception."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        # It is given again and again, so arrays are kept: nobody can change them.
        self.value: Any = type(value)(map(keep, value)) if type(value) in (list, tuple) else keep(value)

    def result(self, error: Exception) -> Any:
        """The result; *error* is what the call raised."""
        result = self.value(error) if callable(self.value) else self.value
        # The frames of its traceback lead to those of the executor, which hold the values of the step.
        return error.with_traceback(None) if result is error else result


@dataclass(frozen=True, slots=True)
class OpOptions:
    """How the nodes of an op run; each can be set for the op and for one node."""

    timeout: float | None = None  # seconds an attempt may take
    retries: Retry | None = None  # None: the first attempt is the last
    limiter: Limiter | None = None
    fallback: Fallback | None = None
    name: str | None = None

    @property
    def has_policies(self) -> bool:
        return self.timeout is not None or self.retries is not None or self.limiter is not None

    def changed(self, op: str, given: Mapping[str, Any]) -> OpOptions:
        """These options with those in *given* instead.

        Raises:
            InvalidArgumentError: one is not what it should be.
        """
        changes = dict(given)
        try:
            if changes.get("timeout") is not None:
                changes["timeout"] = _seconds(changes["timeout"])
            if "retries" in changes:
                changes["retries"] = Retry.of(changes["retries"])
            if changes.get("limiter") is not None:
                changes["limiter"] = Limiter.get(changes["limiter"])
            if changes.get("fallback") is not None:
                changes["fallback"] = _fallback(changes["fallback"])
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"op {op!r}: {error.message}", hint=error.hint) from None
        return replace(self, **changes)

    def check(self, op: str, *, never_on_worker: bool) -> None:
        """Raise InvalidArgumentError where the function of the op cannot be run so."""
        if never_on_worker and self.timeout is not None:
            raise InvalidArgumentError(
                f"op {op!r} has a timeout, but a plain function that runs in the event loop cannot be ended",
                hint="leave out expensive=False, or define it with 'async def'",
            )

    def attrs(self) -> dict[str, Any]:
        """What a GraphDef shows of them."""
        shown = {
            "_timeout_s": self.timeout,
            "_retries": None if self.retries is None else self.retries.attempts - 1,
            "_limiter": None if self.limiter is None else (self.limiter.name or str(self.limiter.total)).encode(),
            "_has_fallback": True if self.fallback else None,
        }
        return {name: value for name, value in shown.items() if value is not None}


def _seconds(timeout: Any) -> float:
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout < math.inf:
        raise InvalidArgumentError(f"a timeout is a number of seconds, more than 0, not {timeout!r}")
    return float(timeout)


def _fallback(value: object) -> Fallback:
    if isinstance(value, (Tensor, TensorSource)):
        raise InvalidArgumentError(
            f"a fallback is a value, or a function of the error, not {value!r}",
            hint="what is computed in the graph instead: ax.catch(lambda: op(x), lambda error: y)",
        )
    return Fallback(value)


def with_policies(call: AsyncCall, options: OpOptions, *, is_plain: bool = False) -> AsyncCall:
    """*call*, made as *options* say; what a fallback gives is not awaited where *is_plain*."""
    return _Policies(call, options, is_plain=is_plain).run if options.has_policies or options.fallback else call


def plain_with_policies(call: Callable[..., Any], options: OpOptions) -> AsyncCall:
    """The plain function *call*, made in the event loop as *options* say."""
    return _Policies(in_loop(call), options, is_plain=True).run


def with_fallback(call: Callable[..., Any], fallback: Fallback | None) -> Callable[..., Any]:
    """The plain function *call*, and what stands for its result where it fails."""
    if fallback is None:
        return call

    def run(*inputs: object) -> Any:
        try:
            return call(*inputs)
        except CancelledError:
            raise
        except Exception as error:
            return fallback.result(error)

    return run


def on_workers(call: Callable[..., Any], options: OpOptions, workers: WorkerCall) -> AsyncCall:
    """The plain function *call*, made on *workers* as *options* say."""
    return _WorkerPolicies(call, options, workers).run


def in_loop(call: Callable[..., Any]) -> AsyncCall:
    """The plain function *call* as a coroutine function that never awaits."""

    async def run(*inputs: object) -> Any:
        return call(*inputs)

    return run


class _Policies:
    """The calls of one kernel."""

    __slots__ = ("_awaits_fallback", "_call", "_fallback", "_limiter", "_retrying", "_timeout_s")

    def __init__(self, call: Callable[..., Any], options: OpOptions, *, is_plain: bool = False) -> None:
        self._call = call
        self._awaits_fallback = not is_plain
        self._timeout_s = options.timeout
        self._limiter = options.limiter
        self._fallback = options.fallback
        self._retrying = None if options.retries is None else Retrying(options.retries)

    def run(self, *inputs: object) -> Coroutine[Any, Any, Any]:
        return self._tried(inputs) if self._fallback is None else self._or_fallback(self._fallback, inputs)

    async def _or_fallback(self, fallback: Fallback, inputs: Sequence[object]) -> Any:
        try:
            return await self._tried(inputs)
        except CancelledError:
            raise
        except Exception as error:
            result = fallback.result(error)
        return await result if self._awaits_fallback and inspect.iscoroutine(result) else result

    async def _tried(self, inputs: Sequence[object]) -> Any:
        """The result of the last attempt."""
        stats = begin_call()
        if self._retrying is None:
            return await self._attempt(inputs, stats)
        return await self._retrying(partial(self._attempt, inputs, stats))

    async def _attempt(self, inputs: Sequence[object], stats: CallStats) -> Any:
        slot = await self._slot(stats)
        try:
            if self._timeout_s is None:
                return await self._call(*inputs)
            try:
                async with asyncio.timeout(self._timeout_s) as scope:
                    return await self._call(*inputs)
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise DeadlineExceededError(f"the op took more than its timeout of {self._timeout_s:g} s") from error
        finally:
            if slot is not None:
                slot.release()

    async def _slot(self, stats: CallStats) -> Slot | None:
        """Wait for a slot of the limiter, if there is one; an attempt begins."""
        slot = None
        if self._retrying is not None:
            begin_attempt()
        if self._limiter is not None:
            slot = self._limiter.free_slot()
            if slot is None:
                loop = asyncio.get_running_loop()
                begin = loop.time()
                slot = await self._limiter.slot()
                stats.limiter_wait_s += loop.time() - begin
        stats.attempts += 1
        return slot


class _WorkerPolicies(_Policies):
    """The calls of one kernel, on worker threads."""

    __slots__ = ("_workers",)

    def __init__(self, call: Callable[..., Any], options: OpOptions, workers: WorkerCall) -> None:
        super().__init__(call, options, is_plain=True)
        self._workers = workers

    async def _attempt(self, inputs: Sequence[object], stats: CallStats) -> Any:
        slot = await self._slot(stats)
        if slot is None:
            return await self._workers(self._call, inputs, timeout_s=self._timeout_s, on_return=do_nothing)
        try:
            return await self._workers(self._call, inputs, timeout_s=self._timeout_s, on_return=slot.release)
        finally:
            slot.leave()
