"""ONNX's own node cases of layers, quantization, images, training and classical models, run by our kernels.

``python -m tests.ops.onnx.node_models [Op...]`` prints how many of each op pass, and which fail.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import pytest

from asyncexec.ops.onnx.onnx_kernels import find_onnx_kernel
from tests.ops.onnx.node_models import NoKernelError, cases_of, run_case

pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")

# Modules of cases that run by default: they are few, and use most of what the kernels share.
FEW: Final = ("conv", "convtranspose", "lstm", "quantizelinear", "resize")
OPS: Final = frozenset(
    """
    Relu LeakyRelu PRelu Elu Celu Selu Gelu HardSigmoid HardSwish Mish Sigmoid Softmax LogSoftmax Hardmax
    Softplus Softsign Swish SwiGLU ThresholdedRelu Shrink Conv ConvTranspose ConvInteger QLinearConv
    CausalConvWithState Col2Im QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul
    MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool MaxUnpool MaxRoiPool RoiAlign
    BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization
    LpNormalization LRN MeanVarianceNormalization Dropout RNN GRU LSTM Resize Upsample Attention RotaryEmbedding
    LinearAttention TensorScatter DeformConv GridSample AffineGrid CenterCropPad NonMaxSuppression
    NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Adagrad Adam Momentum ArrayFeatureExtractor Binarizer
    CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder LinearClassifier
    LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble
    TreeEnsembleClassifier TreeEnsembleRegressor ZipMap
    """.split()
)
# What we do otherwise than the cases, and why.
_ROUNDED = "computed in float32 and rounded once; the case rounds to bfloat16 after each step"
_LENGTH = "length_resized is the number of cells, as the op and other runtimes say, not scale times length"
DIFFERENT: Final = {
    "test_resize_downsample_scales_linear_align_corners": _LENGTH,
    "test_resize_downsample_scales_cubic_align_corners": _LENGTH,
    "test_attention_3d_causal_bf16": _ROUNDED,
    "test_attention_4d_attn_mask_causal_bf16": _ROUNDED,
    "test_attention_4d_causal_bf16": _ROUNDED,
    "test_attention_4d_causal_padded_kv_bf16": _ROUNDED,
    "test_attention_4d_padded_kv_bf16": _ROUNDED,
}


def cases(*modules: str) -> list[Any]:
    """The cases of our ops in those modules of ONNX's at least; all where none is named."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the values in the cases
        return [case for case in cases_of(*modules) if {node.op_type for node in case.model.graph.node} <= OPS]


def test_every_version_of_our_ops_has_a_kernel() -> None:
    onnx = pytest.importorskip("onnx")
    schemas = [one for one in onnx.defs.get_all_schemas_with_history() if one.name in OPS and not one.deprecated]
    assert {one.name for one in schemas} == OPS
    oldest = {"": 7}
    lacking = [
        f"{one.name} of {one.since_version}"
        for one in schemas
        if find_onnx_kernel(one.name, max(one.since_version, oldest.get(one.domain, 1)), one.domain) is None
    ]
    assert lacking == []


def test_few_node_cases() -> None:
    found = cases(*FEW)
    assert found
    for case in found:
        if case.name not in DIFFERENT:
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
