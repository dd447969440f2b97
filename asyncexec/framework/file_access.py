"""FileAccess: which files the ops of a graph may touch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from asyncexec.framework.errors import InvalidArgumentError, PermissionDeniedError
from asyncexec.framework.file_errors import file_errors


class FileAccess:
    """What files ops may read and write.

    While no folder is allowed, ops may touch all files: a graph has such ops only if its caller made them, or named
    them.  Once there are folders, ops may touch what is in them, and only ops that the caller named may touch the rest.
    Links are followed before that is decided.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, bool] = {}  # whether ops may write there, too
        self._anywhere: set[str] = set()

    def allow_ops(self, ops: Iterable[str]) -> None:
        """Let *ops* touch all files."""
        self._anywhere.update(ops)

    def allow_folder(self, folder: str | os.PathLike[str], *, writes: bool) -> None:
        """Let all ops read what is in *folder*, and with *writes* write there."""
        path = Path(folder)
        self._folders[path] = writes or self._folders.get(path, False)

    def is_confined(self, op: str) -> bool:
        """Whether *op* may not touch all files."""
        return bool(self._folders) and op not in self._anywhere

    def path(self, op: str, path: Path, *, writes: bool = False) -> Path:
        """*path* as *op* may open it.  It asks the file system.

        Raises:
            PermissionDeniedError: it lies outside of the folders that are allowed.
        """
        if not self.is_confined(op):
            return path
        folders = [folder for folder, may_write in self._folders.items() if may_write or not writes]
        with file_errors():
            resolved, folders = path.resolve(), [folder.resolve() for folder in folders]
        if any(resolved.is_relative_to(folder) for folder in folders):
            return resolved
        verb = "write" if writes else "read"
        raise PermissionDeniedError(
            f"op {op!r} may not {verb} {str(path)!r}: it may {verb} in {', '.join(map(str, folders)) or 'no folder'}",
            op=op,
            hint=f"if you trust this graph: import_graph_def(..., allowed_ops=[{op!r}])",
        )


def named_path(name: bytes) -> Path:
    """The path that a string of a graph names; InvalidArgumentError where it can be none."""
    if b"\0" in name:
        raise InvalidArgumentError(f"a file name holds no zero bytes: {name[:100]!r}")
    return Path(os.fsdecode(name.removeprefix(b"file://")))
