"""Recurrent layers run by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_cluster import translated
from asyncexec.passes.onnx_emitter import Emitter
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.session.library_passes import MIN_WORK
from tests.passes.recurrent_graphs import CASES, GOLDEN, assert_close, golden, outputs_and_ops

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.mark.allow_blocking
@pytest.mark.parametrize(("name", "kind"), CASES)
async def test_onnx_runtime_runs_the_whole_layer(name: str, kind: str) -> None:
    graph, fetches, wanted = golden(name, kind)
    got, found = await outputs_and_ops(graph, fetches, {"x:0": GOLDEN["x"]}, ax.SessionConfig(jit="onnxruntime"))
    assert_close(got, wanted)
    assert found["_OnnxCluster"] == 1
    assert not found.keys() & {"LoopCond", "ReverseV2", "Onnx>LSTM", "Onnx>GRU", "Onnx>RNN"}


def gru_node(steps: int | None, rows: int, units: int) -> Node:
    with ax.Graph():
        x = ax.placeholder(ax.float32, [steps, rows, 32])
        weights = [ax.constant(np.zeros((1, 3 * units, size), np.float32)) for size in (32, units)]
        (y,) = ax.create_op(
            "Onnx>GRU", [[x, *weights]], attrs={"Tout": [ax.float32], "opset": 17, "hidden_size": units}
        )
    return y.op


@pytest.mark.parametrize("steps", [64, None])
def test_many_steps_of_a_small_layer_are_worth_a_cluster_but_no_threads(steps: int | None) -> None:
    node, emitter = gru_node(steps, 1, 64), Emitter(lambda _: False)
    TRANSLATIONS[node.op](emitter, node)
    assert emitter.work >= MIN_WORK
    assert not run_at_once(translated([node], node.outputs, frozenset(), {})).is_large
    work = run_at_once(emitter.model(node.outputs)).work
    assert (work.shared, work.on_threads(1)) == (0, 0)


def test_a_step_of_a_large_layer_is_worth_threads() -> None:
    node = gru_node(64, 16, 256)
    translation = run_at_once(translated([node], node.outputs, frozenset(), {}))
    assert translation.model().work.on_threads(1) >= 64 * 16 * 3 * 256 * (32 + 256)
    assert translation.is_large
