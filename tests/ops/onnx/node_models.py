"""Runs models of one or several nodes by the kernels of ONNX ops alone, and the node cases that ONNX comes with.

``python -m tests.ops.onnx.node_models [Op...]`` prints how many cases of each op pass and which fail.
"""

from __future__ import annotations

import argparse
import importlib
import traceback
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.kernel import as_value, as_values
from asyncexec.ops.onnx import nn_ops  # noqa: F401  registers the kernels
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, find_onnx_kernel

CASES = "onnx.backend.test.case.node"


class NoKernelError(Exception):
    """A node of the model has no kernel."""


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a NodeProto as kernels get them."""
    onnx = importlib.import_module("onnx")
    values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {
        name: onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for name, value in values.items()
    }


def run_nodes(nodes: Iterable[Any], opsets: dict[str, int], values: dict[str, Any]) -> dict[str, Any]:
    """What the nodes make of *values*, by name."""
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        found = find_onnx_kernel(node.op_type, opsets[domain], domain)
        if found is None:
            raise NoKernelError(node.op_type)
        told = OnnxNode(
            node.op_type,
            domain,
            opsets[domain],
            attributes(node),
            tuple(map(bool, node.input)),
            tuple(map(bool, node.output)),
        )
        inputs = [values[name] if name else None for name in node.input]
        with np.errstate(all="ignore"):
            outputs = as_values(found.factory(told)(*inputs))
        assert len(outputs) == len(node.output)
        values.update((name, value) for name, value in zip(node.output, outputs, strict=True) if name)
    return values


def run_model(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of *model* for its *inputs* in order."""
    opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
    names = [one.name for one in model.graph.input]
    values = run_nodes(
        model.graph.node, opsets, {name: prepared(value) for name, value in zip(names, inputs, strict=True)}
    )
    return [values[one.name] for one in model.graph.output]


def prepared(value: Any) -> Any:
    """*value* of a case as kernels get it: strings as bytes, scalars for 0-d arrays, nothing that can be written to."""
    if type(value).__name__ == "TensorProto":
        value = importlib.import_module("onnx").numpy_helper.to_array(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "UO":
            value = np.vectorize(lambda one: one.encode() if isinstance(one, str) else one, otypes=[object])(value)
        else:
            value = value.copy()
            value.flags.writeable = False
        return as_value(value)
    return value


def check(got: Any, want: Any, rtol: float, atol: float) -> None:
    """AssertionError unless *got* is *want* as ONNX compares."""
    if type(want).__name__ == "TensorProto":
        want = importlib.import_module("onnx").numpy_helper.to_array(want)
    if isinstance(want, np.ndarray | np.generic):
        expected = np.asarray(want)
        if expected.dtype.kind in "UO":
            assert np.asarray(prepared(expected)).tolist() == np.asarray(got).tolist()
            return
        assert np.asarray(got).dtype == expected.dtype, f"{np.asarray(got).dtype}, not {expected.dtype}"
        assert np.shape(got) == expected.shape, f"{np.shape(got)}, not {expected.shape}"
        if expected.dtype.kind not in "biufc" or expected.dtype.name == "float16":
            got, expected = np.asarray(got).astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            check(one, other, rtol, atol)
    else:
        assert got == want


def run_case(case: Any) -> None:
    """AssertionError unless the kernels give what the case tells."""
    for inputs, outputs in case.data_sets:
        got = run_model(case.model, inputs)
        assert len(got) == len(outputs)
        for one, other in zip(got, outputs, strict=True):
            check(one, other, case.rtol, case.atol)


def cases_of(*modules: str) -> list[Any]:
    """The node cases in those modules of ONNX's; of all of them where none is named."""
    package = importlib.import_module(CASES)
    if not modules:
        return list(package.collect_testcases())
    for name in modules:
        importlib.import_module(f"{CASES}.{name}")
    return list(package._NodeTestCases)


def report(ops: Sequence[str], errors: bool) -> None:
    """Print how many of the cases of each op pass, and which fail."""
    passed: defaultdict[str, list[str]] = defaultdict(list)
    failed: defaultdict[str, list[str]] = defaultdict(list)
    for case in cases_of():
        kinds = {node.op_type for node in case.model.graph.node}
        if ops and not kinds.intersection(ops):
            continue
        label = kinds.pop() if len(kinds) == 1 else "several ops"
        try:
            run_case(case)
        except NoKernelError:
            continue
        except Exception as error:
            failed[label].append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            if errors:
                traceback.print_exc()
        else:
            passed[label].append(case.name)
    for label in sorted({*passed, *failed}):
        print(f"{label:28} {len(passed[label]):4} passed {len(failed[label]):4} failed")
        for line in failed[label]:
            print("    ", line)
    print("all:", sum(map(len, passed.values())), "passed", sum(map(len, failed.values())), "failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--errors", action="store_true")
    arguments = parser.parse_args()
    report(arguments.ops, arguments.errors)
