"""LogSettings: what the service logs, as Triton's logging extension shows and changes it.

The settings hold for the loggers of the service, for all services of the process.  The file of the log is not a
client's business.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.service.observing.log_lines import ACCESS, TextLines

Value: TypeAlias = bool | int | str

_FILE, _VERBOSE, _FORMAT = "log_file", "log_verbose_level", "log_format"
_LEVELS: Final = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
_FORMATS: Final = ("default", "ISO8601")
_MOST: Final = 2**31 - 1
_LOGGERS: Final = (logging.getLogger("asyncexec.service"), ACCESS)


class LogSettings:
    """What is logged: a flag for each level, and calls where the verbose level is 1 or more."""

    def __init__(self) -> None:
        self._is_on = dict.fromkeys(_LEVELS, True)
        self._verbose: int | None = None
        self._format = _FORMATS[0]
        self._access_level: int | None = None  # that of its logger before

    def values(self) -> dict[str, Value]:
        """The settings, by name."""
        verbose = int(ACCESS.isEnabledFor(logging.INFO)) if self._verbose is None else self._verbose
        return {_FILE: "", **self._is_on, _VERBOSE: verbose, _FORMAT: self._format}

    def update(self, changes: Mapping[str, object]) -> None:
        """Change settings; all of *changes*, or none where one is wrong.

        Raises:
            InvalidArgumentError: there is no such setting or value; UnimplementedError: another file.
        """
        if _FILE in changes:
            raise UnimplementedError("log file location can not be updated through network protocol")
        for name, value in changes.items():
            _check(name, value)
        for name, value in changes.items():
            if name == _VERBOSE:
                assert isinstance(value, int)
                self._set_verbose(value)
            elif name == _FORMAT:
                self._format = str(value)
                TextLines.has_iso_time = value != _FORMATS[0]
            else:
                self._is_on[name] = bool(value)
        for logger in _LOGGERS:
            logger.removeFilter(self.filter)
            logger.addFilter(self.filter)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether *record* is logged."""
        if record.levelno >= logging.ERROR:
            return self._is_on["log_error"]
        if record.levelno >= logging.WARNING:
            return self._is_on["log_warning"]
        return self._is_on["log_info"] or (record.name == ACCESS.name and bool(self._verbose))

    def close(self) -> None:
        """Log as before."""
        for logger in _LOGGERS:
            logger.removeFilter(self.filter)
        if self._access_level is not None:
            ACCESS.setLevel(self._access_level)
        if self._format != _FORMATS[0]:
            TextLines.has_iso_time = False

    def _set_verbose(self, level: int) -> None:
        if self._access_level is None:
            self._access_level = ACCESS.level
        self._verbose = level
        ACCESS.setLevel(logging.INFO if level else logging.WARNING)


def _check(name: str, value: object) -> None:
    """Raise InvalidArgumentError where *value* is none of the setting *name*."""
    if name in _LEVELS:
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"expect boolean for '{name}', got: {str(value)[:20]}")
    elif name == _VERBOSE:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise InvalidArgumentError(f"expect unsigned integer for '{name}', got: {str(value)[:20]}")
    elif name == _FORMAT:
        if value not in _FORMATS:
            raise InvalidArgumentError(f"invalid argument for '{name}', got: {str(value)[:20]}")
    else:
        known = ", ".join((*_LEVELS, _VERBOSE, _FORMAT))
        raise InvalidArgumentError(f"there is no log setting '{name[:20]}'", hint=f"there are: {known}")
