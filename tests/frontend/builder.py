"""What the builder's tests share: build a small graph and run it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import asyncexec as ax

# Cheap kernels stay in the loop, however busy the machine is: a virtual clock does not wait for threads.
IN_THE_LOOP: Final = ax.CostModel(math.inf)


def run(build: Callable[..., Any], *inputs: Any, times: int = 1) -> Any:
    """What *build* makes of placeholders that are fed *inputs*; of the last of several runs of one session."""
    with ax.Graph() as graph:
        feeds = {ax.placeholder(dtype_of(value), [None] * np.ndim(value)): value for value in inputs}
        fetches = build(*feeds)
        initializers = [*graph.collections.get("table_initializers", ()), ax.global_variables_initializer()]
    with ax.BlockingSession(graph) as session:
        session.run(initializers)
        for _ in range(times):
            result = session.run(fetches, feeds)
    return result


def dtype_of(value: Any) -> ax.DType:
    if isinstance(value, (np.ndarray, np.generic)):
        return ax.string if value.dtype.kind in "OSU" else ax.as_dtype(value.dtype)
    return ax.string if isinstance(value, (bytes, str)) else ax.as_dtype(type(value))


def strings(*values: str) -> np.ndarray[Any, Any]:
    return np.array([value.encode() for value in values], dtype=object)
