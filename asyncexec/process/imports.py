"""Imports that do not hold the event loop."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from asyncexec.framework.cooperative import Stage
from asyncexec.process.gil_switches import quick_switches


def imported(modules: Iterable[str]) -> Stage[None]:
    """Import *modules* as a stage, on another thread where it is run in an event loop.

    One that is not installed is left out: what needs it raises the error that says so.
    """
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        yield partial(_import, missing)


def _import(modules: Sequence[str]) -> None:
    with quick_switches():
        for name in modules:
            with suppress(ImportError):
                importlib.import_module(name)
