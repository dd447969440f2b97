"""What verbs share that run until they are told to end: logs, options that need another, tokens, open files."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Final

import typer

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.observing.log_lines import JsonLines, TextLines

_MOST_FILES: Final = 2**20


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The levels of logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def log_as(log_format: LogFormat, level: LogLevel) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    logging.basicConfig(level=level.value.upper(), handlers=[handler])


def check_pairs(*pairs: tuple[str, bool, str, bool]) -> None:
    """BadParameter where an option is given, and what it needs is not: the two by name, and whether they are there."""
    for option, is_given, needed, is_there in pairs:
        if is_given and not is_there:
            raise typer.BadParameter(f"it needs {needed}", param_hint=f"'{option}'")


def read_tokens(file: Path | None) -> list[str]:
    """The tokens in *file*, a line each; InvalidArgumentError when there are none in it."""
    tokens = [] if file is None else file.read_text(encoding="utf-8").split()
    if file is not None and not tokens:
        raise InvalidArgumentError(f"there is no token in {file}")
    return tokens


def allow_many_connections() -> None:
    """Let the process have as many open files as the system allows: shells allow 1024 by themselves."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
