"""Imports that do not hold the event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from asyncexec.framework.cooperative import Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.process.gil_switches import quick_switches, start_thread

_begun: Final[set[str]] = set()  # modules that a thread has been started for
_lock: Final = threading.Lock()


def imported(modules: Iterable[str]) -> Stage[None]:
    """Import *modules* as a stage, on another thread where it is run in an event loop.

    One that is not installed is left out: what needs it raises the error that says so.
    """
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        yield partial(_import, missing)


def import_beside(module: str, name: str) -> Any:
    """What *module* calls *name*; on the thread of an event loop None at first, until another has imported it."""
    if _is_there(module) or asyncio._get_running_loop() is None:
        return getattr(importlib.import_module(module), name)
    with _lock:
        if module not in _begun:
            try:
                start_thread(threading.Thread(target=_import, args=([module],), name="asyncexec-import"))
            except RuntimeError:  # there are no more threads; later there may be
                return None
            _begun.add(module)
    return None


def _is_there(module: str) -> bool:
    """Whether *module* has been imported: who asks for one whose import is under way waits for that."""
    found = sys.modules.get(module)
    return found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False)


def looked_up(ops: Iterable[str]) -> Stage[None]:
    """Let the registry of ops know *ops*, as a stage: their modules are imported on another thread."""
    missing = [op for op in ops if not op_registry.is_loaded(op)]
    if missing:
        yield partial(_look_up, missing)


def _look_up(ops: Sequence[str]) -> None:
    with quick_switches():
        for op in ops:
            op_registry.find(op)


def _import(modules: Sequence[str]) -> None:
    with quick_switches():
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)
