"""Ctrl-C ends commands with a short message and exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import asyncexec as ax
from tests.signals import handlers

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no Ctrl-C to send to one process")


def interrupted(line: str, *arguments: str, stream: str = "stderr") -> tuple[int, str]:
    """Run a command, press Ctrl-C once *line* has come, and give its exit code and the rest of stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        handlers(),
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command,
    ):
        lines = getattr(command, stream)
        while line not in (came := lines.readline()):
            assert came, "it has ended"
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    return command.returncode, errors


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A graph that says that it is ready, and counts."""
    with ax.Graph() as graph:
        said = ax.print_("ready")
        with ax.control_dependencies([said]):
            start = ax.identity(ax.constant(0))
        (end,) = ax.while_loop(lambda i: i >= 0, lambda i: (i * 1,), (start,))
        ax.identity(end, name="end")
    path = tmp_path / "endless.json"
    ax.save_graph_def(graph.as_graph_def(), path)
    return str(path)


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_ctrl_c_ends_a_run(endless: str, options: list[str]) -> None:
    code, errors = interrupted("ready", "-m", "asyncexec", "run", endless, "--fetch", "end", *options)
    assert (code, errors) == (130, "interrupted\n")


def test_ctrl_c_ends_the_demo() -> None:
    code, errors = interrupted("450 images at", "-m", "asyncexec", "demo")
    assert (code, errors) == (130, "interrupted\n")


AT_IMPORT = """
import sys
from asyncexec.cli import main

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "asyncexec.cli.app":
            print("imports", flush=True)
            while True:
                pass

sys.meta_path.insert(0, Finder())
main.main()
"""


def test_ctrl_c_ends_the_imports() -> None:
    code, errors = interrupted("imports", "-c", AT_IMPORT, stream="stdout")
    assert (code, errors) == (130, "interrupted\n")
