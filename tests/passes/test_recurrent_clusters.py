"""Recurrent layers run by ONNX Runtime."""

from __future__ import annotations

import pytest

import asyncexec as ax
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
