"""The control groups of Linux that this process is in, and so what a container lets it have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

ROOT: Final = Path("/")
_MOUNT: Final = "sys/fs/cgroup"


class ControlGroup(NamedTuple):
    """The folder with the files of one group, which are those of version 1 or 2 of the interface."""

    folder: Path
    version: int


def control_groups(controller: str, root: Path = ROOT) -> Sequence[ControlGroup]:
    """The groups of this process that *controller* limits, and those around them; *root* has the system's files.

    None where the system does not tell.  A container may not see all of the folders.
    """
    try:
        told = (root / "proc/self/cgroup").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ()
    return _groups_in(told, controller, root)


@lru_cache(maxsize=8)
def _groups_in(told: str, controller: str, root: Path) -> Sequence[ControlGroup]:
    return tuple(_found(told, controller, root))


def _found(told: str, controller: str, root: Path) -> Iterator[ControlGroup]:
    for line in told.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):  # no line of a group
            continue
        if not controllers:
            mount, version = root / _MOUNT, 2
        elif controller in controllers.split(","):
            mount, version = root / _MOUNT / controller, 1
        else:
            continue
        group = PurePosixPath(path)
        for each in (group, *group.parents):
            yield ControlGroup(mount / each.relative_to("/"), version)
