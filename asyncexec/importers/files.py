"""Reading and writing files, with errors of the status codes that stand for what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from asyncexec.framework.git_lfs import check_no_lfs_pointer


def read_file(path: Path, what: str) -> bytes:
    """All bytes of the file *path*, which is expected to hold *what*.

    Raises:
        NotFoundError, PermissionDeniedError, InvalidArgumentError: no such file; not readable; a folder.
        DataLossError: it is a pointer of Git LFS.
    """
    with file_errors(path, what):
        data = path.read_bytes()
    check_no_lfs_pointer(path, data)
    return data


def read_part(path: Path, offset: int, size: int, what: str) -> bytes:
    """*size* bytes from *offset* on of the file *path*; errors as of :func:`read_file`, and DataLossError.

    Raises:
        DataLossError: the file ends before.
    """
    with file_errors(path, what), path.open("rb") as file:
        end = file.seek(0, 2)
        if offset + size > end:
            raise DataLossError(f"{str(path)!r} has {end} bytes, too few for {size} from {offset} on; expected {what}")
        file.seek(offset)
        return file.read(size)


def write_file(path: Path, data: bytes, what: str) -> None:
    """Write the file *path*; errors as of :func:`read_file`."""
    with file_errors(path, what):
        path.write_bytes(data)


def make_folder(path: Path) -> None:
    """Make the folder *path* where it is not there; errors as of :func:`read_file`."""
    with file_errors(path, "a folder"):
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def file_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{str(path)!r} does not exist; expected {what} there") from error
    except PermissionError as error:
        raise PermissionDeniedError(f"{str(path)!r} must not be opened; expected {what} there") from error
    except (FileExistsError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        raise InvalidArgumentError(f"{str(path)!r} is not a file; expected {what} there") from error
    except OSError as error:
        raise UnavailableError(f"{str(path)!r} cannot be opened: {error}; expected {what} there") from error
