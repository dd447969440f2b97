"""Models of ONNX that nodes of TensorFlow become, and what they give beside our own kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.passes.onnx_emitter import Emitter
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.process.onnx_model import OnnxModel
from asyncexec.process.onnx_session import load

Made: TypeAlias = Callable[[ax.Tensor], ax.Tensor]


@dataclass(frozen=True)
class Translated:
    """What ``made`` gives for x, as nodes of TensorFlow, and as a model."""

    graph: ax.Graph
    x: ax.Tensor
    y: ax.Tensor
    model: OnnxModel

    @classmethod
    def of(cls, made: Made, dims: Sequence[int | None]) -> Translated:
        """That of *made*, for an x of *dims*."""
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, dims)
            y = made(x)
        emitter = Emitter(lambda tensor: False)
        for node in graph.operations:
            if node.op not in ("Const", "Placeholder"):
                TRANSLATIONS[node.op](emitter, node)
        return cls(graph, x, y, run_at_once(emitter.model([y])))

    def assert_has(self, wanted_ops: Mapping[str, int]) -> None:
        """The model has so many nodes of these ops."""
        found = Counter(node.op for node in self.model.nodes)
        assert {op: found[op] for op in wanted_ops} == wanted_ops

    async def assert_is_equal(self, shape: Sequence[int], *, rtol: float) -> None:
        """The model gives what our own kernels give for an x of that *shape*."""
        given = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 3
        async with ax.Session(self.graph, ax.SessionConfig(jit="off")) as session:
            wanted = await session.run(self.y, {self.x: given})
        got = load(self.model).run([given])
        assert got is not None
        assert got[0].shape == wanted.shape
        np.testing.assert_allclose(got[0], wanted, rtol=rtol, atol=0.1 * rtol * max(1, np.abs(wanted).max()))
