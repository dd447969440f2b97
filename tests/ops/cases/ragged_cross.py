"""RaggedCross."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, i32, i64, text


def cross(*features: tuple[Any, ...], id: str, hashed: bool = False, order: str = "", **attrs: Any) -> OpCase:
    """Each feature is values and splits, or indices, values and shape, or a matrix."""
    by_size = {size: [feature for feature in features if len(feature) == size] for size in (1, 2, 3)}
    ragged, sparse, dense = by_size[2], by_size[3], by_size[1]
    args = {
        "ragged_values": [values for values, _ in ragged],
        "ragged_row_splits": [splits for _, splits in ragged],
        "sparse_indices": [indices for indices, _, _ in sparse],
        "sparse_values": [values for _, values, _ in sparse],
        "sparse_shape": [shape for _, _, shape in sparse],
        "dense_inputs": [matrix for (matrix,) in dense],
    }
    full = {
        "Nsparse": len(sparse),
        "input_order": order.encode() or "".join("_DRS"[len(feature)] for feature in features).encode(),
        "hashed_output": hashed,
        "num_buckets": 0,
        "hash_key": 956888297470,
        "out_values_type": "int64" if hashed else "string",
        "out_row_splits_type": "int64",
        **{name: [] for name in ("ragged_values_types", "ragged_splits_types", "sparse_values_types", "dense_types")},
    }
    names = ("ragged_values_types", "ragged_splits_types", None, "sparse_values_types", None, "dense_types")
    for name, values in zip(names, args.values(), strict=True):
        if name is not None:
            full[name] = ["string" if each.dtype == object else each.dtype.name for each in values]
    flat = [value for values in args.values() for value in values]
    return OpCase("RaggedCross", flat, full | attrs, id, {name: len(values) for name, values in args.items()})


WORDS = text(b"a", b"b", b"c"), i64(0, 2, 3)
# TensorFlow ends the process where splits are not of the type of the output's.
NUMBERS = i64(1, -2, 3, 4), i64(0, 1, 4)
NARROW = i64(1, -2, 3, 4), i32(0, 1, 4)
SPARSE = i64([0, 0], [1, 1], [1, 3]), text(b"x", b"y", b"z"), i64(2, 4)
DENSE = (text(b"p", b"q", b"r", b"s").reshape(2, 2),)
DENSE_NUMBERS = (i64([7], [8]),)

CASES = [
    case
    for hashed in (False, True)
    for case in [
        cross(WORDS, id=f"one {hashed}", hashed=hashed),
        cross(WORDS, NUMBERS, id=f"ragged {hashed}", hashed=hashed),
        cross(SPARSE, DENSE, id=f"sparse and dense {hashed}", hashed=hashed),
        cross(DENSE_NUMBERS, WORDS, SPARSE, id=f"all {hashed}", hashed=hashed),
        cross((text(), i64(0, 0, 0)), NUMBERS, id=f"empty rows {hashed}", hashed=hashed),
        cross((text(), i64(0)), id=f"no rows {hashed}", hashed=hashed),
        cross(WORDS, (text(b"a"), i64(0, 1)), id=f"rows differ {hashed}", hashed=hashed),
    ]
] + [
    cross(WORDS, NUMBERS, id="buckets", hashed=True, num_buckets=10),
    cross(WORDS, NUMBERS, id="another key", hashed=True, hash_key=-5),
    cross(NARROW, SPARSE, id="int32", out_row_splits_type="int32"),
    cross(WORDS, NUMBERS, id="order", order="RD"),
    cross((text(b"a"), i64(0, 2)), id="bad splits"),
    cross((np.zeros(3, np.int64),), id="dense vector"),
]
