"""The event loop has its turn often while a large cluster is found, translated and bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.compilation.onnx_kernel import OwnKernels
from asyncexec.framework.cooperative import FEW, Stage, run_at_once
from asyncexec.passes import onnx_cluster, onnx_clusters
from asyncexec.passes.onnx_clusters import ClusterRegistration, OnnxClusters
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.passes.pass_graph import PassGraph
from asyncexec.pruning.prune import prune

NUM_NODES = 100


class Calls:
    """Counts calls between two yields of a stage."""

    def __init__(self) -> None:
        self.total = self.most = self._now = 0

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._now += 1
            self.total += 1
            self.most = max(self.most, self._now)
            return function(*args)

        return call

    def during(self, stage: Stage[Any]) -> Any:
        """What *stage* gives."""
        while True:
            self._now = 0
            try:
                next(stage)
            except StopIteration as stop:
                return stop.value


def test_few_members_are_looked_at_translated_and_bound_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with ax.Graph() as graph:
        y = ax.matmul(ax.placeholder(ax.float32, [3, 4]), ax.constant([[1.0] * 4] * 4))
        for _ in range(NUM_NODES):
            y = -y
    passed = run_at_once(PassGraph.open(run_at_once(prune([], [y], [])), graph))
    translating, binding = Calls(), Calls()
    counted = {op: translating.counted(translation) for op, translation in TRANSLATIONS.items()}
    for module in (onnx_clusters, onnx_cluster):
        monkeypatch.setattr(module, "TRANSLATIONS", counted)
    translating.during(passed.apply(OnnxClusters(0.0)))
    assert translating.most <= FEW < NUM_NODES < translating.total
    (registration,) = (
        node.properties.registration for node in passed if isinstance(node.properties.registration, ClusterRegistration)
    )
    assert registration.cluster is not None
    own = binding.during(OwnKernels.bound(registration.cluster, binding.counted(lambda call: call.node.name)))
    assert len(own.calls) == NUM_NODES + 1
    assert binding.most <= FEW
