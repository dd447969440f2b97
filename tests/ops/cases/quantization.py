"""QuantizeV2, Dequantize, and the ops on quantized tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase, case, f32, i32

DTYPES: Final = ("qint8", "quint8", "qint16", "quint16", "qint32")
MODES: Final = ("MIN_COMBINED", "MIN_FIRST", "SCALED")
F: Final = np.float32
X: Final = f32([-1.5, -1, -0.51, -0.25], [0, 0.125, 0.5, 0.99], [1, 1.5, 2.5, 9])


def numpy_dtype(dtype: str) -> Any:
    return np.dtype(dtype.removeprefix("q"))


def integers(dtype: str, *shape: int, seed: int = 0) -> Any:
    """Any integers of a quantized type."""
    info = np.iinfo(numpy_dtype(dtype))
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=info.dtype, endpoint=True)


def u8(*shape: int, seed: int = 0) -> Any:
    return integers("quint8", *shape, seed=seed)


def small(*shape: int, seed: int = 0) -> Any:
    """Sums of products, as int32."""
    return np.random.default_rng(seed).integers(-(2**24), 2**24, shape, dtype=np.int32)


def ends(reach: tuple[int, ...], *, low: float = -1, high: float = 1) -> tuple[Any, Any]:
    """The ranges of channels."""
    return np.float32(reach) * F(low), np.float32(reach) * F(high)


def quantize(id: str, dtype: str, low: Any = -1, high: Any = 2, x: Any = X, **attrs: Any) -> OpCase:
    return case("QuantizeV2", x, np.float32(low), np.float32(high), id=f"{dtype} {id}", T=dtype, **attrs)


def dequantize(id: str, dtype: str, low: Any = -1, high: Any = 2, **attrs: Any) -> OpCase:
    x = integers(dtype, 3, 4)
    return case("Dequantize", x, np.float32(low), np.float32(high), id=f"{dtype} {id}", T=dtype, **attrs)


def binary(op: str, id: str, x: Any, y: Any, *ranges: float, **attrs: Any) -> OpCase:
    dtypes = {"T1": "quint8", "T2": "quint8"} | attrs
    return case(op, x, y, *map(np.float32, ranges or (-1, 3, -2, 2.5)), id=id, **dtypes)


def conv(id: str, x: Any, filters: Any, *ranges: float, stride: int = 1, padding: str = "SAME", **attrs: Any) -> OpCase:
    ranges = ranges or (-1, 3, -2, 2.5)
    given = {"Tinput": "quint8", "Tfilter": "quint8", "strides": [1, stride, stride, 1], "padding": padding} | attrs
    return case("QuantizedConv2D", x, filters, *map(np.float32, ranges), id=id, **given)


def pool(op: str, id: str, dtype: str, *, size: int = 2, stride: int = 2, padding: str = "VALID") -> OpCase:
    attrs = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
    return case(op, integers(dtype, 2, 5, 6, 3), F(-1), F(2), id=f"{dtype} {id}", T=dtype, **attrs)


def ranged(op: str, id: str, x: Any, *ranges: float, **attrs: Any) -> OpCase:
    return case(op, x, *map(np.float32, ranges), id=id, **attrs)


CASES = [
    # The greatest qint32 is not a float: TensorFlow's result for it depends on the processor.
    *(quantize(mode, dtype, x=X / 8 if dtype == "qint32" else X, mode=mode) for dtype in DTYPES for mode in MODES),
    *(quantize(f"positive {mode}", dtype, 1, 2, mode=mode) for dtype in ("qint8", "quint8") for mode in MODES),
    *(quantize(f"tiny {mode}", dtype, 0, 0, mode=mode) for dtype in ("qint8", "quint8") for mode in MODES),
    *(quantize(f"negative {mode}", dtype, -2, -1, mode=mode) for dtype in ("qint8", "quint8") for mode in MODES),
    *(quantize("narrow", dtype, x=X / 8, mode="SCALED", narrow_range=True) for dtype in DTYPES),
    *(quantize("to even", dtype, mode="SCALED", round_mode="HALF_TO_EVEN") for dtype in ("qint8", "quint8", "qint16")),
    quantize("to even combined", "qint8", round_mode="HALF_TO_EVEN"),
    *(
        quantize(f"axis {mode}", dtype, f32(-1, 0, -3, -2), f32(2, 3, 1.5, 9), x=X / 8, mode=mode, axis=1)
        for dtype in ("qint8", "quint8", "qint32")
        for mode in ("MIN_COMBINED", "SCALED")
    ),
    quantize("axis MIN_FIRST", "quint8", f32(-1, 0, -3, -2), f32(2, 3, 1, 9), mode="MIN_FIRST", axis=1),
    quantize("axis 0", "qint8", f32(-1, 0, -3), f32(2, 3, 1), mode="SCALED", axis=0),
    quantize("other count", "qint8", f32(-1, 0), f32(2, 3), mode="SCALED", axis=0),
    quantize("ends swapped", "qint8", 2, 1),
    quantize("no least", "quint8", -0.001, 0.001, ensure_minimum_range=0.0),
    quantize("scalar", "quint8", x=F(0.3)),
    quantize("axis beyond", "qint8", f32(-1), f32(2), axis=2),
    *(dequantize(mode, dtype, mode=mode) for dtype in DTYPES for mode in MODES),
    *(dequantize("narrow", dtype, mode="SCALED", narrow_range=True) for dtype in DTYPES),
    *(
        dequantize(f"axis {mode}", dtype, f32(-1, 0, -3, -2), f32(2, 3, 1, 9), mode=mode, axis=1)
        for dtype in ("qint8", "quint8", "qint32")
        for mode in ("MIN_COMBINED", "SCALED")
    ),
    dequantize("axis MIN_FIRST", "quint8", f32(-1, 0, -3, -2), f32(2, 3, 1, 9), mode="MIN_FIRST", axis=1),
    dequantize("other count", "qint8", f32(-1, 0), f32(2, 3), axis=0),
    dequantize("nothing", "quint8", 1, 1, mode="MIN_FIRST"),
    *(
        found
        for op in ("QuantizedAdd", "QuantizedMul")
        for found in (
            binary(op, "same shape", u8(3, 4), u8(3, 4, seed=1)),
            binary(op, "vector", u8(3, 4), u8(4, seed=1)),
            binary(op, "scalar", u8(3, 4), u8(seed=1)[()], 0.0, 4.0, -3.0, 1.0),
            binary(op, "scalar first", u8(seed=1)[()], u8(3, 4), 0.0, 4.0, -3.0, 1.0),
            binary(op, "positive", u8(3, 4), u8(3, 4, seed=1), 1.0, 4.0, 2.0, 3.0),
            binary(op, "do not fit", u8(3, 4), u8(3, seed=1)),
            binary(op, "no range", u8(3, 4), u8(4, seed=1), 1.0, 1.0, 0.0, 1.0),
        )
    ),
    binary("QuantizedMatMul", "plain", u8(3, 4), u8(4, 5, seed=1)),
    binary("QuantizedMatMul", "transposed", u8(4, 3), u8(5, 4, seed=1), transpose_a=True, transpose_b=True),
    binary("QuantizedMatMul", "long", u8(2, 999), u8(999, 3, seed=1), 0.0, 255.0, -128.0, 127.0),
    binary("QuantizedMatMul", "does not fit", u8(3, 4), u8(5, 4, seed=1)),
    binary("QuantizedMatMul", "vector", u8(4), u8(4, 5, seed=1)),
    *(
        binary("QuantizedBiasAdd", d, integers(d, 2, 3, 4), integers(d, 4, seed=1), T1=d, T2=d, out_type="qint32")
        for d in ("quint8", "qint8")
    ),
    binary("QuantizedBiasAdd", "other length", u8(2, 3), u8(4, seed=1), out_type="qint32"),
    *(
        ranged(op, id, small(4, 5), low, high, **attrs)
        for op, attrs in (
            ("QuantizeDownAndShrinkRange", {"Tinput": "qint32", "out_type": "quint8"}),
            ("RequantizationRange", {"Tinput": "qint32"}),
        )
        for id, low, high in (("plain", -300, 500), ("symmetrical", -256, 256), ("positive", 10, 400))
    ),
    *(
        ranged("Requantize", f"{out} {id}", small(4, 5), *ranges, Tinput="qint32", out_type=out)
        for out in ("quint8", "qint8")
        for id, ranges in (
            ("plain", (-300, 500, -2, 3)),
            ("clipped", (-256, 256, -0.5, 0.5)),
            ("positive", (-256, 256, 0, 1)),
            ("from above 0", (-256, 256, 0.5, 1)),
            ("ends swapped", (-256, 256, -1, -2)),
        )
    ),
    *(
        case(
            "RequantizationRangePerChannel",
            small(*shape),
            *ends(reach, low=low, high=high),
            id=id,
            T="qint32",
            clip_value_max=clip,
        )
        for id, shape, reach, low, high, clip in (
            ("plain", (1, 2, 3, 3), (300, 200, 100), -1, 1, 1e9),
            ("clipped", (2, 2, 2, 3), (300, 200, 100), -1, 1, 0.5),
            ("one-sided", (1, 2, 2, 3), (3, 2, 1), 0, 1, 1e9),
            ("other length", (1, 2, 2, 4), (3, 2, 1), -1, 1, 1e9),
            ("matrix", (2, 3), (3, 2, 1), -1, 1, 1e9),
        )
    ),
    case(
        "RequantizationRangePerChannel",
        abs(small(1, 2, 2, 3)),
        *ends((3, 2, 1)),
        id="positive",
        T="qint32",
        clip_value_max=9.0,
    ),
    *(
        case(
            "RequantizePerChannel", small(1, 2, 3, 3), *ends((300, 200, 100)), F(low), F(high), id=f"{out} {low}", **to
        )
        for out in ("quint8", "qint8")
        for to in ({"T": "qint32", "out_type": out},)
        for low, high in ((-2, 4), (-8, 1), (0, 3))
    ),
    case("RequantizePerChannel", small(2, 3), *ends((300, 200, 100)), F(-2), F(2), id="matrix", T="qint32"),
    conv("same", u8(1, 5, 6, 3), u8(3, 3, 3, 4, seed=1)),
    conv("valid", u8(2, 5, 6, 3), u8(2, 2, 3, 4, seed=1), padding="VALID"),
    conv("strided", u8(1, 5, 6, 3), u8(3, 3, 3, 4, seed=1), stride=2),
    conv("pointwise", u8(1, 5, 6, 3), u8(1, 1, 3, 4, seed=1), 0, 255, -128, 127),
    conv("dilated", u8(1, 5, 6, 3), u8(3, 3, 3, 4, seed=1), dilations=[1, 2, 2, 1]),
    conv("unequal strides", u8(1, 5, 6, 3), u8(3, 3, 3, 4, seed=1), strides=[1, 1, 2, 1]),
    *(
        pool(op, f"{padding} {size}", d, size=size, padding=padding)
        for op in ("QuantizedMaxPool", "QuantizedAvgPool")
        for d in ("quint8", "qint8")
        for padding in ("SAME", "VALID")
        for size in (2, 3)
    ),
    *(
        ranged(op, f"{d} {id}", integers(d, 3, 4), *ranges, Tinput=d, out_type=d)
        for op in ("QuantizedRelu", "QuantizedRelu6")
        for d in ("quint8", "qint32")
        for id, ranges in (("plain", (-3, 9)), ("positive", (1, 9)), ("negative", (-9, -1)), ("nothing", (1, 1)))
    ),
    *(
        OpCase(
            "QuantizedConcat",
            (np.int32(1), integers(d, 2, 3), integers(d, 2, 1, seed=1), *map(F, lows), *map(F, highs)),
            {"T": d, "N": 2},
            f"{d} {id}",
        )
        for d in ("quint8", "qint32")
        for id, lows, highs in (
            ("same range", (-1, -1), (1, 1)),
            ("other ranges", (-1, -3), (2, 1)),
            ("positive", (1, 2), (2, 4)),
        )
    ),
    *(case("QuantizedReshape", integers(d, 2, 3), i32(3, -1), F(-1), F(2), id=d, T=d) for d in ("quint8", "qint32")),
    case("QuantizedReshape", u8(2, 3), i32(4), F(-1), F(2), id="does not fit", T="quint8"),
    *(
        ranged("QuantizedInstanceNorm", id, u8(2, 3, 4, 5), -1, 2, T="quint8", **attrs)
        for id, attrs in (
            ("plain", {}),
            ("range given", {"output_range_given": True, "given_y_min": -2.0, "given_y_max": 2.5}),
            ("no range given", {"output_range_given": True, "given_y_min": 2.0, "given_y_max": 2.0}),
            ("separated", {"min_separation": 100.0}),
        )
    ),
]
