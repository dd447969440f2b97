"""Times single kernels in a process of its own: a case by a line in, its time by a line out (``kernels.py`` asks).

The library is the one on the path, so that two versions of it can be compared. Without one of ours it is TensorFlow.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from time import process_time_ns
from typing import Any, Final

import numpy as np

LEAST_NS: Final = 5_000_000  # of processor time in a round


def inputs_of(case: dict[str, Any]) -> list[Any]:
    """The inputs: random numbers where the case tells a shape, else its value."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for spec in case["inputs"]:
        if "value" in spec:
            made.append(np.asarray(spec["value"], spec["dtype"]))
        elif spec["dtype"] == "int32":
            made.append(rng.integers(0, 7, spec["shape"], np.int32))
        else:
            made.append(
                np.abs(rng.standard_normal(spec["shape"])).astype(spec["dtype"]) - (0 if spec.get("positive") else 0.5)
            )
    return [value.astype(spec["dtype"]) for value, spec in zip(made, case["inputs"], strict=True)]


def our_call(case: dict[str, Any]) -> Callable[[], Any]:
    """A call of our kernel."""
    import asyncexec.ops  # noqa: F401 - registers the ops
    from asyncexec.framework import types
    from asyncexec.framework.kernel import OpKernelConstruction
    from asyncexec.framework.kernel_registry import registry as kernels
    from asyncexec.framework.op_registry import registry as ops
    from asyncexec.framework.resource_mgr import ResourceMgr
    from asyncexec.framework.tensor_shape import TensorShape
    from asyncexec.ops.state.variable_state import Variable
    from asyncexec.process.allocator import keep_freed_memory

    keep_freed_memory()  # as sessions do

    def attr(value: Any) -> Any:
        if isinstance(value, str):
            return getattr(types, value, None) or value.encode()
        return tuple(attr(item) for item in value) if isinstance(value, list) else value

    op_def = ops.lookup(case["op"]).op_def
    attrs = op_def.complete_attrs({name: attr(value) for name, value in case["attrs"].items()})
    made = OpKernelConstruction(
        "timed",
        op_def,
        attrs,
        op_def.input_dtypes(attrs),
        op_def.output_dtypes(attrs),
        ResourceMgr(),
        device="/job:localhost/replica:0/task:0/device:CPU:0",
    )
    kernel = kernels.lookup(case["op"], "CPU", attrs).factory(made)
    inputs: list[Any] = []
    for spec, value in zip(case["inputs"], inputs_of(case), strict=True):
        if spec.get("variable"):
            variable = Variable("v", types.float32, TensorShape(value.shape))
            variable.assign(value)
            inputs.append(variable)
        else:
            inputs.append(value if value.ndim else value[()])
    return lambda: kernel(*inputs)


def tensorflow_call(case: dict[str, Any]) -> Callable[[], Any]:
    """A call of TensorFlow's kernel, eagerly."""
    import tensorflow as tf

    if not tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    function = getattr(tf.raw_ops, case["op"])
    from tensorflow.python.framework import op_def_registry

    op_def = op_def_registry.get(case["op"])
    names = [arg.name for arg in op_def.input_arg]
    types_of_inputs = {arg.type_attr for arg in op_def.input_arg}
    attrs = {name: value for name, value in case["attrs"].items() if name not in types_of_inputs}
    keep, inputs = [], {}
    for name, spec, value in zip(names, case["inputs"], inputs_of(case), strict=True):
        if spec.get("variable"):
            keep.append(tf.Variable(value))
            inputs[name] = keep[-1].handle
        else:
            inputs[name] = tf.constant(value)

    def call(_: Sequence[Any] = tuple(keep)) -> Any:
        return function(**inputs, **attrs)

    return call


def main() -> None:
    """Answer each line with the nanoseconds of processor time that a call took; the best of a few rounds."""
    make = tensorflow_call if sys.argv[1:] == ["tensorflow"] else our_call
    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        try:
            if line not in calls:
                calls.clear()
                calls[line] = make(json.loads(line))
                calls[line]()
            print(json.dumps(best_ns(calls[line])), flush=True)
        except Exception as error:
            print(json.dumps(repr(error)[:200]), flush=True)


def best_ns(call: Callable[[], Any]) -> float:
    """The least processor time of a call, over a few rounds."""
    count, best = 1, float("inf")
    for _ in range(4):
        start = process_time_ns()
        for _ in range(count):
            call()
        took = process_time_ns() - start
        best = min(best, took / count)
        count = max(count, min(10_000, int(LEAST_NS / max(1, best))))
    return best


if __name__ == "__main__":
    main()
