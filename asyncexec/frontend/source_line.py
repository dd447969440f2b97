"""The line of the user's code that is calling the builder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from asyncexec.graph.node import SourceLine

_PACKAGE: Final = str(Path(__file__).resolve().parents[1])
_DEMOS: Final = str(Path(__file__).resolve().parents[1] / "cli")  # which build graphs as users do


def caller_line() -> SourceLine | None:
    """File and line of the innermost frame that is not of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE) or file.startswith(_DEMOS):
            return file, frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None
