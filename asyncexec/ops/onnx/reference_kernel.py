"""The kernel of an ONNX op that has none of ours: the onnx library's reference implementation, complete but slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.extras import is_installed, require
from asyncexec.framework.kernel import Kernel
from asyncexec.framework.onnx_kernels import OnnxNode

REFERENCE: Final = ("onnx.helper", "onnx.reference")
_MOST_OPSET: Final = 2**31 - 1


def reference_kernel(node: OnnxNode) -> Kernel:
    """A kernel that evaluates *node* alone by ``onnx.reference``.

    Raises:
        UnimplementedError: that has no such op either, or the onnx library is not installed.
    """
    what = f"op {node.op_type!r} of domain {node.domain or 'ai.onnx'!r}, opset {node.opset},"
    if not is_installed("onnx"):
        raise UnimplementedError(f"{what} has no kernel here", hint='pip install "asyncexec[onnx]" for a slow one')
    defs: Any = require("onnx.defs", extra="onnx")
    # The reference takes an op of a later operator set for this one.
    opset = min(max(node.opset, 0), _MOST_OPSET)
    if defs.has(node.op_type, node.domain) and not defs.has(node.op_type, opset, node.domain):
        raise UnimplementedError(f"{what} is of a later opset")
    helper: Any = require("onnx.helper", extra="onnx")
    reference: Any = require("onnx.reference", extra="onnx")
    inputs = [f"i{i}" if is_named else "" for i, is_named in enumerate(node.inputs)]
    outputs = [f"o{i}" for i in range(len(node.outputs))]
    named = [name for name in inputs if name]
    try:
        proto = helper.make_node(node.op_type, inputs, outputs, domain=node.domain, **_attributes(node.attrs))
        graph = helper.make_graph([proto], "node", [_value(name) for name in named], [_value(name) for name in outputs])
        opset_id = helper.make_opsetid(node.domain, node.opset)
        evaluator = reference.ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset_id]))
    except (RuntimeError, ValueError, TypeError, NotImplementedError, KeyError) as error:
        raise UnimplementedError(f"{what} has no kernel, not even a reference one: {error}") from error

    def run(*values: object) -> tuple[Any, ...]:
        feeds = {name: _given(value) for name, value in zip(inputs, values, strict=False) if name}
        try:
            return tuple(_taken(value) for value in evaluator.run(None, feeds))
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError) as error:
            raise InvalidArgumentError(f"the reference implementation of {what} fails: {error}") from error

    return run


def _attributes(attrs: Mapping[str, object]) -> dict[str, object]:
    numpy_helper: Any = require("onnx.numpy_helper", extra="onnx")
    return {
        name: numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else value
        for name, value in attrs.items()
    }


def _value(name: str) -> object:
    onnx: Any = require("onnx", extra="onnx")
    return onnx.ValueInfoProto(name=name)


def _given(value: object) -> object:
    """*value* as the reference implementation takes it: strings are str to it, scalars arrays."""
    if isinstance(value, list):
        return [_given(item) for item in value]
    array = np.asarray(value, object if isinstance(value, bytes) else None) if value is not None else None
    if array is not None and array.dtype == object:
        flat = [item.decode() if isinstance(item, bytes) else item for item in array.ravel()]
        return _objects(flat, array.shape)
    return array


def _taken(value: object) -> object:
    if isinstance(value, list):
        return [_taken(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT":
        flat = [str(item).encode() if isinstance(item, str) else item for item in value.ravel()]
        array = _objects(flat, value.shape)
        return array if array.ndim else flat[0]
    return value.encode() if isinstance(value, str) else value


def _objects(items: list[object], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array.reshape(shape)
