"""Nodes of which one input, or one attribute, is something else: they compute, or say what is wrong."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from asyncexec.framework.errors import OpError
from tests.ops.onnx.node_cases import run_op
from tests.ops.onnx.random_nodes import OPS, SHAPES, Draw, RandomNode

_DTYPES = [
    np.float32,
    np.int64,
    np.int32,
    np.uint8,
    np.bool_,
    np.float16,
    np.complex64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.int4,
    object,
]
_NUMBERS = [-9, -1, 0, 1, 2, 7, 2**62]


def _other_tensor(draw: Draw) -> Any:
    shape, dtype = draw.pick(*SHAPES), draw.pick(*_DTYPES)
    if dtype is object:
        return np.full(shape, b"x", object)
    return np.asarray(draw.rng.integers(-3, 9, shape)).astype(dtype)


def _other_attribute(draw: Draw, value: Any) -> Any:
    if isinstance(value, list):
        return [draw.pick(*_NUMBERS) for _ in value]
    return "other" if isinstance(value, str) else draw.pick(*_NUMBERS)


def _broken(op_type: str, seed: int) -> RandomNode:
    generator, dtypes = OPS[op_type]
    draw = Draw(seed, dtypes[seed % len(dtypes)])
    node = generator(draw, op_type)
    if node.inputs and draw.rng.random() < 0.8:
        node.inputs[draw.rng.integers(len(node.inputs))] = _other_tensor(draw)
    for name in [name for name in node.attrs if draw.rng.random() < 0.3]:
        node.attrs[name] = _other_attribute(draw, node.attrs[name])
    return node


def _run(op_type: str, seed: int) -> None:
    node = _broken(op_type, seed)
    inputs = [value if value is None else np.asarray(value)[()] for value in node.inputs]
    with warnings.catch_warnings(action="ignore"), contextlib.suppress(OpError):
        run_op(op_type, *inputs, opset=node.opset, outputs=node.outputs, **node.attrs)


@pytest.mark.parametrize("op_type", OPS)
def test_what_is_broken_is_refused_by_a_typed_error(op_type: str) -> None:
    for seed in range(6):
        _run(op_type, seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("op_type", OPS)
def test_many_that_are_broken_are_refused_by_a_typed_error(op_type: str) -> None:
    for seed in range(6, 400):
        _run(op_type, seed)
