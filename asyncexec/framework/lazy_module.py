"""Modules of our own that are imported when they are first used, for what most programs never ask for."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module: its names are attributes; the first that is asked for imports it."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)
