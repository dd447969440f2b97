"""Kernels whose calls are spans: those of users' functions, async ones, and those that are marked expensive.

They are wrapped when they are bound, and only where a session has hooks.  So every executor observes them, compiled
plans too, and without hooks nothing is in the way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.framework.cancellation import call_around
from asyncexec.framework.kernel import Change, Kernel, KernelKind
from asyncexec.framework.spans import Attribute, Span, Spans, running_span
from asyncexec.framework.step_stats import ended_call
from asyncexec.graph.node import Node


class Observer:
    """Begins and ends the spans of the calls of *node*'s kernel, which runs on *device*."""

    __slots__ = ("_device", "_name", "_op", "_spans")

    def __init__(self, node: Node, device: str, spans: Spans) -> None:
        self._name, self._op = node.name, node.op
        self._device = device
        self._spans = spans

    def span(self) -> Span:
        """A call, which has not begun."""
        attributes: dict[str, Attribute] = {"op": self._op, "device": self._device}
        return Span(self._spans, "node", self._name, 0, running_span(), (), attributes)

    def sync(self, kernel: Kernel) -> Kernel:
        """*kernel*, a plain function."""

        def call(*inputs: object) -> Any:
            with self.span() as span:
                around = call_around.get()
                if around is not None and around.submitted_ns:  # on a worker thread
                    span.add_wait(max(0, span.begin_ns - around.submitted_ns) / 1e9)
                return kernel(*inputs)

        call.is_watched = True  # type: ignore[attr-defined]
        return call

    def awaited(self, start: Kernel) -> Kernel:
        """*start*, a coroutine function."""

        async def call(*inputs: object) -> Any:
            with self.span() as span:
                try:
                    return await start(*inputs)
                finally:
                    if (counts := ended_call()) is not None:
                        span.attributes["attempts"] = counts.attempts
                        span.add_wait(counts.limiter_wait_s)
                        if counts.cached:
                            span.attributes["cache"] = counts.cached

        return call

    def changing(self, start: Kernel) -> Kernel:
        """*start*, which gives Changes."""

        def call(*inputs: object) -> _ObservedChange:
            return _ObservedChange(start(*inputs), self)

        return call


class _ObservedChange:
    """A Change, whose making is a span."""

    __slots__ = ("_change", "_observer")

    def __init__(self, change: Change, observer: Observer) -> None:
        self._change = change
        self._observer = observer

    @property
    def takes(self) -> bool:
        return self._change.takes

    def __await__(self) -> Generator[object, None, object]:
        with self._observer.span():
            return (yield from self._change.__await__())

    def close(self) -> None:
        self._change.close()

    def can_undo(self) -> bool:
        return self._change.can_undo()

    def undo(self) -> None:
        self._change.undo()

    def show_undone(self) -> None:
        self._change.show_undone()


def is_observed(node: Node, kind: KernelKind, is_expensive: bool | None) -> bool:
    """Whether calls of the kernel of *node* are told of."""
    return kind is not KernelKind.CHEAP or bool(is_expensive) or is_user_function(node)
