"""Errors of the operating system about files, as errors of the status codes that stand for what went wrong."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
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
