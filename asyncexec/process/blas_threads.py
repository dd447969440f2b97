"""How many threads BLAS takes for one operation, such as a product of matrices.

Kernels of several steps run side by side anyway.  Where BLAS splits each of them among threads of its own, those of
different operations wait for each other, and for the rest of the process, and they take processor time while they wait.
So while kernels of ours run, BLAS takes one thread for each; or several for one that is long and runs alone on a worker
thread, if there are idle cores.  When none runs, it is as the host application has it: BLAS knows one number of threads
for the whole process.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import cache
from typing import Any, Final, Protocol

from asyncexec.framework.cooperative import Stage
from asyncexec.framework.extras import is_installed, require
from asyncexec.process.cores import CoreBudget, core_budget
from asyncexec.process.gil_switches import quick_switches
from asyncexec.process.shards import cores_granted

# Multiplications from which on several threads of BLAS are worth their start: some milliseconds on one.
_LONG: Final = 5e7
_SHARED: Final = 1e7  # the same for kernels that share out their work (shards.py)
_finding: Final = threading.Lock()
_LOGGER: Final = logging.getLogger("asyncexec")
_CORE_TYPE: Final = "OPENBLAS_CORETYPE"  # in the environment: the processor that kernels are to be for
_CPU_INFO: Final = "/proc/cpuinfo"
# Kernel sets of OpenBLAS that do not use the 512-bit registers of a processor that has them.
_WITHOUT_AVX512: Final = frozenset({"Haswell", "Zen", "SandyBridge", "Nehalem", "Prescott"})


class BlasLibrary(Protocol):
    """The two functions of a BLAS that tell and set its number of threads."""

    def get_num_threads(self) -> int: ...

    def set_num_threads(self, count: int) -> None: ...


class BlasThreads:
    """The number of threads of *library* while kernels run, within *budget*."""

    def __init__(self, library: BlasLibrary, budget: CoreBudget = core_budget) -> None:
        self._library = library
        self._budget = budget
        self._lock = threading.Lock()
        self._num_running = 0
        self._host_count: int | None = None  # what the host application has, while it is not so
        self._count = 0
        self._restoring: asyncio.AbstractEventLoop | None = None  # which will do so at the end of its turn

    def call(self, kernel: Callable[..., Any], inputs: tuple[object, ...], work: float) -> Any:
        """What *kernel* gives for *inputs*; *work* is how many multiplications that takes, roughly."""
        loop = asyncio._get_running_loop()
        if (
            loop is not None and self._restoring is loop and self._count == 1
        ):  # as an earlier kernel of this turn has it
            return kernel(*inputs)
        count = self._begin(work, loop)
        try:
            with cores_granted(count, self._one_each):
                return kernel(*inputs)
        finally:
            self._end(loop)

    @contextmanager
    def _one_each(self) -> Iterator[None]:
        """One thread for each operation inside: the kernel that runs alone has shared out its work by itself."""
        with self._lock:
            before = self._count
            self._set(1)
        try:
            yield
        finally:
            with self._lock:
                if self._num_running == 1:
                    self._set(before)

    def _set(self, count: int) -> None:
        if count != self._count:
            self._count = count
            self._library.set_num_threads(count)

    def _begin(self, work: float, loop: asyncio.AbstractEventLoop | None) -> int:
        granted = self._budget.begin(is_large=loop is None and work >= _SHARED)
        with self._lock:
            self._num_running += 1
            if self._host_count is None:
                self._host_count = self._count = self._library.get_num_threads()
            granted = min(granted, self._host_count)  # which may have been limited
            self._set(granted if work >= _LONG else 1)
        return granted

    def _end(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """In an event loop the next kernel is likely to follow soon, so what the host has is set once a turn."""
        self._budget.end()
        with self._lock:
            self._num_running -= 1
            restoring = self._restoring
            if restoring is not None and restoring.is_closed():  # before its turn was over
                restoring = None
            if loop is not None and restoring is not loop:
                self._restoring = loop
                loop.call_soon(self._restore_later, loop, context=Context())
            elif loop is None and restoring is None:
                self._restore()

    def _restore_later(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if self._restoring is loop:
                self._restoring = None
            self._restore()

    def _restore(self) -> None:
        if self._num_running or self._host_count is None:
            return
        if self._count != self._host_count:
            self._library.set_num_threads(self._host_count)
        self._host_count = None


@cache
def blas_threads() -> BlasThreads | None:
    """The threads of numpy's BLAS; None where threadpoolctl (extra ``ops``) is not there to find it, or it has one."""
    library = _numpy_blas()
    if library is None:
        return None
    _tell_of_slow_kernels()
    return BlasThreads(library)


def found_blas() -> Stage[None]:
    """Let ``blas_threads`` know numpy's BLAS, as a stage: to look at all libraries of a process takes 10 ms."""
    if not blas_threads.cache_info().currsize:
        yield _find


def _find() -> None:
    with quick_switches(), _finding:
        blas_threads()


class _Functions:
    """A BLAS that is loaded, by its functions; they are quick, and so called without giving up the GIL."""

    def __init__(self, controller: Any) -> None:
        library = ctypes.PyDLL(controller.filepath)
        prefix, suffix = getattr(controller, "_symbol_prefix", ""), getattr(controller, "_symbol_suffix", "")
        self.get_num_threads: Callable[[], int] = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
        set_num_threads = getattr(library, f"{prefix}openblas_set_num_threads{suffix}")
        set_num_threads.argtypes, set_num_threads.restype = [ctypes.c_int], None
        self.set_num_threads: Callable[[int], None] = set_num_threads


def _numpy_blas() -> BlasLibrary | None:
    for controller in _controllers():
        if "numpy" in controller.filepath or controller.internal_api != "openblas":
            try:
                library: BlasLibrary = _Functions(controller)
            except AttributeError:  # of another make, or built in another way
                library = controller
            return library if library.get_num_threads() > 1 else None
    return None


def _controllers() -> list[Any]:
    if not is_installed("threadpoolctl"):
        return []
    controller = require("threadpoolctl", extra="ops").ThreadpoolController()
    return list(controller.select(user_api="blas").lib_controllers)


def slow_kernels() -> str | None:
    """What to do where OpenBLAS uses kernels for older processors than this one; None where all is well."""
    for controller in _controllers():
        architecture = getattr(controller, "architecture", None)
        if architecture in _WITHOUT_AVX512 and _has_avx512():
            asked = os.environ.get(_CORE_TYPE)
            advice = f"Set {_CORE_TYPE}=SKYLAKEX" if asked is None else f"Unset {_CORE_TYPE}={asked}"
            return (
                f"OpenBLAS uses its kernels for {architecture}, though this processor has AVX-512: products of matrices"
                f" may take twice as long. {advice} in the environment, and measure."
            )
    return None


def _has_avx512() -> bool:
    try:
        with open(_CPU_INFO, encoding="utf-8", errors="replace") as file:
            return "avx512f" in file.read()
    except OSError:
        return False


def _tell_of_slow_kernels() -> None:
    """Log it, unless the environment asks for these kernels."""
    advice = slow_kernels() if _CORE_TYPE not in os.environ else None
    if advice is not None:
        _LOGGER.warning(advice)


def limit_blas_threads(count: int) -> None:
    """Let BLAS take *count* threads for one operation from now on, in the whole process.

    Raises:
        MissingExtraError: threadpoolctl is not installed: ``pip install "asyncexec[ops]"``.
    """
    require("threadpoolctl", extra="ops").threadpool_limits(count, user_api="blas")
