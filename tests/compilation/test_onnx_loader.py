"""When the model of a cluster is loaded, for which values of variables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from asyncexec.compilation.onnx_loader import OnnxLoader
from asyncexec.framework.interpreter import gil_is_enabled


class Loads:
    """A loader whose sessions are the values that they are for."""

    def __init__(self) -> None:
        self.values: list[Sequence[Any]] = []
        self.intervals: list[float] = []
        self.error: Exception | None = None
        cluster = SimpleNamespace(name="product/onnx", translation=SimpleNamespace(model=lambda values: values))
        self.loader = OnnxLoader(cast(Any, cluster), self._load, waits=True)

    def _load(self, model: Any) -> Any:
        self.values.append(model)
        self.intervals.append(sys.getswitchinterval())
        if self.error is not None:
            raise self.error
        return model

    def call(self, *values: object) -> bool:
        """Whether a call with *values* has a model."""
        found = self.loader.session(values)
        assert found in (None, values)
        return found is not None


def test_what_has_no_variables_is_loaded_once() -> None:
    loads = Loads()
    assert [loads.call() for _ in range(3)] == [True] * 3
    assert loads.values == [()]


def test_the_objects_count_and_not_what_they_are_equal_to() -> None:
    loads, one, same = Loads(), [1], [1]
    assert loads.call(one)
    assert not loads.call(same)
    assert loads.call(one)


def test_calls_with_new_values_before_a_load_double() -> None:
    loads = Loads()
    found = []
    for _ in range(4):
        value = object()
        count = 1
        while not loads.call(value):
            count += 1
        found.append(count)
    assert found == [1, 2, 4, 8]
    assert len(loads.values) == 4


def test_values_that_change_with_every_call_are_loaded_once() -> None:
    loads = Loads()
    assert [loads.call(object()) for _ in range(100)] == [True] + [False] * 99
    assert len(loads.values) == 1


def test_one_of_several_values_that_is_new_is_enough() -> None:
    loads, kept = Loads(), object()
    assert loads.call(kept, kept)
    assert not loads.call(kept, object())


def test_after_a_failure_nothing_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    loads = Loads()
    loads.error = ValueError("no model")
    assert [loads.call() for _ in range(3)] == [False] * 3
    assert loads.loader.has_failed
    assert len(loads.values) == 1
    assert [record.message for record in caplog.records] == [
        "ONNX Runtime does not run product/onnx, so our own kernels do: ValueError: no model"
    ]


@pytest.mark.skipif(not gil_is_enabled(), reason="there is no GIL to switch")
def test_the_event_loop_gets_the_gil_soon_meanwhile() -> None:
    loads, before = Loads(), sys.getswitchinterval()
    loads.call()
    assert loads.intervals[0] < before == sys.getswitchinterval()
