"""Ctrl-C in programs that run by ``ax.run``, on both loops: a real signal, and what is seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.running import STRICT
from tests.signals import handlers

PROGRAM = Path(__file__).parent / "interrupted_program.py"
ROOT = PROGRAM.parents[2]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there is no Ctrl-C to send to one process"),
    pytest.mark.parametrize("loop", ["asyncio", "uvloop"]),
    pytest.mark.one_of("loop"),
]


class Outcome:
    """What a program that was interrupted has done.

    Args:
        kernel: which one runs when it is interrupted; how: by what it was called.
        again_at: the line at which Ctrl-C is pressed a second time.
    """

    def __init__(self, loop: str, kernel: str, how: str, again_at: str | None = None) -> None:
        command = [sys.executable, *STRICT, str(PROGRAM), loop, kernel, how]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (
            handlers(),
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as program,
        ):
            assert program.stdout is not None
            self.lines: list[str] = []
            for line in ("ready", again_at):
                while line is not None and (not self.lines or self.lines[-1] != line):
                    self.lines.append(program.stdout.readline().strip())
                    assert self.lines[-1], "it has ended"
                if line is not None:
                    program.send_signal(signal.SIGINT)
            self.lines += program.stdout.read().splitlines()
            self.exit_code = program.wait()
            errors.seek(0)
            self.errors = errors.read()

    def check(self) -> None:
        """It ended by the signal, with the session closed, and nothing but its own traceback was shown."""
        assert self.exit_code == -signal.SIGINT, self.errors
        assert "closed" in self.lines
        assert self.errors.rstrip().endswith("KeyboardInterrupt")
        for word in ("destroyed", "never", "ignored", "unclosed"):
            assert word not in self.errors
        assert self.errors.splitlines().count("KeyboardInterrupt") == 1


@pytest.mark.parametrize("how", ["gather", "map", "partial"])
def test_a_kernel_that_awaits_cleans_up_before_the_program_ends(loop: str, how: str) -> None:
    outcome = Outcome(loop, "awaits", how)
    outcome.check()
    assert outcome.lines.count("began") == outcome.lines.count("cleaned up") > 0
    assert outcome.lines.index("cleaned up") < outcome.lines.index("closed")
    assert ("source closed" in outcome.lines) == (how == "map")


def test_a_kernel_on_a_worker_thread_is_told(loop: str) -> None:
    outcome = Outcome(loop, "works", "map")
    outcome.check()
    assert "told" in outcome.lines


def test_a_kernel_in_the_loop_runs_to_its_end(loop: str) -> None:
    """The first Ctrl-C does not break into it; when it has returned, the loop sees the cancellation."""
    outcome = Outcome(loop, "inline", "run")
    outcome.check()
    assert "returned" in outcome.lines


def test_a_second_ctrl_c_ends_the_clean_up(loop: str) -> None:
    outcome = Outcome(loop, "hangs", "run", again_at="cleans up")
    assert outcome.exit_code == -signal.SIGINT
    assert "closed" in outcome.lines
    assert "destroyed" not in outcome.errors


def test_ctrl_c_in_a_blocking_session(loop: str) -> None:
    outcome = Outcome(loop, "awaits", "blocking")
    outcome.check()
    assert outcome.lines.index("cleaned up") < outcome.lines.index("closed")
