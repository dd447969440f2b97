"""Pointers of Git LFS: small text files that stand for large ones which have not been fetched."""

from __future__ import annotations

from os import PathLike
from typing import Final

from asyncexec.framework.errors import DataLossError

_BEGINNING: Final = b"version https://git-lfs.github.com/spec/"
MAX_POINTER_BYTES: Final = 1024


def check_no_lfs_pointer(path: str | PathLike[str], data: bytes) -> None:
    """DataLossError where *data*, the content of *path*, is a pointer of Git LFS."""
    if data.startswith(_BEGINNING) and len(data) <= MAX_POINTER_BYTES:
        raise DataLossError(f"{str(path)!r} is a Git LFS pointer, not the file itself", hint="run: git lfs pull")
