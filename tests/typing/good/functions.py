"""``ax.function`` and ``ax.batch`` keep parameters and results; ``Tensor`` is generic, and need not be."""

from __future__ import annotations

from typing import Any, assert_type

import asyncexec as ax


@ax.function
def scaled(x: ax.Tensor, factor: float) -> dict[str, ax.Tensor]:
    return {"y": x * factor}


@ax.function(name="shifted")
def plus(x: ax.Tensor, *, by: float = 1.0) -> ax.Tensor:
    return x + by


@ax.batch(max_size=4)
def classify(rows: ax.Tensor) -> tuple[ax.Tensor, ax.Tensor]:
    return rows * 2.0, rows + 1.0


def passed_on(x: ax.Tensor[float]) -> ax.Tensor[float]:
    return x


with ax.Graph() as graph:
    x = ax.placeholder(ax.float32, [1], name="x")
    assert_type(x, ax.Tensor)
    assert_type(x, ax.Tensor[Any])
    y = assert_type(scaled(x, 2.0), dict[str, ax.Tensor])["y"]
    z = assert_type(plus(y, by=2.0), ax.Tensor)
    first, second = classify(x)
    assert_type(first + second, ax.Tensor)
    assert_type(passed_on(x), ax.Tensor[float])

assert ax.Tensor[float] is not ax.Tensor
assert isinstance(x, ax.Tensor)
