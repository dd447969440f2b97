"""The program of this process, for others: how they find its modules, and what is in its ``__main__``.

As multiprocessing does it where processes are spawned: the main module is imported once more, as ``__mp_main__``.
"""

from __future__ import annotations

from multiprocessing import process, spawn
from typing import Any

from asyncexec.framework.errors import FailedPreconditionError

_NAME = "asyncexec-worker"


def describe_program() -> dict[str, object]:
    """What ``become_program`` needs in another process; it can be pickled.

    Raises:
        FailedPreconditionError: this process is just about to import the main module of its parent.
    """
    try:
        described: dict[str, object] = spawn.get_preparation_data(_NAME)
    except RuntimeError as error:
        raise FailedPreconditionError(
            "a worker process, which imports the main module, would start workers itself",
            hint="a script that uses workers starts its work under: if __name__ == '__main__':",
        ) from error
    del described["authkey"]  # it is a secret of multiprocessing
    return described


def become_program(described: dict[str, object]) -> None:
    """Let modules, and ``__main__``, be those of the program *described*."""
    current: Any = process.current_process()
    current._inheriting = True  # or a main module that starts processes when it is imported would do so for ever
    try:
        spawn.prepare(described)
    finally:
        del current._inheriting
