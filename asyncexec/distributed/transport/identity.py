"""Who is at an end of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError

MAX_TEXT_LENGTH: Final = 256  # of each part of an identity


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of a cluster; InvalidArgumentError if a part of it is too long.

    Attributes:
        name: the job and task, such as ``/job:worker/replica:0/task:1``.
        incarnation: a number of 64 bits, another one each time the process is started.
        role: what it is in the cluster, such as ``"worker"``.
        program: a fingerprint of its program, or "" if unknown.  Python objects travel only between equal ones.
    """

    name: str
    incarnation: int
    role: str = ""
    program: str = ""

    def __post_init__(self) -> None:
        for text in (self.name, self.role, self.program):
            if len(text) > MAX_TEXT_LENGTH:
                raise InvalidArgumentError(f"{text[:80]!r}... is too long for an identity: at most {MAX_TEXT_LENGTH}")
        if not -(2**63) <= self.incarnation < 2**64:
            raise InvalidArgumentError(f"incarnation {self.incarnation} has more than 64 bits")

    def __str__(self) -> str:
        return f"{self.name} (incarnation {self.incarnation:x})"


@dataclass(frozen=True, slots=True)
class Expected:
    """Which peer a caller wants to reach; None stands for any.

    Attributes:
        name: the job and task.
        incarnation: the incarnation of that process.
    """

    name: str | None = None
    incarnation: int | None = None
