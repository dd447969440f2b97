"""CancellationManager: tells whoever asks, on whatever thread, that work is to stop, and calls back who registered.

After ``tensorflow/core/framework/cancellation.h`` and ``cancellation.cc``: a callback is called at most once, outside
of the lock, by the thread that cancels; registering after that is refused, and the caller then cancels for itself.
Cancelling a manager cancels its children, never its parent.

A kernel on a worker thread, which nothing can interrupt, has that of its call by ``cancellation_manager()``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

from asyncexec.framework.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.weak_group import WeakGroup

CancellationToken: TypeAlias = int
CancelCallback: TypeAlias = Callable[[], object]


class CancellationManager:
    """Something that can be cancelled, once.  Every method may be called from any thread.

    A child of a *parent* is cancelled with it.  The parent does not keep its children alive.  No method raises an
    OpError.  ``start_cancel`` raises the first exception of a callback.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_cancelling_thread",
        "_children",
        "_ended",
        "_is_cancelled",
        "_lock",
        "_next_token",
    )

    def __init__(self, parent: CancellationManager | None = None) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[CancellationToken, CancelCallback] = {}
        self._children: WeakGroup[CancellationManager] | None = None  # until there is one
        self._next_token: CancellationToken = 0
        self._cancelling_thread: int | None = None
        self._ended: threading.Event | None = None  # once a cancel has begun; set behind its last callback
        self._is_cancelled = False
        if parent is not None and not parent._register_child(self):
            self.start_cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether ``start_cancel`` has called every callback; a kernel may ask in a loop, it takes no lock."""
        return self._is_cancelled

    @property
    def is_cancelling(self) -> bool:
        """Whether ``start_cancel`` is calling the callbacks just now."""
        return self._cancelling_thread is not None and not self._is_cancelled

    def get_cancellation_token(self) -> CancellationToken:
        """A new token, for one callback."""
        with self._lock:
            token = self._next_token
            self._next_token += 1
            return token

    def register_callback(self, token: CancellationToken, callback: CancelCallback) -> bool:
        """Call *callback* on cancel; False if the cancel has begun, and then it is never called.

        Raises:
            InvalidArgumentError: *token* is not of this manager.
        """
        with self._lock:
            if not 0 <= token < self._next_token:
                raise InvalidArgumentError(f"cancellation token {token} was not given out by this manager")
            if self._has_begun:
                return False
            self._callbacks[token] = callback
            return True

    def add_callback(self, callback: CancelCallback) -> CancellationToken | None:
        """Call *callback* on cancel: its token; None if the cancel has begun, and then it is never called."""
        with self._lock:
            if self._has_begun:
                return None
            token = self._next_token
            self._next_token += 1
            self._callbacks[token] = callback
            return token

    def deregister_callback(self, token: CancellationToken) -> bool:
        """Remove the callback of *token*; False if the cancel has begun.  All callbacks have returned then.

        It waits for them if another thread is calling them, so in an event loop call ``try_deregister_callback``.
        """
        is_gone = self.try_deregister_callback(token)
        if not is_gone and self._cancelling_thread != threading.get_ident():
            assert self._ended is not None  # the cancel has begun
            self._ended.wait()
        return is_gone

    def try_deregister_callback(self, token: CancellationToken) -> bool:
        """Remove the callback of *token*; False if the cancel has begun.  The callback may still run then."""
        with self._lock:
            if self._has_begun:
                return False
            self._callbacks.pop(token, None)
            return True

    def start_cancel(self) -> None:
        """Call every callback, then cancel the children; after the first time it does nothing.

        Raises the first exception of a callback, after all callbacks have been called.
        """
        with self._lock:
            if self._has_begun:
                return
            ended = self._ended = threading.Event()
            self._cancelling_thread = threading.get_ident()
            callbacks, self._callbacks = self._callbacks, {}
            children = [] if self._children is None else self._children.list()
        errors: list[BaseException] = []
        for callback in [*callbacks.values(), *(child.start_cancel for child in children)]:
            try:
                callback()
            except BaseException as error:
                errors.append(error)
        self._is_cancelled = True
        ended.set()
        if errors:
            raise errors[0]

    @property
    def _has_begun(self) -> bool:
        return self._cancelling_thread is not None

    def _register_child(self, child: CancellationManager) -> bool:
        with self._lock:
            if self._has_begun:
                return False
            if self._children is None:
                self._children = WeakGroup()
            self._children.add(child)
            return True


class CancellableCall:
    """A call on a worker thread, whose manager is made by who is first to need it: the kernel, or who gives it up."""

    __slots__ = ("_managers", "around", "submitted_ns")

    def __init__(self, around: CancellableCall | None = None) -> None:
        self.submitted_ns: int = 0  # when it was handed to the worker threads, by the clock of their pool
        self.around: CancellableCall | None = around  # the call that this one is made in, and that may wait for it
        self._managers: dict[None, CancellationManager] = {}  # at most one: of threads that both add it, one does

    def manager(self) -> CancellationManager:
        """That of the call, for any thread."""
        return self._managers.get(None) or self._managers.setdefault(None, CancellationManager())

    def give_up(self) -> None:
        """Tell the call that nobody wants its result; what its callbacks raise is raised here."""
        self.manager().start_cancel()


# What the running code was called by, on a thread; or what has called for it in the loop, and may wait for it.
call_around: Final[ContextVar[CancellableCall | None]] = ContextVar("asyncexec_call_around", default=None)


def cancellation_manager() -> CancellationManager:
    """The cancellation manager of the running call on a worker thread; cancelled when the result is no longer wanted.

    The function reads ``is_cancelled`` from time to time, or registers a callback that wakes it.  The thread of the
    event loop calls the callback, so the callback must not wait.  An async function gets asyncio's CancelledError
    instead.

    Raises:
        FailedPreconditionError: the caller does not run on a worker thread of a session.
    """
    call = call_around.get()
    if call is None:
        raise FailedPreconditionError(
            "only a call on a worker thread has a cancellation manager",
            hint="@ax.op(expensive=True) has a plain function called there; an async one gets asyncio.CancelledError",
        )
    return call.manager()


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running code is called on a worker thread, and its result is no longer wanted.

    A kernel whose loop may take very long calls it in each round; it takes a tenth of a microsecond.
    """
    call = call_around.get()
    if call is not None and call.manager().is_cancelled:
        raise CancelledError("the result is no longer wanted")
