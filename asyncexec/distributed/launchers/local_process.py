"""LocalProcess: a worker process of this machine, and the two threads that watch it.

It is a new interpreter, not a fork, which would copy locks that other threads hold.  Its standard input tells it what
to do, and stays open: the process ends when it is closed, and so when this process ends, however that happens.  What it
writes to standard error is passed on, and the last lines are kept.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import spawn
from typing import IO, Final, NamedTuple

from asyncexec.distributed.launchers.local_main import Orders

_KEPT_LINES: Final = 20
_LONGEST_LINE: Final = 4096
_STDERR_S: Final = 1.0  # how long standard error may stay open, for processes of the process, when that has ended
_START: Final = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from asyncexec.distributed.launchers.local_main import main; main()"
)


class Ending(NamedTuple):
    """How a process has ended: its exit code, minus the signal if it was one, and the last lines it wrote."""

    code: int
    lines: tuple[str, ...]

    @property
    def how(self) -> str:
        """The code in words."""
        return f"by signal {_signal_name(-self.code)}" if self.code < 0 else f"with exit code {self.code}"

    def __str__(self) -> str:
        return self.how + ("; it wrote:\n" + "\n".join(self.lines) if self.lines else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class LocalProcess:
    """See the head of this module.

    Args:
        program: of ``describe_program``.
        orders: what it is to do.
        on_listening: is told, on a thread, the address that it listens at.
        on_end: is told, on a thread, how it has ended; always, and once.
    """

    def __init__(
        self,
        program: Mapping[str, object],
        orders: Orders,
        on_listening: Callable[[str], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        self._program = program
        self._orders = orders
        self._on_listening = on_listening
        self._on_end = on_end
        self._mark = f"{orders.mark} ".encode()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._lock = threading.Lock()  # of the two below
        self._is_ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to start the process."""
        threading.Thread(target=self._watch, name="asyncexec-worker", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """Its number, once it runs."""
        return None if self._process is None else self._process.pid

    def end(self) -> None:
        """Let it end, in its grace period."""
        with self._lock:
            self._is_ended = True
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()

    def _watch(self) -> None:
        try:
            process = self._spawn()
        except OSError as error:
            self._on_end(Ending(1, (f"the process could not be started: {error}",)))
            return
        if process is None:
            self._on_end(Ending(0, ()))
            return
        assert process.stdin is not None
        assert process.stderr is not None
        reading = threading.Thread(target=self._read, args=(process.stderr,), name="asyncexec-stderr", daemon=True)
        reading.start()
        with contextlib.suppress(OSError, ValueError):  # it has ended already, or is to
            for told in (self._program["sys_path"], self._program, self._orders):
                process.stdin.write(pickle.dumps(told))
            process.stdin.flush()
        code = process.wait()
        reading.join(_STDERR_S)
        self.end()
        self._on_end(Ending(code, tuple(self._lines)))

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        """The process; None if nobody wants it any more."""
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [os.fsdecode(spawn.get_executable()), *flags, "-c", _START]
        with self._lock:
            if self._is_ended:
                return None
            with _interrupts_blocked():
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                    command, stdin=subprocess.PIPE, stderr=subprocess.PIPE
                )
            return self._process

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(_LONGEST_LINE):
                before, mark, address = line.partition(self._mark)
                if mark:
                    self._on_listening(address.decode().strip())
                text = before.decode(errors="backslashreplace")
                if text:
                    self._lines.append(text.rstrip())
                    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be none
                        sys.stderr.write(text)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keeps Ctrl-C from a process that this thread starts, until the process ignores it: its imports take a while."""
    before = None if os.name == "nt" else signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
