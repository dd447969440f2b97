"""ONNX's own node cases of layers, quantization, images, training and classical models, run by our kernels.

``python -m tests.ops.onnx.node_models [Op...]`` prints how many of each op pass, and which fail.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import pytest

from tests.ops.onnx.node_models import NoKernelError, cases_of, run_case

pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")

# Modules of cases that run by default: they are few, and use most of what the kernels share.
FEW: Final = ("conv", "convtranspose", "lstm", "maxpool", "averagepool", "quantizelinear", "resize")
OPS: Final = frozenset(
    """
    Relu LeakyRelu PRelu Elu Celu Selu Gelu HardSigmoid HardSwish Mish Sigmoid Softmax LogSoftmax Hardmax
    Softplus Softsign Swish SwiGLU ThresholdedRelu Shrink Conv ConvTranspose ConvInteger QLinearConv
    CausalConvWithState Col2Im QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul
    MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool MaxUnpool MaxRoiPool RoiAlign
    BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization
    LpNormalization LRN MeanVarianceNormalization Dropout RNN GRU LSTM Resize Upsample
    """.split()
)
# What we do otherwise than the cases, and why.
_LENGTH = "length_resized is the number of cells, as the op and other runtimes say, not scale times length"
DIFFERENT: Final = {
    "test_resize_downsample_scales_linear_align_corners": _LENGTH,
    "test_resize_downsample_scales_cubic_align_corners": _LENGTH,
}


def cases(*modules: str) -> list[Any]:
    """The cases of our ops in those modules of ONNX's; all where none is named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the values in the cases
        return [case for case in cases_of(*modules) if {node.op_type for node in case.model.graph.node} <= OPS]


@pytest.mark.parametrize("module", FEW)
def test_few_node_cases(module: str) -> None:
    found = cases(module)
    assert found
    for case in found:
        run_case(case)


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_all_node_cases(record_property: Any) -> None:
    wrong = []
    found = cases()
    for case in found:
        try:
            run_case(case)
        except NoKernelError:
            raise
        except Exception as error:
            wrong.append(f"{case.name}: {error!r}"[:500])
    assert [name for name in wrong if name.partition(":")[0] not in DIFFERENT] == []
    assert len(wrong) == len(DIFFERENT)
    record_property("counts", {"node cases": len(found) - len(wrong), "with reasons": len(DIFFERENT)})
