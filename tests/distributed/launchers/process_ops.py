"""Ops for tests of worker processes, which import this module."""

from __future__ import annotations

import os
import sys

import asyncexec as ax


@ax.op(outputs=[ax.int64])
def process_id() -> int:
    print("asked for the process id", file=sys.stderr)
    return os.getpid()


@ax.op(outputs=[ax.int64])
def exit_process(code: int) -> int:
    os._exit(code)
