"""Models that ONNX Runtime has loaded: what they share, and how many threads a call takes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncexec.process import cores, onnx_session
from asyncexec.process.cores import CoreBudget
from asyncexec.process.onnx_model import SHARED_STEP, OnnxModel, OnnxNode, Work
from asyncexec.process.onnx_session import LONG, OnnxSession, encoded, load

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

W = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
X = np.ones((3, 40), np.float32)
NONE = Work(0.0)
MUCH = Work(LONG)


def product(w: Any, work: Work = NONE) -> OnnxModel:
    """The model of ``x @ w``."""
    nodes = (OnnxNode("MatMul", ("x", "w"), ("y",), {}),)
    return OnnxModel((("x", np.dtype(np.float32), (None, 40)),), ("y",), nodes, {"w": w}, 0, work)


@pytest.mark.parametrize("work", [NONE, Work(1e9)])
def test_large_constants_of_any_strides_are_given_beside_the_model(work: float) -> None:
    stored = np.asfortranarray(W)
    stored.flags.writeable = False
    data, arrays = encoded(product(stored))
    assert len(data) < W.nbytes == sum(array.nbytes for array in arrays.values())
    (found,) = load(product(stored, work)).run([X]) or ()
    np.testing.assert_allclose(found, X @ W, rtol=1e-5, atol=1e-5)


def test_equal_models_are_loaded_once_and_others_are_not_taken_for_them() -> None:
    first, same, other = load(product(W)), load(product(W.copy())), load(product(W + 1))
    assert first is same
    assert first is not other


class Opened:
    """What answers how many threads it has, after a call within it, if there is one."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.within: Any = None

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", shape=["rows", 40])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y")]

    def run(self, *_: Any) -> list[Any]:
        within, self.within = self.within, None
        return [self.num_threads] if within is None else [self.num_threads, *within()]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """What is opened, on a machine of four cores."""
    found: list[Opened] = []

    def make(data: bytes, arrays: Any, num_threads: int, stop: Any) -> Opened:
        found.append(Opened(num_threads))
        return found[-1]

    monkeypatch.setattr(onnx_session, "_opened", make)
    monkeypatch.setattr(onnx_session, "num_cores", lambda: 4)
    return found


@pytest.mark.parametrize(
    ("is_large", "num_idle", "expected"), [(True, 4, 4), (True, 3, 4), (True, 2, 1), (True, 1, 1), (False, 4, 1)]
)
def test_a_large_call_takes_all_cores_where_most_are_idle(
    is_large: bool, num_idle: int, expected: int, opened: list[Opened]
) -> None:
    session = OnnxSession(b"", {}, 0, work=MUCH if is_large else NONE, budget=CoreBudget(lambda: num_idle))
    assert session.run([X[:1]]) == [expected]


@pytest.mark.parametrize(
    ("work", "rows", "expected"),
    [
        (Work(LONG / 3), 1, 1),
        (Work(LONG / 3), 3, 4),
        (Work(0.0, LONG, SHARED_STEP / 3), 1, 1),  # a step of it is too little to be shared
        (Work(0.0, LONG, SHARED_STEP / 3), 3, 4),
        (Work(0.0, LONG / 100, SHARED_STEP), 3, 1),
    ],
)
def test_a_batch_is_as_much_work_as_it_has_rows(work: Work, rows: int, expected: int, opened: list[Opened]) -> None:
    session = OnnxSession(b"", {}, 0, work=work, budget=CoreBudget(lambda: 4))
    assert session.run([X[:rows]]) == [expected]


def test_of_calls_side_by_side_one_takes_several_threads(opened: list[Opened]) -> None:
    budget = CoreBudget(lambda: 4)
    one, other = (OnnxSession(b"", {}, 0, work=MUCH, budget=budget) for _ in range(2))
    opened[1].within = lambda: other.run([X[:1]]) or ()  # while the first call runs, on all cores
    assert one.run([X[:1]]) == [4, 1]
    assert other.run([X[:1]]) == [4]


def test_a_call_that_fails_leaves_the_cores_to_the_next(opened: list[Opened]) -> None:
    session = OnnxSession(b"", {}, 0, work=MUCH, budget=CoreBudget(lambda: 4))
    for each in opened:
        each.within = lambda: [1 / 0]
    with pytest.raises(ZeroDivisionError):
        session.run([X[:1]])
    assert session.run([X[:1]]) == [4]


async def test_a_short_call_in_an_event_loop_takes_one_thread_and_asks_for_no_cores(opened: list[Opened]) -> None:
    session = OnnxSession(b"", {}, 0, work=Work(LONG), budget=CoreBudget(lambda: pytest.fail("it looks")))
    assert session.run([X[:1]]) == [1]


async def test_a_long_one_takes_several_and_does_not_wait_for_them(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "num_cores", lambda: 4)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    for num_idle, wanted in ((4, 4), (1, 1)):
        session = OnnxSession(b"", {}, 0, work=Work(1e12), budget=CoreBudget(lambda idle=num_idle: idle))
        assert session.run([X[:1]]) == [wanted]
