"""What no graph waits for: very many retries, points that no draw finds, draws that nobody wants."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

import numpy as np
import pytest

from asyncexec.framework.cancellation import CancellableCall, call_around
from asyncexec.framework.errors import CancelledError, InvalidArgumentError
from asyncexec.ops.math.clustering import kmeans_plus_plus
from tests.ops.cases.clustering import POINTS


def draw(points: np.ndarray, count: int, retries: int = 0, seed: int = 3) -> np.ndarray:
    drawn: np.ndarray = kmeans_plus_plus(points, np.int64(count), np.int64(seed), np.int64(retries))
    return drawn


def in_a_call_given_up(function: Callable[[], object]) -> None:
    call = CancellableCall()
    call.give_up()
    call_around.set(call)
    function()


def test_very_many_retries_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="num_retries_per_sample <= 65536"):
        draw(POINTS, 5, 2**40)


def test_points_that_are_never_likely_are_drawn_all_the_same() -> None:
    """By rounding the first is 64 away from itself, and the others are not: once drawn, it would be drawn for ever."""
    points = np.zeros((3, 13), np.float32)
    points[0] = 1000.1 * np.arange(1, 14)
    assert len({tuple(point) for point in draw(points, 3, seed=1).tolist()}) == 2


def test_nothing_is_drawn_for_a_call_that_is_given_up() -> None:
    with pytest.raises(CancelledError):
        contextvars.copy_context().run(in_a_call_given_up, lambda: draw(POINTS, 5, 2**16))
