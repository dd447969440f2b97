"""Which module registers kernels of an ONNX op.

Written by ``python -m tests.ops.make_op_index``; tests/ops/test_op_index.py holds it to what the modules register.
"""

from __future__ import annotations

from typing import Final

# fmt: off
ONNX_KERNELS: Final = {
    "onnx.sequences": (
        "Onnx>ConcatFromSequence Onnx>Optional Onnx>OptionalGetElement Onnx>OptionalHasElement Onnx>SequenceAt "
        "Onnx>SequenceConstruct Onnx>SequenceEmpty Onnx>SequenceErase Onnx>SequenceInsert Onnx>SequenceLength "
        "Onnx>SplitToSequence"
    ),
}
