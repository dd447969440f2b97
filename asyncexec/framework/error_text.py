"""Exceptions in one line, whatever they are: those of kernels are foreign, and may fail to show themselves."""

from __future__ import annotations

from typing import Final

from asyncexec.framework.errors import OpError

_LONGEST: Final = 200


def one_line(error: BaseException) -> str:
    """The type of *error* and what it says, shortened; the type alone if it says nothing, or cannot be shown."""
    try:
        text = " ".join((error.message if isinstance(error, OpError) else str(error))[: 10 * _LONGEST].split())
    except Exception:
        text = ""
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
