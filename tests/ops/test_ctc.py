"""What the golden answers do not cover: CTCLossV2, for which TensorFlow has no CPU kernel."""

from __future__ import annotations

import contextvars
import gc
import itertools
import math

import numpy as np
import pytest

from asyncexec.framework.cancellation import CancellableCall, call_around
from asyncexec.framework.errors import CancelledError, InvalidArgumentError, ResourceExhaustedError
from asyncexec.ops.nn import ctc_decoding
from tests.ops.cases.ctc import INDICES, VALUES, scores
from tests.ops.op_case import case, i32, i64
from tests.ops.op_runner import run_case


def test_the_blank_of_the_second_version_is_the_first_class() -> None:
    inputs, lengths = scores(6, 2, 4), i32(6, 4)
    loss, gradient = run_case(case("CTCLoss", inputs, INDICES, VALUES, lengths))
    rolled, rolled_gradient = run_case(case("CTCLossV2", np.roll(inputs, 1, axis=2), INDICES, VALUES + 1, lengths))
    np.testing.assert_allclose(rolled, loss, rtol=1e-5)
    np.testing.assert_allclose(np.roll(rolled_gradient, -1, axis=2), gradient, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidArgumentError, match="CTCLossV2 requires ctc_merge_repeated to be true"):
        run_case(case("CTCLossV2", inputs, INDICES, VALUES, lengths, ctc_merge_repeated=False))


def test_the_loss_is_that_of_all_paths() -> None:
    """By hand: every path through the classes, repeats merged and blanks dropped, that reads as the labels."""
    inputs = scores(5, 1, 3)
    likely = np.exp(inputs[:, 0].astype(float))
    likely /= likely.sum(axis=1, keepdims=True)
    total = 0.0
    for path in itertools.product(range(3), repeat=5):
        merged = [label for label, _ in itertools.groupby(path)]
        if [label for label in merged if label != 2] == [1, 0]:
            total += math.prod(likely[time, label] for time, label in enumerate(path))
    loss, _ = run_case(case("CTCLoss", inputs, i64([0, 0], [0, 1]), i32(1, 0), i32(5)))
    np.testing.assert_allclose(loss, [-math.log(total)], rtol=1e-5)


def search(width: int = 2**31 - 1, time: int = 20) -> None:
    """Search with a beam of 6 times as many entries after each step, if *width* lets it."""
    run_case(case("CTCBeamSearchDecoder", scores(time, 1, 7), i32(time), beam_width=width, top_paths=1))


def test_a_beam_that_grows_asks_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_no_room(num_bytes: int, what: str, held: int) -> None:
        raise ResourceExhaustedError(f"{what} {num_bytes}, {held} are held")

    monkeypatch.setattr(ctc_decoding, "_PART", 64)
    monkeypatch.setattr(ctc_decoding, "check_room", has_no_room)
    with pytest.raises(ResourceExhaustedError, match="the beam grows by 38400, 38400 are held"):
        search()


def test_a_search_ends_when_its_call_is_given_up() -> None:
    call = CancellableCall()
    call.give_up()
    context = contextvars.copy_context()
    context.run(call_around.set, call)
    with pytest.raises(CancelledError):
        context.run(search)


def test_nothing_of_a_beam_is_left_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        search(width=10, time=5)
        assert not any(isinstance(found, ctc_decoding._Entry) for found in gc.get_objects())
    finally:
        gc.enable()
