"""What is known of a cluster's kernel, by which it is decided where it runs."""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation import onnx_kernel
from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.compilation.onnx_kernel import OnnxKernel, OwnKernels
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.passes.onnx_cluster import OnnxCluster
from asyncexec.passes.onnx_clusters import ClusterRegistration, OnnxClusters
from asyncexec.passes.pass_graph import PassGraph
from asyncexec.process.cores import call_and_stay, call_on_first_core
from asyncexec.pruning.prune import prune


class FakeSession:
    """Stands for a model that is loaded."""

    def __init__(self) -> None:
        self.lasting: dict[Any, Any] = {}

    def run(self, inputs: Any, manager: Any = None) -> Any:
        return [-inputs[0]]


def cluster(*, of_variable: bool = False) -> OnnxCluster:
    """One of a product."""
    with ax.Graph() as graph:
        weights = ax.constant([[-1.0, 0.0], [0.0, -1.0]])
        y = ax.matmul(ax.placeholder(ax.float32, [None, 2]), ax.Variable(weights) if of_variable else weights)
    passed = run_at_once(PassGraph.open(run_at_once(prune([], [y], [])), graph))
    run_at_once(passed.apply(OnnxClusters(0.0)))
    registrations = [node.properties.registration for node in passed]
    (found,) = (each.cluster for each in registrations if isinstance(each, ClusterRegistration))
    assert found is not None
    return found


def wait_for_loading() -> None:
    for thread in threading.enumerate():
        if thread.name == "asyncexec-onnx":
            thread.join()


def test_a_kernel_is_settled_when_the_way_is_known_for_all_sizes_that_have_come() -> None:
    binder, session, times = KernelBinder(ResourceMgr()), FakeSession(), itertools.count()
    product = cluster()
    own = run_at_once(OwnKernels.bound(product, lambda call: binder.bind(call.node).kernel))
    clock = ax.Clock(cpu_ns=lambda: next(times) ** 2)
    first, second, third = (
        OnnxKernel(product, own, is_forced=False, clock=clock, load=lambda model: session)  # type: ignore[arg-type,return-value]
        for _ in range(3)
    )
    small, large = np.ones((1, 2), np.float32), np.ones((1000, 2), np.float32)
    for given in (small, large):
        first(given)
        wait_for_loading()
        assert not first.is_settled
        for _ in range(14):
            np.testing.assert_array_equal(first(given)[0], -given)
        assert first.is_settled
    second(small)
    wait_for_loading()
    assert not second.is_settled
    second(small)
    assert second.is_settled  # they share what is known once they share the model
    assert not third.is_settled
    third.prepare()
    assert third.is_settled  # before its first call
    num_left = len(session.lasting)
    np.testing.assert_array_equal(third(small)[0], -small)
    assert third.is_settled
    assert len(session.lasting) == num_left


class FakeLayers:
    """Native code that is to come, until it is said that it has."""

    def __init__(self) -> None:
        self.is_asked = self.has_come = False

    def __call__(self, work: float) -> None:
        return None

    def is_coming(self) -> bool:
        self.is_asked = True
        return not self.has_come


def test_ways_are_timed_once_native_code_has_come() -> None:
    binder, session, product = KernelBinder(ResourceMgr()), FakeSession(), cluster()
    own = run_at_once(OwnKernels.bound(product, lambda call: binder.bind(call.node).kernel))
    (rule,) = (kernel.layer_rule for _, kernel, _ in own.calls)  # type: ignore[attr-defined]
    rule.find_native, rule.is_far_quicker = layers, _ = FakeLayers(), True
    times = itertools.count()
    clock = ax.Clock(cpu_ns=lambda: next(times) ** 2)
    first = OnnxKernel(product, own, is_forced=False, clock=clock, load=lambda model: session)  # type: ignore[arg-type,return-value]
    given = np.ones((1, 2), np.float32)
    first(given)
    wait_for_loading()
    assert not layers.is_asked
    for _ in range(20):
        first(given)
    assert (layers.is_asked, first.is_settled) == (True, False)
    layers.has_come = True
    for _ in range(20):
        first(given)
    assert first.is_settled
    rule.find_native = None
    second = OnnxKernel(product, own, is_forced=False, clock=clock, load=lambda model: session)  # type: ignore[arg-type,return-value]
    second.prepare()
    assert not second.is_settled  # its own kernels are others


def test_of_a_kernel_that_cannot_be_loaded_it_is_known_that_it_stays_as_it_is() -> None:
    binder, product = KernelBinder(ResourceMgr()), cluster()
    own = run_at_once(OwnKernels.bound(product, lambda call: binder.bind(call.node).kernel))

    def fail(model: Any) -> Any:
        raise ValueError("no such model")

    kernel = OnnxKernel(product, own, is_forced=False, load=fail)
    kernel.prepare()
    assert kernel.is_settled
    np.testing.assert_array_equal(kernel(np.ones((1, 2), np.float32))[0], [[-1, -1]])


def test_calls_that_fail_are_made_by_its_own_kernels_and_only_many_in_a_row_are_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(FakeSession):
        fails = True
        num_calls = 0

        def run(self, inputs: Any, manager: Any = None) -> Any:
            self.num_calls += 1
            if self.fails:
                raise ValueError("an image smaller than a filter")
            return super().run(inputs)

    product, session, given = cluster(), Failing(), np.ones((1, 2), np.float32)
    own = run_at_once(OwnKernels.bound(product, lambda call: KernelBinder(ResourceMgr()).bind(call.node).kernel))
    kernel = OnnxKernel(product, own, is_forced=True, load=lambda model: session)  # type: ignore[arg-type,return-value]
    for fails in (True, True, False, True, True, False):
        session.fails = fails
        np.testing.assert_array_equal(kernel(given)[0], -given)
    assert session.num_calls == 6
    session.fails = True
    assert not caplog.messages
    for _ in range(4):
        np.testing.assert_array_equal(kernel(given)[0], -given)
    assert session.num_calls == 9
    assert "an image smaller than a filter" in caplog.text


def test_to_wait_for_who_helps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's clock stands still; our own kernels wait for 5 ms at each call."""
    waited_ns = 0

    def own(inputs: Any, manager: Any) -> tuple[Any, ...]:
        nonlocal waited_ns
        waited_ns += 5_000_000
        return (-inputs[0],)

    monkeypatch.setattr(onnx_kernel, "waited_ns", lambda: waited_ns)
    session, clock, given = FakeSession(), ax.Clock(cpu_ns=lambda: 0), np.ones((1, 2), np.float32)
    own_kernels = mock.Mock(side_effect=own, calls=[])
    kernel = OnnxKernel(cluster(), own_kernels, is_forced=False, clock=clock, load=lambda model: session)  # type: ignore[arg-type,return-value]
    kernel.prepare()
    for _ in range(12):
        kernel(given)
    (trial,) = kernel._trials.values()
    assert trial.choice == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no such call")
@pytest.mark.parametrize("fails", [False, True])
def test_its_own_kernels_have_all_cores_where_the_model_gives_nothing(fails: bool) -> None:
    class Guarded(FakeSession):
        def run(self, inputs: Any, manager: Any = None) -> Any:
            call_on_first_core(len, "")
            if fails:
                raise ValueError("an image smaller than a filter")

    cores, found = os.sched_getaffinity(0), []

    def own(inputs: Any, manager: Any) -> tuple[Any, ...]:
        found.append(os.sched_getaffinity(0))
        return (-inputs[0],)

    own_kernels = mock.Mock(side_effect=own, calls=[])
    kernel = OnnxKernel(cluster(), own_kernels, is_forced=True, load=lambda model: Guarded())  # type: ignore[arg-type,return-value]
    call_and_stay(kernel, np.ones((1, 2), np.float32))
    assert found == [cores]


def test_nothing_is_left_to_its_own_kernels() -> None:
    """ONNX Runtime takes 0 for the mean of nothing."""

    class Never(FakeSession):
        def run(self, inputs: Any, manager: Any = None) -> Any:
            raise AssertionError

    product = cluster()
    own = run_at_once(OwnKernels.bound(product, lambda call: KernelBinder(ResourceMgr()).bind(call.node).kernel))
    kernel = OnnxKernel(product, own, is_forced=True, load=lambda model: Never())  # type: ignore[arg-type,return-value]
    assert kernel(np.ones((0, 2), np.float32))[0].shape == (0, 2)


def test_a_kernel_is_prepared_for_the_values_that_the_one_before_has() -> None:
    session, given, loaded = FakeSession(), np.ones((1, 2), np.float32), []
    product = cluster(of_variable=True)
    own = run_at_once(OwnKernels.bound(product, lambda call: KernelBinder(ResourceMgr()).bind(call.node).kernel))

    def load(model: Any) -> Any:
        loaded.append(model)
        return session

    first, second = (OnnxKernel(product, own, is_forced=False, load=load) for _ in range(2))
    second.prepare()
    assert loaded == []
    values = np.array([[-1, 0], [0, -1]], np.float32)
    first(given, values)
    wait_for_loading()
    second.prepare(first)
    assert len(loaded) == 2
    np.testing.assert_array_equal(second(given, values)[0], -given)
    assert len(loaded) == 2
