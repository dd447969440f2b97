"""FileStore: a file for each key.

A value is written to a file beside its place, synced, and renamed; then the folder is synced.  So after a crash of the
process or the machine the old file is there, or the new one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.durable.store import checked_key, not_found
from asyncexec.framework.errors import OpError, PermissionDeniedError, ResourceExhaustedError, UnavailableError
from asyncexec.framework.extras import require
from asyncexec.framework.file_errors import checked_path

Keys: TypeAlias = list[str]  # in the class, list is a method
_WRITTEN: Final = ".written-"  # what the names of files begin with that are not complete
_LEFT_S: Final = 3600.0  # after so long nobody writes them any more
_OS_ERROR: Final = re.compile(r"os error (\d+)")  # as the library tells it
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileStore:
    """A store in a folder, with a file for each key; the folder is made when it is first written to.

    Tensors of more than 1 MB are in files of their own, in the format ``safetensors``; needs the extra ``durable``.
    ``put`` returns when the file is on the disk.  What a crash has left half written is never read.

    >>> store = ax.checkpoint.FileStore("checkpoints")
    >>> store
    <ax.checkpoint.FileStore 'checkpoints'>

    Raises:
        InvalidArgumentError: a key is no key, or the folder is no path.
        MissingExtraError: safetensors is not installed.
        NotFoundError: ``get`` of a key that is not there.
        PermissionDeniedError: the folder may not be read or written.
        ResourceExhaustedError: the disk is full.
        UnavailableError: the disk has another error.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._library: Any = require("safetensors", extra="durable")
        self._numpy: Any = require("safetensors.numpy", extra="durable")
        self._folder = Path(checked_path(folder, "the folder of a store"))
        self._tidied: set[Path] = set()

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* in place of what is there, and return when it is on the disk."""
        await self.put_parts(key, [value])

    async def put_parts(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        """Store *parts*, one after the other, as ``put`` stores a value: large ones need not be copied together."""
        await asyncio.to_thread(self._put, checked_key(key), parts)

    async def put_new(self, key: str, value: bytes) -> bool:
        """As ``put``, unless *key* is there; whether it has been stored."""
        return await asyncio.to_thread(self._put, checked_key(key), [value], is_new=True)

    async def put_tensors(self, key: str, tensors: Mapping[str, object]) -> None:
        """Store *tensors*, arrays by name, as a file of the format ``safetensors``."""
        await asyncio.to_thread(self._put_tensors, checked_key(key), tensors)

    async def get(self, key: str) -> bytes:
        """The bytes of *key*; NotFoundError when there are none."""
        return await asyncio.to_thread(self._get, checked_key(key))

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with *prefix*, sorted."""
        return await asyncio.to_thread(self._list, prefix)

    async def delete(self, key: str) -> None:
        """Forget *key*."""
        await asyncio.to_thread(self._delete, checked_key(key))

    def _put(self, key: str, parts: Sequence[bytes | memoryview], *, is_new: bool = False) -> bool:
        def write(path: Path) -> None:
            with open(path, "wb", buffering=0) as file:
                for part in parts:
                    rest = memoryview(part)
                    while rest:
                        rest = rest[file.write(rest) :]
                os.fsync(file.fileno())

        return self._replace(key, write, is_new=is_new)

    def _put_tensors(self, key: str, tensors: Mapping[str, object]) -> None:
        arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}

        def write(path: Path) -> None:
            try:
                self._numpy.save_file(arrays, path)
            except self._library.SafetensorError as error:
                number = _OS_ERROR.search(str(error))
                code = int(number[1]) if number else errno.EIO
                raise OSError(code, os.strerror(code)) from error
            with open(path, "rb+", buffering=0) as file:
                os.fsync(file.fileno())

        self._replace(key, write)

    def _replace(self, key: str, write: Callable[[Path], None], *, is_new: bool = False) -> bool:
        """Let a file that *write* writes take the place of that of *key*; False where it *is_new*, and there is one."""
        path = self._folder / key
        written = path.parent / f"{_WRITTEN}{secrets.token_hex(8)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._tidy(path.parent)
            try:
                write(written)
                if is_new:
                    os.link(written, path)
                    written.unlink()
                else:
                    os.replace(written, path)
            except FileExistsError:
                written.unlink()
                return False
            except BaseException:
                with suppress(OSError):
                    written.unlink()
                raise
            _sync_folder(path.parent)
        except OSError as error:
            raise self._told(error, f"{key!r} cannot be written") from error
        return True

    def _tidy(self, folder: Path) -> None:
        """Remove what crashes have left half written, once for each *folder*; not what others may be writing now."""
        if folder in self._tidied:
            return
        self._tidied.add(folder)
        for left in folder.glob(f"{_WRITTEN}*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _LEFT_S:
                    left.unlink()

    def _get(self, key: str) -> bytes:
        try:
            return (self._folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise not_found(key, f"the folder {str(self._folder)!r}") from None
        except OSError as error:
            raise self._told(error, f"{key!r} cannot be read") from error

    def _list(self, prefix: str) -> Keys:
        found: Keys = []

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise self._told(error, "its files cannot be listed") from error

        for folder, _, names in os.walk(self._folder, onerror=fail):
            place = Path(folder).relative_to(self._folder)
            found += [(place / name).as_posix() for name in names if not name.startswith(_WRITTEN)]
        return sorted(key for key in found if key.startswith(prefix))

    def _delete(self, key: str) -> None:
        try:
            (self._folder / key).unlink(missing_ok=True)
        except (NotADirectoryError, IsADirectoryError):
            pass
        except OSError as error:
            raise self._told(error, f"{key!r} cannot be deleted") from error

    def _told(self, error: OSError, what: str) -> OpError:
        message = f"store in the folder {str(self._folder)!r}: {what}: {error.strerror}"
        if error.errno in _FULL:
            return ResourceExhaustedError(message, hint="make room on the disk")
        if error.errno in _DENIED:
            return PermissionDeniedError(message, hint="let the process read and write the folder and its files")
        return UnavailableError(message, hint="see that it is a folder and that the disk is in order, or use another")

    def __repr__(self) -> str:
        return f"<ax.checkpoint.FileStore {str(self._folder)!r}>"


def _sync_folder(folder: Path) -> None:
    """Let what was renamed in *folder* be on the disk, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
