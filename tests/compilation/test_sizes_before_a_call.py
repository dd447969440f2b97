"""What an op makes of little is told before it is called: by its shape function, a bound, or a check of its own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pytest

from asyncexec.compilation.guarded_kernels import Reckoner
from asyncexec.compilation.output_bounds import makes_text, text_bytes
from asyncexec.framework.op_registry import registry
from asyncexec.graph.node import Node
from tests.ops.op_case import OpCase
from tests.ops.op_runner import as_input, dtype_of, infer_attrs
from tests.ops.test_golden_ops import FAMILIES, decode, golden

# Ops that give more than they get, and do not tell before how much.
ASK: Final = frozenset(  # The kernel asks for the memory when it knows the sizes.
    """
    DecodeAndCropJpeg DecodeCompressed DecodeGif DecodeImage DecodeJpeg DecodePng DecodeProtoV2 DecodeWebP
    RaggedFillEmptyRows RaggedGather RaggedRange SparseFillEmptyRows
    """.split()
)
BOUNDED: Final = frozenset(  # At most a few bytes for each byte of the input, or for what an attr says.
    """
    AudioSummaryV2 CTCBeamSearchDecoder CTCGreedyDecoder DenseCountSparseOutput DenseToDenseSetOperation EncodePng
    EncodeWav HistogramSummary ListDiff ParseSequenceExample RaggedTensorToSparse SerializeManySparse SerializeSparse
    SparseSplit Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2
    """.split()
)
SMALL = 32  # bytes that an op may always add


@dataclass(frozen=True)
class Properties:
    """What a Reckoner asks of the properties of a node."""

    input_dtypes: Any
    output_dtypes: Any
    registration: Any


@dataclass(frozen=True)
class OfACase:
    """What a Reckoner asks of a node."""

    op: str
    op_def: Any
    attrs: Any
    properties: Properties


def node_of(case: OpCase) -> Node:
    registration = registry.lookup(case.op)
    op_def = registration.op_def
    attrs = infer_attrs(op_def, case)
    inputs = [dtype_of(value) for value in case.inputs]
    return cast(Node, OfACase(case.op, op_def, attrs, Properties(inputs, op_def.output_dtypes(attrs), registration)))


def size_of(value: Any, *, with_text: bool) -> int:
    array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
    return array.nbytes + (text_bytes(array) if with_text else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_grows_is_told_before_or_checked(family: str) -> None:
    """A new op that fails here needs a bound in output_bounds.py, or a kernel that asks for memory itself."""
    for case in importlib.import_module(f"tests.ops.cases.{family}").CASES:
        answer = golden(family)[case.label]
        if "error" in answer or case.op in ASK | BOUNDED:
            continue
        node = node_of(case)
        made = sum(size_of(decode(output), with_text=makes_text(node)) for output in answer["outputs"])
        given = sum(size_of(value, with_text=True) for value in case.inputs)
        told = Reckoner(node).num_bytes([as_input(value) for value in case.inputs])
        assert made <= max(told, given) + SMALL, f"{case.label}: {given} bytes in, {made} bytes out, told were {told}"


Ints = np.int64
AXES: Final[dict[str, Any]] = {"axes": [2, 3]}
ONNX: Final[list[tuple[str, dict[str, Any], list[Any], int]]] = [  # and how many elements there are to be
    ("ConstantOfShape", {}, [Ints([3, 4])], 12),
    ("Expand", {}, [np.zeros((3, 1)), Ints([2, 1, 4])], 24),
    ("Expand", {}, [np.zeros((2, 3, 4)), Ints([4])], 24),
    ("OneHot", {}, [np.zeros((2, 3), Ints), Ints(5), np.zeros(2)], 30),
    ("Pad", {}, [np.zeros((2, 3)), Ints([1, 0, 2, 3])], 5 * 6),
    ("Pad", {}, [np.zeros((2, 3)), Ints([1, 1]), np.float32(0), Ints([-1])], 2 * 5),
    ("Pad", {}, [np.zeros((2, 3)), Ints([5, 0, 5, 0]), np.float32(0), Ints([1, 0])], 2 * 13),
    ("Pad", {}, [np.zeros((20, 30)), Ints([0, -9, -19, 0])], 21),
    ("Expand", {}, [np.zeros((0, 1)), Ints([1, 10])], 0),
    ("Range", {}, [Ints(2**62), Ints(2**62 + 10), Ints(1)], 10),
    ("HannWindow", {}, [Ints(7)], 7),
    ("MelWeightMatrix", {}, [Ints(8), Ints(16), Ints(100), np.float32(0), np.float32(50)], 9 * 8),
    ("Resize", {**AXES, "keep_aspect_ratio_policy": b"not_larger"}, [np.zeros((1, 1, 10, 1)), Ints([10, 10])], 10),
    ("Resize", {**AXES, "keep_aspect_ratio_policy": b"not_smaller"}, [np.zeros((1, 1, 10, 1)), Ints([10, 10])], 1000),
    ("Range", {}, [np.float32(1), np.float32(4), np.float32(0.5)], 6),
    ("Range", {}, [Ints(10), Ints(0), Ints(-3)], 4),
    ("Range", {}, [Ints(0), Ints(-5), Ints(1)], 0),
    ("Resize", {}, [np.zeros((1, 1, 2, 3)), np.float32([1, 1, 2, 1.5])], 4 * 4.5),
    ("Resize", {}, [np.zeros((1, 1, 2, 3)), Ints([1, 1, 7, 5])], 35),
    ("Resize", {"axes": [3, 2]}, [np.zeros((1, 2, 2, 3)), Ints([7, 5])], 70),
    ("Tile", {}, [np.zeros((2, 3)), Ints([4, 5])], 120),
    ("Upsample", {}, [np.zeros((1, 1, 2, 3)), np.float32([1, 1, 2, 2])], 24),
]


@pytest.mark.parametrize(("op", "attrs", "inputs", "count"), ONNX)
def test_what_ops_of_onnx_make(op: str, attrs: Any, inputs: Any, count: int) -> None:
    float32 = dtype_of(np.float32(0))
    node = OfACase(f"Onnx>{op}", None, attrs, Properties([dtype_of(value) for value in inputs], [float32], None))
    assert Reckoner(cast(Node, node)).num_bytes(inputs) == count * 4
