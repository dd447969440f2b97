"""The node cases of ``onnx.backend.test``, run kernel by kernel.

``python -m tests.ops.onnx.node_cases [OP ...]`` prints for each op how many of the cases that have it pass and fail,
and why.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case import node as case_modules

import asyncexec.ops.onnx as package
from asyncexec.framework.kernel import as_values
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, find_onnx_kernel

for _module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
    importlib.import_module(_module.name)


# Cases whose results we do not give -> why not.
DIFFERENT = {
    "test_attention_4d_causal_fp16_expanded": "rounded to half after each op of Softmax; ours, rounded once, is nearer",
    **dict.fromkeys(
        (
            "test_resize_downsample_scales_cubic_align_corners",
            "test_resize_downsample_scales_linear_align_corners",
        ),
        "it takes scale * length for the length of the output, which the op rounds down; so does ONNX Runtime",
    ),
}


class NoKernelError(Exception):
    """An op of the case has no kernel, or nodes that only an importer can run."""


@functools.cache
def cases_in(module: str) -> list[Any]:
    """The node cases of the op that one module of the library is about."""
    with warnings.catch_warnings(action="ignore"):
        importlib.import_module(f"{case_modules.__name__}.{module}")
    op = module.replace("_", "").removesuffix("op")  # Range is in rangeop
    return [case for case in case_modules._NodeTestCases if op in map(str.lower, ops_of(case.model))]


def all_cases() -> list[Any]:
    """Every node case; the library takes seconds to make them."""
    with warnings.catch_warnings(action="ignore"):
        for module in pkgutil.walk_packages(case_modules.__path__, f"{case_modules.__name__}."):
            importlib.import_module(module.name)
    return list(case_modules._NodeTestCases)


def ops_of(model: onnx.ModelProto) -> list[str]:
    """The op types of a model's nodes."""
    return [node.op_type for node in model.graph.node]


def as_tensor(value: Any) -> Any:
    """A tensor as kernels take it: strings as bytes, a scalar without an array around it."""
    if isinstance(value, (onnx.TensorProto,)):
        value = numpy_helper.to_array(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        encoded = np.empty(value.shape, object)
        encoded.ravel()[:] = [item.encode() if isinstance(item, str) else item for item in value.ravel()]
        value = encoded
    return as_values([value])[0]


def attribute(attr: onnx.AttributeProto) -> Any:
    """The value of an attribute as factories take it."""
    value = helper.get_attribute_value(attr)
    if attr.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise NoKernelError("a graph in an attribute")
    if attr.type == onnx.AttributeProto.TENSOR:
        return as_tensor(value)
    return list(value) if isinstance(value, (list, tuple)) or hasattr(value, "append") else value


def make_node(proto: onnx.NodeProto, opsets: dict[str, int]) -> OnnxNode:
    """What a factory is told of a node of a model."""
    return OnnxNode(
        proto.op_type,
        proto.domain,
        opsets.get(proto.domain, 1),
        {attr.name: attribute(attr) for attr in proto.attribute},
        tuple(bool(name) for name in proto.input),
        tuple(bool(name) for name in proto.output),
        (None,) * len(proto.output),
    )


def run_node(node: OnnxNode, *inputs: Any) -> tuple[Any, ...]:
    """What the kernel of *node* gives for *inputs*."""
    found = find_onnx_kernel(node.op_type, node.opset, node.domain)
    if found is None:
        raise NoKernelError(node.op_type)
    with np.errstate(all="ignore"):
        return as_values(found.factory(node)(*inputs))


def run_op(op_type: str, *inputs: Any, opset: int = 28, outputs: int = 1, **attrs: Any) -> Any:
    """What op *op_type* gives for *inputs*: its only output, or all of them."""
    encoded = {name: value.encode() if isinstance(value, str) else value for name, value in attrs.items()}
    named = tuple(value is not None for value in inputs)
    given = run_node(OnnxNode(op_type, "", opset, encoded, named, (True,) * outputs, (None,) * outputs), *inputs)
    return given[0] if outputs == 1 else given


def run_model(model: onnx.ModelProto, feeds: list[Any]) -> list[Any]:
    """The outputs of a model without subgraphs, its nodes run one after the other."""
    opsets = {"" if item.domain == "ai.onnx" else item.domain: item.version for item in model.opset_import}
    values: dict[str, Any] = {"": None}
    values.update({item.name: as_tensor(item) for item in model.graph.initializer})
    names = [item.name for item in model.graph.input if item.name not in values]
    values.update(zip(names, map(as_tensor, feeds), strict=False))
    for proto in model.graph.node:
        inputs = [values[name] for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        given = run_node(make_node(proto, opsets), *inputs)
        values.update((name, value) for name, value in zip(proto.output, given, strict=True) if name)
    return [values[item.name] for item in model.graph.output]


def assert_same(given: Any, expected: Any, rtol: float, atol: float) -> None:
    """Same dtype and shape; integers, strings and truth values equal, floats within the tolerances."""
    expected = as_tensor(expected)
    if isinstance(expected, (list, type(None))):
        assert isinstance(given, type(expected))
        return
    wanted = np.asarray(expected, object) if isinstance(expected, bytes) else np.asarray(expected)
    found = np.asarray(given, object) if isinstance(given, bytes) else np.asarray(given)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind in "fc":
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    elif wanted.dtype.kind == "V":
        # As in the library's own runner: its cases of bfloat16 are rounded after each op.
        rtol = max(rtol, 2**-6) if wanted.dtype.name == "bfloat16" else rtol
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found, wanted)


def run_case(case: Any) -> None:
    """Run one case; an AssertionError where a result differs."""
    for feeds, expected in case.data_sets:
        given = run_model(case.model, feeds)
        for value, wanted in zip(given, expected, strict=True):
            if is_random(case):
                assert np.shape(value) == np.shape(wanted)
                assert np.asarray(value).dtype == np.asarray(wanted).dtype
            else:
                assert_same(value, wanted, case.rtol, case.atol)


def is_random(case: Any) -> bool:
    """Whether only dtypes and shapes of the results are known."""
    return case.name.startswith(("test_bernoulli", "test_training_dropout"))


def outcomes(wanted: set[str]) -> Iterator[tuple[str, str]]:
    """The name of each case that has one of the *wanted* ops (all if none is), and why it failed, or nothing."""
    for case in all_cases():
        if wanted and not wanted & set(ops_of(case.model)):
            continue
        try:
            run_case(case)
        except NoKernelError as error:
            yield case.name, f"no kernel: {error}"
        except Exception as error:
            yield case.name, f"{type(error).__name__}: {error}"
        else:
            yield case.name, ""


def main(wanted: set[str]) -> None:
    """Print what passed and failed, per op."""
    by_name = dict(outcomes(wanted))
    ops = {case.name: ops_of(case.model) for case in all_cases() if case.name in by_name}
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for name, why in by_name.items():
        for op in set(ops[name]):
            (failed if why else passed)[op] += 1
        if why:
            print(f"{name}: {' '.join(why.split())[:200]}")
    for op in sorted(wanted or passed | failed):
        print(f"{op:30} {passed[op]:5} passed {failed[op]:5} failed")
    for name in DIFFERENT.keys() & by_name.keys():
        print(f"{name} is expected to differ: {DIFFERENT[name]}")
    print(f"{sum(not why for why in by_name.values())} of {len(by_name)} cases pass")


if __name__ == "__main__":
    main(set(sys.argv[1:]))
