"""Functions of ops that run in processes: these import them from here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import asyncexec as ax


@ax.op(executor="process")
def process_id(x: float) -> int:
    return os.getpid()


@ax.op(executor="process", outputs=[ax.float64, ax.float64])
def sum_and_scaled(array: np.ndarray, factor: float = 2.0) -> Any:
    return array.sum(), array * factor


@ax.op(executor="process")
def describe(value: object) -> object:
    """What of *value* arrived."""
    return {"value": value, "in_main": multiprocessing.parent_process() is None}


@ax.op(executor="process")
def is_writeable(array: np.ndarray) -> bool:
    return array.flags.writeable


_kept: list[np.ndarray] = []


@ax.op(executor="process")
def keep(array: np.ndarray) -> float:
    """Holds on to its input, and gives the sum of all that were kept."""
    _kept.append(array)
    return float(sum(each.sum() for each in _kept))


@ax.op(executor="process")
def shout(text: str, *, mark: str = "!") -> str:
    return text.upper() + mark


@ax.op(executor="process")
def leave(code: int) -> int:
    os._exit(int(code))


@ax.op(executor="process")
def crash(x: float) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@ax.op(executor="process")
def fail(kind: str) -> int:
    raise {"value": ValueError("a bad value"), "odd": OddError(1, 2), "exit": SystemExit(7)}[kind]


class OddError(Exception):
    """Pickles, but does not unpickle."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("an odd error")


@ax.op(executor="process")
def unpicklable(x: float) -> object:
    return lambda: x


@ax.op(executor="process")
def run_for_ever(folder: str) -> int:
    """Tells by a file that it has begun."""
    Path(folder, str(os.getpid())).touch()
    while True:
        time.sleep(0.01)


@ax.op(executor="process")
def run_until_told(folder: str) -> int:
    """Tells by a file that it has begun, and goes on until there is one of the name "end"."""
    Path(folder, str(os.getpid())).touch()
    while not Path(folder, "end").exists():
        time.sleep(0.001)
    return os.getpid()


@ax.op(executor="process")
def flaky(folder: str) -> int:
    """Fails the first time."""
    path = Path(folder, "called")
    if path.exists():
        return 5
    path.touch()
    raise ConnectionError("not yet")


def plain(x: float) -> float:
    return x + 1


wrapped_elsewhere = ax.op(executor="process", name="wrapped_elsewhere")(plain)


def hidden(x: float) -> float:
    return x


hides = ax.op(executor="process")(hidden)
hidden = len  # type: ignore[assignment]  # so that by its name something else is found
