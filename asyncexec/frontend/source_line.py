"""The line of the user's code that is calling the builder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from asyncexec.graph.node import SourceLine

_PACKAGE: Final = str(Path(__file__).resolve().parents[1])


def caller_line() -> SourceLine | None:
    """File and line of the innermost frame that is not of this package."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None
