"""Signals in tests: handlers for a while, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handlers(**wanted: Any) -> Iterator[None]:
    """Handlers of signals, by name; of SIGINT Python's own, which it has not in jobs in the background of a shell.

    What is started meanwhile has it, too.
    """
    wanted = {"SIGINT": signal.default_int_handler, **wanted}
    before = {name: signal.signal(getattr(signal, name), handler) for name, handler in wanted.items()}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def press_ctrl_c() -> None:
    """As a terminal does: the main thread gets the signal."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def terminate() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
