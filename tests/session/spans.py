"""A hook that keeps what it is told of, for tests."""

from __future__ import annotations

import threading

import asyncexec as ax


class Recorder(ax.Hook):
    """Attributes: begun, ended: spans in the order in which they began and ended; errors: by span, its class's name."""

    def __init__(self) -> None:
        self.begun: list[ax.Span] = []
        self.ended: list[ax.Span] = []
        self.errors: dict[ax.Span, str] = {}
        self.threads: dict[ax.Span, int] = {}

    def begin(self, span: ax.Span) -> None:
        self.begun.append(span)
        self.threads[span] = threading.get_ident()

    def end(self, span: ax.Span, error: BaseException | None) -> None:
        self.ended.append(span)
        if error is not None:
            self.errors[span] = type(error).__name__

    def of(self, kind: str, name: str | None = None) -> list[ax.Span]:
        """Those of a kind, and name, in the order in which they began."""
        return [span for span in self.begun if span.kind == kind and name in (None, span.name)]

    def only(self, kind: str, name: str | None = None) -> ax.Span:
        (span,) = self.of(kind, name)
        return span

    def paths(self) -> list[str]:
        """Each span, with those around it, as text."""
        return [_path(span) for span in self.begun]

    def check_balanced(self) -> None:
        """Whatever has begun has ended, once."""
        assert sorted(map(id, self.begun)) == sorted(map(id, self.ended))
        assert all(span.end_ns >= span.begin_ns > 0 for span in self.begun)


def _path(span: ax.Span) -> str:
    own = span.kind if span.name == span.kind else f"{span.kind}:{span.name}"
    return own if span.parent is None else f"{_path(span.parent)}/{own}"
