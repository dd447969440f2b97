"""What surrounds the calls of kernels, whatever surrounds the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from asyncexec.graph.current_graph import building, outside_of_graphs

T = TypeVar("T")


def call_among_kernels(function: Callable[..., T], *arguments: object) -> T:
    """What *function* gives, which calls kernels.

    numpy says nothing of floating-point errors there, and no graph is being built: where one kernel calls the function
    of another op, it is called, though the run may be inside of ``with graph:``.
    """
    with np.errstate(all="ignore"):
        return function(*arguments) if building.get() is None else outside_of_graphs(function, *arguments)
