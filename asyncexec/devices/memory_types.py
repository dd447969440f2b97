"""Which inputs and outputs of a node on an array device are in host memory: shapes, axes, sizes, and what has no dtype.

After ``MemoryTypesForNode`` in ``tensorflow/core/framework/memory_types.cc``: the kernels of an op say which arguments
they want there, and strings, handles and Python objects are always there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from asyncexec.framework import types
from asyncexec.framework.op_def import ArgDef, OpDef

# op -> the arguments that its kernels on array devices take from host memory, or give there
HOST_MEMORY_ARGS: Final[Mapping[str, tuple[str, ...]]] = {
    op: tuple(args.split())
    for ops, args in {
        "Shape ShapeN Size Rank": "output",
        "Switch": "pred",
        "_SwitchN": "output_index",
        "Merge": "value_index",
        "LoopCond": "input output",
        "Reshape BroadcastTo": "shape",
        "ExpandDims": "dim",
        "Fill": "dims",
        "Transpose": "perm",
        "Concat": "concat_dim",
        "ConcatV2": "axis",
        "Split": "split_dim",
        "Slice": "begin size",
        "StridedSlice": "begin end strides",
        "Sum Prod Mean Max Min All Any": "reduction_indices",
        "ArgMax ArgMin": "dimension",
    }.items()
    for op in ops.split()
}

# Values of these have no form in the memory of any device.
ALWAYS_ON_HOST: Final = frozenset({types.string, types.resource, types.variant, types.object})


class MemoryTypes(NamedTuple):
    """For each input and each output whether it is in host memory."""

    inputs_on_host: tuple[bool, ...]
    outputs_on_host: tuple[bool, ...]


def memory_types(op_def: OpDef, attrs: Mapping[str, object]) -> MemoryTypes:
    """Where the inputs and outputs are of a node of that op with *attrs*, on a device with memory of its own."""
    args = HOST_MEMORY_ARGS.get(op_def.name, ())
    return MemoryTypes(
        tuple(_on_host(op_def.inputs, attrs, args)),
        tuple(_on_host(op_def.outputs, attrs, args)),
    )


def _on_host(args: tuple[ArgDef, ...], attrs: Mapping[str, object], host_args: tuple[str, ...]) -> Iterator[bool]:
    for arg in args:
        for dtype in arg.dtypes(attrs):
            yield arg.name in host_args or dtype.base_dtype in ALWAYS_ON_HOST
