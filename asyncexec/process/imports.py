"""Imports that do not hold the event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Final

from asyncexec.framework.cooperative import Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.process.gil_switches import quick_switches, start_thread

_beside: Final[dict[str, ModuleType | None]] = {}  # modules that others import; None before they have
_lock: Final = threading.Lock()


def imported(modules: Iterable[str]) -> Stage[None]:
    """Import *modules* as a stage, on another thread where it is run in an event loop.

    One that is not installed is left out: what needs it raises the error that says so.
    """
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        yield partial(_import, missing)


def import_beside(module: str, name: str) -> Any:
    """What *module* calls *name*; on the thread of an event loop None at first, until another has imported it."""
    found = _beside.get(module)
    if found is None and asyncio._get_running_loop() is None:
        found = _beside[module] = importlib.import_module(module)
    if found is not None:
        return getattr(found, name)
    with _lock:
        if module not in _beside:
            _beside[module] = None
            try:
                start_thread(threading.Thread(target=_import_beside, args=(module,), name="asyncexec-import"))
            except RuntimeError:  # there are no more threads; later there may be
                del _beside[module]
    return None


def looked_up(ops: Iterable[str]) -> Stage[None]:
    """Let the registry of ops know *ops*, as a stage: their modules are imported on another thread."""
    missing = [op for op in ops if not op_registry.is_loaded(op)]
    if missing:
        yield partial(_look_up, missing)


def _look_up(ops: Sequence[str]) -> None:
    with quick_switches():
        for op in ops:
            op_registry.find(op)


def _import_beside(module: str) -> None:
    with quick_switches():
        _beside[module] = importlib.import_module(module)


def _import(modules: Sequence[str]) -> None:
    with quick_switches():
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)
