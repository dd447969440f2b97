"""Mutexes between steps: MutexV2, MutexLock and ConsumeMutexLock (``tensorflow/core/kernels/mutex_ops.cc``).

A mutex is held as long as there is the value that MutexLock gives, at most until ConsumeMutexLock takes it.
"""

from __future__ import annotations

import asyncio

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.shape_inference import no_outputs, scalars
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER

register_op(
    "MutexV2",
    "-> resource: resource",
    "container: string = ''; shared_name: string = ''",
    is_stateful=True,
    shape=scalars,
)
register_op("MutexLock", "mutex: resource -> mutex_lock: variant", is_stateful=True, shape=scalars)
register_op("ConsumeMutexLock", "mutex_lock: variant ->", is_stateful=True, shape=no_outputs)


class Mutex(ProcessBound):
    """Lets one step in at a time, in the order in which they came; all of it happens in one event loop."""

    def __init__(self) -> None:
        self.wait_queue: WaitQueue = WaitQueue(1, knows_waiters=False)

    async def lock(self) -> MutexLock:
        """Wait for those before, and hold it."""
        await self.wait_queue.acquire()
        return MutexLock(self.wait_queue, asyncio.get_running_loop())


class MutexLock(ProcessBound):
    """The mutex is held until ``release``, or until nobody has this any more."""

    __slots__ = ("_loop", "_mutex")

    def __init__(self, mutex: WaitQueue, loop: asyncio.AbstractEventLoop) -> None:
        self._mutex: WaitQueue | None = mutex
        self._loop = loop

    def release(self) -> bool:
        """Let the mutex go; whether it was held."""
        mutex, self._mutex = self._mutex, None
        if mutex is None:
            return False
        if self._loop.is_closed():
            mutex.release()
        else:
            self._loop.call_soon_threadsafe(mutex.release)  # the last holder may be a worker thread
        return True

    def __del__(self) -> None:
        self.release()


@register_kernel("MutexV2")
def _mutex(construction: OpKernelConstruction) -> Kernel:
    shared = construction.attr("shared_name").decode("utf-8", "replace")
    mutex = construction.resource_mgr.lookup_or_create(
        Mutex,
        construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER,
        shared or construction.name,
        Mutex,
        is_shared=bool(shared),
    )
    return lambda: mutex


@register_kernel("MutexLock", kind=KernelKind.ASYNC)
def _lock(construction: OpKernelConstruction) -> Kernel:
    async def lock(handle: object) -> MutexLock:
        return await require_kind(handle, Mutex).lock()

    return lock


@register_kernel("ConsumeMutexLock")
def _consume(construction: OpKernelConstruction) -> Kernel:
    def consume(lock: object) -> tuple[()]:
        if not isinstance(lock, MutexLock):
            raise InvalidArgumentError(f"Expected input to be a mutex lock, but it is a {type(lock).__name__}")
        if not lock.release():
            raise InvalidArgumentError("the mutex lock has been consumed already")
        return ()

    return consume
