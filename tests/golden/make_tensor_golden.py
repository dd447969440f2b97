"""Asks TensorFlow what it makes of TensorProtos: ``python -m tests.golden.make_tensor_golden`` writes ``tensors.json``.

Each case is a TensorProto in protobuf text and what ``Tensor::FromProto`` makes of it: dtype, shape, and the elements
(the bytes of the array, or each string, in base64), or null where it refuses.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "tensors.json"

INT_DTYPES = "INT32 INT16 INT8 UINT16 UINT8 QINT8 QUINT8 QINT32 QINT16 QUINT16 INT4 UINT4".split()
VALUE_FIELDS = {
    "FLOAT": "float_val: 1.5 float_val: -0.0 float_val: nan",
    "DOUBLE": "double_val: 1.5 double_val: -inf",
    "INT64": "int64_val: 9223372036854775807 int64_val: -3",
    "UINT32": "uint32_val: 4294967295 uint32_val: 3",
    "UINT64": "uint64_val: 18446744073709551615 uint64_val: 3",
    "BOOL": "bool_val: true bool_val: false",
    "HALF": "half_val: 15360 half_val: 64512 half_val: 1",
    "BFLOAT16": "half_val: 16256 half_val: 65408 half_val: 1",
    "COMPLEX64": "scomplex_val: 1 scomplex_val: 2 scomplex_val: -3 scomplex_val: 0.5",
    "COMPLEX128": "dcomplex_val: 1 dcomplex_val: 2 dcomplex_val: -3 dcomplex_val: 0.5",
    "STRING": 'string_val: "ab" string_val: "c\\000\\377\\000"',
    "FLOAT8_E5M2": 'float8_val: "<\\301"',
    "FLOAT8_E4M3FN": 'float8_val: "<\\301"',
    **dict.fromkeys(INT_DTYPES, "int_val: -1 int_val: 300 int_val: 70000"),
}
ITEM_BYTES = {
    **dict.fromkeys("INT8 UINT8 QINT8 QUINT8 INT4 UINT4 BOOL FLOAT8_E5M2 FLOAT8_E4M3FN".split(), 1),
    **dict.fromkeys("HALF BFLOAT16 INT16 UINT16 QINT16 QUINT16".split(), 2),
    **dict.fromkeys("FLOAT INT32 UINT32 QINT32".split(), 4),
    **dict.fromkeys("DOUBLE INT64 UINT64 COMPLEX64".split(), 8),
    "COMPLEX128": 16,
}


def cases() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, values in VALUE_FIELDS.items():
        head = f"dtype: DT_{name}"
        one = 'float8_val: "<"' if "FLOAT8" in name else " ".join(values.split(" ")[: 4 if "complex" in values else 2])
        found[f"{name}-spread"] = f"{head} {dims(2, 3)} {values}"
        found[f"{name}-scalar"] = f"{head} tensor_shape {{}} {one}"
        found[f"{name}-scalar_no_shape"] = f"{head} {one}"
        found[f"{name}-splat"] = f"{head} {dims(4)} {one}"
        found[f"{name}-zeros"] = f"{head} {dims(2)}"
        found[f"{name}-scalar_zero"] = f"{head} tensor_shape {{}}"
        found[f"{name}-empty"] = f"{head} {dims(0, 2)}"
    for name, size in ITEM_BYTES.items():
        head = f"dtype: DT_{name}"
        count = 1 if name == "BOOL" else 3
        exact = (bytes([1, 0, 1]) if name == "BOOL" else bytes(range(5, 5 + count * size * 2, 2)))[: 3 * size]
        found[f"{name}-content"] = f"{head} {dims(3)} tensor_content: {quoted(exact)}"
        found[f"{name}-content_short"] = f"{head} {dims(3)} tensor_content: {quoted(exact[:-1])}"
        found[f"{name}-content_long"] = f"{head} {dims(3)} tensor_content: {quoted(exact + exact[:size])}"
    found["STRING-content"] = f"dtype: DT_STRING {dims(3)} tensor_content: {quoted(bytes([1, 0, 2]) + b'abc')}"
    found["STRING-content_short"] = f"dtype: DT_STRING {dims(3)} tensor_content: {quoted(bytes([1, 0, 2]) + b'ab')}"
    found["STRING-content_lengths"] = f"dtype: DT_STRING {dims(3)} tensor_content: {quoted(bytes([1, 0x80]))}"
    found["FLOAT-wrong_field"] = f"dtype: DT_FLOAT {dims(2)} int_val: 3"
    found["FLOAT-both"] = f"dtype: DT_FLOAT {dims(1)} float_val: 3 tensor_content: {quoted(bytes(4))}"
    found["FLOAT-negative_dim"] = f"dtype: DT_FLOAT {dims(-1)} float_val: 3"
    found["FLOAT-unknown_rank"] = "dtype: DT_FLOAT tensor_shape { unknown_rank: true } float_val: 3"
    found["FLOAT-rank_255"] = f"dtype: DT_FLOAT {dims(*[1] * 255)} float_val: 3"
    found["FLOAT-overflow"] = f"dtype: DT_FLOAT {dims(2**32, 2**32)} float_val: 3"
    found["FLOAT-overflow_zero"] = f"dtype: DT_FLOAT {dims(2**62, 4, 0)} float_val: 3"
    found["INVALID"] = f"dtype: DT_INVALID {dims(1)}"
    found["FLOAT_REF"] = f"dtype: DT_FLOAT_REF {dims(1)} float_val: 1"
    return found


def dims(*sizes: int) -> str:
    return "tensor_shape { " + " ".join(f"dim {{ size: {size} }}" for size in sizes) + " }"


def quoted(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + '"'


def answer(text: str) -> dict[str, Any] | None:
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow.core.framework import tensor_pb2

    proto = text_format.Parse(text, tensor_pb2.TensorProto())
    try:
        array = tf.io.parse_tensor(proto.SerializeToString(), tf.dtypes.as_dtype(proto.dtype)).numpy()
    except (tf.errors.OpError, TypeError, ValueError):
        return None
    array = np.array(array, object) if isinstance(array, bytes) else np.asarray(array)
    shape = list(array.shape)
    if array.dtype == object:
        return {"shape": shape, "strings": [base64.b64encode(item).decode() for item in array.ravel().tolist()]}
    return {"shape": shape, "dtype": array.dtype.name, "bytes": base64.b64encode(array.tobytes()).decode()}


if __name__ == "__main__":
    answers = {name: {"proto": text, "answer": answer(text)} for name, text in cases().items()}
    FILE.write_text(json.dumps(answers, indent=1) + "\n")
