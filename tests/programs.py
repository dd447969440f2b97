"""Programs that run in a process each, forked from one that has imported asyncexec: that takes longer than most run.

Where processes are not forked, each imports it anew.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import signal
import sys
import traceback
import warnings
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import NamedTuple

from tests.running import import_all_names

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
TIMEOUT_S = 60

import_all_names()  # once, in the process that the others are forked from


class Ended(NamedTuple):
    """How a program has ended, and what it has printed."""

    code: int | None
    stdout: str
    stderr: str


def start_server() -> None:
    """Start the process that programs are forked from; it ends with this one, and holds some of its files open."""
    if METHOD == "forkserver":
        forkserver.set_forkserver_preload([__name__])
        forkserver.ensure_running()
        resource_tracker.ensure_running()


def run_program(program: Path, *arguments: str, folder: Path) -> Ended:
    """Run *program* in *folder*, with warnings as errors, but for those of kernels that hold the loop."""
    process = multiprocessing.get_context(METHOD).Process(target=_run, args=(program, arguments, folder))
    process.start()
    process.join(TIMEOUT_S)
    process.kill()
    process.join()
    code = process.exitcode
    process.close()
    stdout, stderr = ((folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    return Ended(code, stdout, stderr)


def _run(program: Path, arguments: tuple[str, ...], folder: Path) -> None:
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a program has it that a shell starts
    for name, stream in ("stdout", sys.stdout), ("stderr", sys.stderr):
        with open(name, "wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="node '")
    sys.argv = [str(program), *arguments]
    gc.freeze()
    try:
        runpy.run_path(str(program), run_name="__main__")
        gc.collect()  # what was left open warns now, as it does when an interpreter ends
    except Exception:
        traceback.print_exc()
        sys.exit(1)
