"""The general kernels beside ``onnx.reference``, on random nodes of many dtypes and shapes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.ops.onnx.node_cases import assert_same, run_op
from tests.ops.onnx.random_nodes import OPS, Draw, RandomNode

_TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-5, "float64": 1e-10}
_SEEDS = 25


def by_reference(node: RandomNode) -> list[Any]:
    names = [f"x{place}" if value is not None else "" for place, value in enumerate(node.inputs)]
    outputs = [f"y{place}" for place in range(node.outputs)]
    values = {name: np.asarray(value) for name, value in zip(names, node.inputs, strict=True) if name}
    graph = helper.make_graph(
        [helper.make_node(node.op_type, names, outputs, **node.attrs)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, values))


def difference(node: RandomNode) -> str | None:
    """How the kernel differs from the library; nothing where the library itself fails."""
    try:
        expected = by_reference(node)
    except Exception:
        return None
    scalars = [value if value is None else np.asarray(value)[()] for value in node.inputs]
    name = node.inputs[0].dtype.name
    rtol = _TOLERANCE.get(name, 1e-6)
    try:
        given = run_op(node.op_type, *scalars, opset=node.opset, outputs=node.outputs, **node.attrs)
        for value, wanted in zip(given if node.outputs > 1 else [given], expected, strict=True):
            assert_same(value, np.asarray(wanted), rtol, rtol)
    except Exception as error:
        shapes = [None if value is None else (value.dtype.name, value.shape) for value in node.inputs]
        return f"{node.op_type} {shapes} {node.attrs}: {' '.join(repr(error).split())[:300]}"
    return ""


@pytest.mark.deep
@pytest.mark.parametrize("op_type", OPS)
def test_random_nodes(op_type: str) -> None:
    generator, dtypes = OPS[op_type]
    found = [difference(generator(Draw(seed, dtype), op_type)) for dtype in dtypes for seed in range(_SEEDS)]
    assert [text for text in found if text] == []
    assert found.count("") >= len(found) // 2


def test_there_are_many_ops() -> None:
    assert len(OPS) >= 90
