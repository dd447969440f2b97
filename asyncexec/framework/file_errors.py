"""Errors of the operating system about files, as errors of the status codes that stand for what went wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


def as_file_error(error: OSError) -> OpError:
    """*error* as an OpError that names the file."""
    text = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return NotFoundError(text)
    if isinstance(error, (IsADirectoryError, FileExistsError)):
        return FailedPreconditionError(text)
    if error.errno in _FULL:
        return ResourceExhaustedError(text)
    if error.errno == errno.ENAMETOOLONG:
        return InvalidArgumentError(text)
    return PermissionDeniedError(text) if isinstance(error, PermissionError) else UnknownError(text)


@contextmanager
def file_errors() -> Iterator[None]:
    """Errors of the operating system inside are raised as OpErrors."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OpError):
            raise
        raise as_file_error(error) from error


def checked_path(path: object, what: str) -> str:
    """*path*, as text, of *what*; typed errors unless a file can have it.

    Raises:
        InvalidArgumentError: it is empty, or has characters that no path has.
        InvalidTypeError: it is no path.
    """
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str):
        raise InvalidTypeError(f"{what} is a path, as str or os.PathLike, not {path!r:.200}")
    try:
        is_one = bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_one = False
    if not is_one:
        raise InvalidArgumentError(f"{what} is a path, and {path!r:.200} is none")
    return path
