"""ClusterSpec: the jobs of a cluster, and where the tasks of each listen (``tf.train.ClusterSpec``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from asyncexec.framework.device_name import DeviceName
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError

Tasks: TypeAlias = Sequence[str] | Mapping[int, str]

_JOB: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
CLIENT_JOB: Final = "localhost"  # that of the process that the session is in


def worker_name(job: str, task: int) -> str:
    """The name of a worker: what the names of its devices begin with."""
    return str(DeviceName(job, 0, task))


class ClusterSpec:
    """The workers of a cluster: for each job, the addresses of its tasks.

    >>> spec = ax.ClusterSpec({"ps": ["10.0.0.1:7000"], "worker": {0: "10.0.0.2:7000", 2: "unix:/run/worker-2.sock"}})
    >>> spec.jobs, spec.tasks("worker"), spec.address("worker", 2)
    (('ps', 'worker'), (0, 2), 'unix:/run/worker-2.sock')

    Args:
        jobs: by the name of each job, the addresses of its tasks: a list, or a mapping by task number.  An address is
            ``"host:port"``, ``"[IPv6 address]:port"`` or ``"unix:/path"``.

    Raises:
        InvalidArgumentError: a job has no tasks, a name or number cannot stand in the name of a device, or two tasks
            have one address.
    """

    def __init__(self, jobs: Mapping[str, Tasks]) -> None:
        if not isinstance(jobs, Mapping):
            raise InvalidTypeError(f"a ClusterSpec takes a mapping of jobs, not {type(jobs).__name__}")
        self._jobs: dict[str, dict[int, str]] = {}
        for job, tasks in jobs.items():
            self._jobs[_checked_job(job)] = _checked_tasks(job, tasks)
        known: dict[str, str] = {}
        for name, address in self:
            other = known.setdefault(address, name)
            if other != name:
                raise InvalidArgumentError(f"{other} and {name} have the same address: {address!r}")

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of the jobs."""
        return tuple(self._jobs)

    def tasks(self, job: str) -> tuple[int, ...]:
        """The numbers of the tasks of *job*; InvalidArgumentError when there is no such job."""
        return tuple(self._tasks(job))

    def address(self, job: str, task: int) -> str:
        """Where a task listens; InvalidArgumentError when there is no such task."""
        tasks = self._tasks(job)
        if task not in tasks:
            raise InvalidArgumentError(f"job {job!r} has no task {task}; it has {', '.join(map(str, tasks))}")
        return tasks[task]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The name of each worker, such as ``/job:worker/replica:0/task:1``, with its address."""
        for job, tasks in self._jobs.items():
            for task, address in tasks.items():
                yield worker_name(job, task), address

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"ClusterSpec({self._jobs!r})"

    def _tasks(self, job: str) -> Mapping[int, str]:
        if job not in self._jobs:
            raise InvalidArgumentError(f"there is no job {job!r}; there is {', '.join(self._jobs) or 'none'}")
        return self._jobs[job]


def _checked_job(job: object) -> str:
    if not (isinstance(job, str) and _JOB.fullmatch(job)):
        raise InvalidArgumentError(f"the name of a job is a word of letters, digits and _, not {job!r}")
    if job == CLIENT_JOB:
        raise InvalidArgumentError(
            f"job {CLIENT_JOB!r} is the process that the session is in", hint="name it otherwise"
        )
    return job


def _checked_tasks(job: str, tasks: Tasks) -> dict[int, str]:
    if isinstance(tasks, str) or not isinstance(tasks, (Sequence, Mapping)):
        raise InvalidTypeError(f"job {job!r} takes a list of addresses, not {tasks!r}")
    found: dict[Any, Any] = dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))
    if not found:
        raise InvalidArgumentError(f"job {job!r} has no tasks")
    for task, address in found.items():
        if not isinstance(task, int) or task < 0:
            raise InvalidArgumentError(f"the number of a task of job {job!r} is 0 or more, not {task!r}")
        if not isinstance(address, str) or not address:
            raise InvalidArgumentError(f"the address of task {task} of job {job!r} is a text, not {address!r}")
    return found
