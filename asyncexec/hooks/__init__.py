"""Hooks that are ready to use: ``ax.Session(graph, hooks=[ax.hooks.OpenTelemetry()])``.

Each is imported when it is first used, and needs a library of its own, which its error names: ``OpenTelemetry``
(``asyncexec[otel]``), ``Prometheus`` (``asyncexec[prometheus]``), ``Progress`` (``asyncexec[progress]``), and ``Log``
and ``LogContext``, which need none.  To write one: ``ax.Hook``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncexec.hooks.log import Log as Log
    from asyncexec.hooks.log import LogContext as LogContext
    from asyncexec.hooks.opentelemetry import OpenTelemetry as OpenTelemetry
    from asyncexec.hooks.progress import Progress as Progress
    from asyncexec.hooks.prometheus import Prometheus as Prometheus

_MODULES = {
    "Log": "log",
    "LogContext": "log",
    "OpenTelemetry": "opentelemetry",
    "Progress": "progress",
    "Prometheus": "prometheus",
}
__all__ = ["Log", "LogContext", "OpenTelemetry", "Progress", "Prometheus"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
