"""Native code in place of Python code that has run often.

As long as a part of a program is not native, its Python code calls a NativeCounter in its place, which does nothing but
count.  When that has counted enough, the part is compiled by llvmlite (extra ``jit``) on a thread, and from then on a
function is called that puts its arguments into a piece of memory, calls the native code, and takes the results out.
It gives nothing, and the Python code runs, where an argument has another type, or the native code does not go on.

The native code of a function keeps the GIL, so nobody else uses the function's memory meanwhile.  It lives as long as
the function does.  LLVM works for one thread at a time, so what is no longer needed is freed by the same thread.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.clock import NS_PER_MS, monotonic_ns
from asyncexec.framework.extras import require
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.process.gil_switches import quick_switches, start_thread
from asyncexec.process.shared_libraries import load_ahead
from asyncexec.regions.native_code import AGAIN, REFUSED, NativeText, write_native
from asyncexec.regions.native_emitter import LLVM_NAMES, NotNativeError, ScalarType
from asyncexec.regions.native_parts import NativePart, types_of
from asyncexec.regions.schedule import Repeat

HOT_WORK: Final = 1 << 18  # calls of kernels in a part before it is compiled: some 20 milliseconds
_STRETCH_NS: Final = NS_PER_MS // 4  # of Python on the thread: as long as that a busy loop may have to wait for it
_PAUSE_S: Final = 0.001  # in which the loop goes on: each call of numpy lets go of the GIL, to have it back later
_MAX_TRIES: Final = 3  # to find it called with scalars

native_loops = LazyModule("asyncexec.executor.plans.native_loops")  # which imports this one

Function: TypeAlias = Callable[..., Any]


class Wanted(Protocol):
    """What is to become native."""

    def make(self) -> Any:
        """The native code; NotNativeError if there is none."""

    def replace(self, made: Any, /) -> None:
        """Use what was *made* from now on; None if there is nothing."""


class UntriedError(NotNativeError):
    """The values were those of a last round, so that native code had nothing to do."""


class NativeCounter:
    """Stands for a part that is not native by now; to be called with what it takes."""

    __slots__ = ("__weakref__", "_left", "_num_given", "_tries", "_values", "part", "types")

    def __init__(self, part: NativePart) -> None:
        self.part: NativePart = part
        self.types: tuple[ScalarType, ...] = ()  # of its arguments, once it has been called often
        self._values: tuple[Any, ...] | None = None  # or the arguments themselves, of a loop with arrays
        self._left = HOT_WORK
        self._tries = 0
        self._num_given = len(part.gives) if isinstance(part.statement, Repeat) else None

    def __call__(self, *values: object) -> Any:
        self._left -= self.part.work
        if self._left <= 0 and not self.types and self._values is None:
            self._ask(values)
        return None if self._num_given is None else (False, 0, *values[: self._num_given])

    def make(self) -> Function:
        """The part as native code."""
        part = self.part
        if self._values is not None:
            values, self._values = self._values, ()
            try:
                loop: Function = native_loops.made(part, values)
            except UntriedError:
                self._values = None
                raise
            return loop
        text = write_native(part, self.types, Pauses())
        memory = {kind: np.zeros(count, kind) for kind, count in text.places.items()}
        address = {kind: address_of(array) for kind, array in memory.items()}
        kept = _Kept()
        call = ctypes.PYFUNCTYPE(ctypes.c_int)(COMPILER.load(text.module(address), kept))
        names: dict[str, Any] = {LLVM_NAMES[kind]: kind for kind in memory}
        names.update({f"m_{LLVM_NAMES[kind]}": array for kind, array in memory.items()}, native=call, kept=kept)
        code = compile(_entry(part, text), "<asyncexec native>", "exec", dont_inherit=True)
        return FunctionType(next(each for each in code.co_consts if hasattr(each, "co_code")), names)

    def replace(self, function: Function | None) -> None:
        """Let the Python code call *function*, or nothing, from now on; or ask again, if there was nothing to try."""
        is_to_be_asked = function is None and self._values is None and not self.types
        if is_to_be_asked and self._has_tries():
            return
        self.part.replace(function)

    def _has_tries(self) -> bool:
        """Count again, unless that has been done often."""
        self._left = HOT_WORK
        self._tries += 1
        return self._tries < _MAX_TRIES

    def _ask(self, values: tuple[object, ...]) -> None:
        if isinstance(self.part.statement, Repeat) and self.part.statement.has_arrays:
            self._values = values
            COMPILER.submit(self)
            return
        types = types_of(values)
        if types is not None:
            self.types = types
            COMPILER.submit(self)
            return
        if not self._has_tries():
            self.part.replace(None)


def counted(part: NativePart) -> Function:
    """What the Python code is to call in place of *part*."""
    COMPILER.free_soon()
    return NativeCounter(part)


class NativeCompiler:
    """Compiles what has run often, on a thread that ends when there is nothing left.

    Attributes:
        num_compiled: how many parts have become native; num_freed: of how many the code is gone.
    """

    def __init__(self) -> None:
        self.num_compiled: int = 0
        self.num_freed: int = 0
        self._wanted: deque[weakref.ref[Wanted]] = deque()
        self._unused: deque[Any] = deque()  # engines of functions that are gone
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._llvm: Any = None

    def submit(self, wanted: Wanted) -> None:
        """Have *wanted* compiled, unless it is gone by then."""
        self._wanted.append(weakref.ref(wanted))
        self._start_thread()

    def free_soon(self) -> None:
        """Have what is no longer needed freed."""
        if self._unused:
            self._start_thread()

    def join(self) -> None:
        """Wait until nothing is left to compile."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="asyncexec-native")
                start_thread(self._thread)

    def _work(self) -> None:
        try:
            if self._llvm is None:
                load_ahead("llvmlite", "binding/libllvmlite.*")
            while not self._has_ended():
                self._free()
                wanted = self._wanted.popleft()() if self._wanted else None
                if wanted is not None:
                    with quick_switches():  # to import LLVM, and to write for it, is Python
                        self.compile(wanted)
        except BaseException:
            self._thread = None
            raise

    def _has_ended(self) -> bool:
        """Whether nothing is left to do, and the thread ends."""
        with self._lock:
            if not self._wanted and not self._unused:
                self._thread = None
        return self._thread is None

    def _free(self) -> None:
        while self._unused:
            self._unused.popleft().close()
            self.num_freed += 1

    def compile(self, wanted: Wanted) -> None:
        """Make *wanted* native, if it can be."""
        made = None
        try:
            made = wanted.make()
            self.num_compiled += 1
        except NotNativeError:
            pass
        except Exception as error:  # the Python code will do
            message = f"a part of a signature could not be made native: {type(error).__name__}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        finally:
            wanted.replace(made)

    def load(self, text: str, user: object, *, has_vectors: bool = False) -> int:
        """The address of the function ``native`` of the module *text*, which is freed when *user* is gone."""
        return self.functions(text, user, ("native",), has_vectors=has_vectors)[0]

    def functions(self, text: str, user: object, names: Sequence[str], *, has_vectors: bool = False) -> list[int]:
        """The addresses of the functions with these *names*."""
        engine = self._engine(text, has_vectors=has_vectors)
        weakref.finalize(user, self._unused.append, engine).atexit = False
        return [engine.get_function_address(name) for name in names]

    def features(self) -> dict[str, bool]:
        """What the processor can do, by LLVM's names."""
        self._llvm = self._llvm or _imported()
        found: dict[str, bool] = self._llvm.get_host_cpu_features()
        return found

    def _engine(self, text: str, *, has_vectors: bool) -> Any:
        """The machine code of the module *text*; of loops over elements, it *has_vectors*."""
        llvm = self._llvm = self._llvm or _imported()
        features = llvm.get_host_cpu_features().flatten()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2
        )
        module = llvm.parse_assembly(text)
        if has_vectors:
            options = llvm.create_pipeline_tuning_options(speed_level=3)
            options.loop_vectorization = True
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        return engine


def _imported() -> Any:
    """llvmlite's binding, imported bit by bit: some fifty modules, and a library that is slow to load."""
    around = sys.getprofile()
    sys.setprofile(Pauses())  # of this thread alone
    try:
        llvm = require("llvmlite.binding", extra="jit")
    finally:
        sys.setprofile(around)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


class Pauses:
    """Lets go of the GIL now and then, when it is called: the interpreter would wait five milliseconds."""

    def __init__(self) -> None:
        self._end_ns = 0

    def __call__(self, *event: object) -> None:
        if monotonic_ns() > self._end_ns:
            time.sleep(_PAUSE_S)
            self._end_ns = monotonic_ns() + _STRETCH_NS


class _Kept:
    """Lives as long as the function that has it among its names."""

    __slots__ = ("__weakref__",)


def _entry(part: NativePart, text: NativeText) -> str:
    """The source of what the Python code calls."""
    arguments = [f"a{index}" for index in range(len(part.takes))]
    is_loop = isinstance(part.statement, Repeat)
    tests = [f"type({name}) is {LLVM_NAMES[kind]}" for name, (kind, _) in zip(arguments, text.takes, strict=True)]
    lines = [f"def call({', '.join(arguments)}):", f" if {' and '.join(tests) or 'True'}:"]
    lines += [f"  {_place(*place)} = {name}" for name, place in zip(arguments, text.takes, strict=True)]
    given = [_place(*place) for place in text.gives]
    if is_loop:
        rounds = f"m_{LLVM_NAMES[np.int64]}.item({text.num_rounds})"
        lines += ["  status = native()", f"  if status != {REFUSED}:"]
        lines += [f"   return {', '.join([f'status == {AGAIN}', rounds, *given])}"]
        lines += [f" return {', '.join(['False', '0', *arguments[: len(given)]])}"]
    else:
        lines += ["  if not native():", f"   return {', '.join(given) or '()'}", " return None"]
    return "\n".join([*lines, ""])


def _place(kind: ScalarType, place: int) -> str:
    return f"m_{LLVM_NAMES[kind]}[{place}]"


COMPILER: Final = NativeCompiler()
