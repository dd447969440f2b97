"""ParseExample and its like, ParseTensor, SerializeTensor, DecodeCompressed.

The records are built byte by byte: tag, length, content.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from tests.ops.array_values import POD_STRING, values
from tests.ops.op_case import OpCase, case, f32, i64, text

NOTHING = text()
NO_NAMES = text()


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    return varint_of(value)


def varint_of(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint_of(value >> 7)


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def floats(*items: float, packed: bool = True) -> bytes:
    if packed:
        return message(2, message(1, struct.pack(f"<{len(items)}f", *items)))
    return message(2, b"".join(b"\x0d" + struct.pack("<f", item) for item in items))


def ints(*items: int, packed: bool = True) -> bytes:
    if packed:
        return message(3, message(1, b"".join(map(varint, items))))
    return message(3, b"".join(b"\x08" + varint(item) for item in items))


def strings(*items: bytes) -> bytes:
    return message(1, b"".join(message(1, item) for item in items))


def entry(key: str, value: bytes) -> bytes:
    return message(1, message(1, key.encode()) + message(2, value))


def features(*entries: bytes, **each: bytes) -> bytes:
    return message(1, b"".join([*entries, *(entry(key, value) for key, value in each.items())]))


def lists(**each: list[bytes]) -> bytes:
    found = (entry(key, b"".join(message(1, feature) for feature in steps)) for key, steps in each.items())
    return message(2, b"".join(found))


ONE = features(a=floats(1, 2), b=ints(-1, 300, 2**62), c=strings(b"x", b"", b"\xff\0"), d=ints(7))
TWO = features(a=floats(3, 4, packed=False), b=ints(5, packed=False), d=ints(8))
THREE = features(a=floats(5, 6), b=ints(), c=b"", d=ints(9), e=strings(b"unused"))
BATCH = text(ONE, TWO, THREE)
SPARSE = {"sparse_types": ["int64", "string"], "num_sparse": 2}


def v2(
    serialized: Any,
    *defaults: Any,
    id: str,
    sparse: Any = NOTHING,
    dense: Any = NOTHING,
    ragged: Any = NOTHING,
    names: Any = NO_NAMES,
    **attrs: Any,
) -> OpCase:
    full = {"num_sparse": 0, "sparse_types": [], "ragged_value_types": [], "ragged_split_types": [], "dense_shapes": []}
    return case("ParseExampleV2", serialized, names, sparse, dense, ragged, *defaults, id=id, **full | attrs)


def dense(serialized: Any, default: Any, id: str, key: str = "a", shape: Any = (2,), **more: Any) -> OpCase:
    return v2(serialized, default, id=id, dense=text(key.encode()), dense_shapes=[list(shape)], **more)


NO_FLOATS = np.zeros(0, np.float32)
PARSE_V2 = [
    v2(BATCH, id="sparse", sparse=text(b"b", b"c"), **SPARSE),
    v2(ONE, id="sparse scalar", sparse=text(b"b", b"c"), **SPARSE),
    v2(TWO, id="sparse scalar missing", sparse=text(b"b", b"c"), **SPARSE),
    v2(text(), id="sparse of no records", sparse=text(b"b", b"c"), **SPARSE),
    v2(BATCH, id="sparse of another dtype", sparse=text(b"a"), sparse_types=["int64"], num_sparse=1),
    v2(BATCH, id="sparse keys too few", sparse=text(b"a"), **SPARSE),
    dense(BATCH, NO_FLOATS, "dense"),
    dense(ONE, NO_FLOATS, "dense scalar"),
    dense(BATCH, NO_FLOATS, "dense matrix", shape=(1, 2)),
    dense(text(), NO_FLOATS, "dense of no records"),
    dense(BATCH, f32(8, 9), "dense with a default"),
    dense(BATCH, f32(8, 9), "dense missing everywhere", key="z"),
    dense(BATCH, np.zeros(0, np.float32), "dense required", key="z"),
    dense(BATCH, f32(8), "dense default of another shape"),
    dense(BATCH, NO_FLOATS, "dense of another size", shape=(3,)),
    dense(BATCH, np.zeros(0, np.int64), "dense of another dtype"),
    dense(BATCH, np.zeros(0, np.int64), "dense int64 scalar", key="d", shape=()),
    dense(BATCH, np.int64(5), "dense int64 default", key="z", shape=()),
    dense(ONE, np.int64(5), "dense int64 default of a scalar", key="z", shape=()),
    dense(BATCH, text(), "dense string required", key="c", shape=(3,)),
    dense(BATCH, text(b"p", b"q", b"r"), "dense string with default", key="c", shape=(3,)),
    dense(BATCH, i64(-9), "variable", key="b", shape=(None,)),
    dense(BATCH, i64(-9), "variable missing everywhere", key="z", shape=(None,)),
    dense(ONE, i64(-9), "variable of a scalar", key="b", shape=(None,)),
    dense(ONE, i64(-9), "variable missing of a scalar", key="z", shape=(None,)),
    dense(BATCH, f32(-9), "variable rows", shape=(None, 2)),
    dense(ONE, f32(-9), "variable rows of a scalar", shape=(None, 2)),
    dense(BATCH, f32(-9), "variable rows that do not fit", shape=(None, 3)),
    dense(BATCH, i64(), "variable without a default", key="b", shape=(None,)),
    dense(BATCH, i64(1, 2), "variable with two defaults", key="b", shape=(None,)),
    dense(BATCH, text(b"-"), "variable strings", key="c", shape=(None,)),
    dense(BATCH, NO_FLOATS, "names", names=text(b"r", b"s", b"t")),
    dense(BATCH, NO_FLOATS, "names too few", names=text(b"r")),
    v2(
        BATCH,
        id="ragged",
        ragged=text(b"a", b"b", b"c", b"z"),
        ragged_value_types=["float32", "int64", "string", "int64"],
        ragged_split_types=["int32", "int64", "int64", "int32"],
    ),
    v2(ONE, id="ragged scalar", ragged=text(b"c"), ragged_value_types=["string"], ragged_split_types=["int64"]),
    v2(ONE, id="ragged missing", ragged=text(b"z"), ragged_value_types=["string"], ragged_split_types=["int32"]),
    v2(
        text(features(entry("a", ints(1)), entry("a", ints(2, 3))), b""),
        id="twice",
        sparse=text(b"a"),
        sparse_types=["int64"],
        num_sparse=1,
    ),
    dense(text(ONE[:-3]), NO_FLOATS, "cut off"),
    dense(text(b"\xff\xff"), NO_FLOATS, "no message"),
    dense(text(features(a=message(2, message(1, b"\0\0\0")))), NO_FLOATS, "cut floats"),
    dense(np.array([[ONE]], object), NO_FLOATS, "matrix of records"),
]


def v1(serialized: Any, *rest: Any, id: str, sparse: int = 0, dense: int = 0, **attrs: Any) -> OpCase:
    full = {"Nsparse": sparse, "Ndense": dense, "sparse_types": [], "dense_shapes": [], "Tdense": []}
    return case("ParseExample", serialized, NO_NAMES, *rest, id=id, **full | attrs)


PARSE_V1 = [
    v1(BATCH, b"b", b"c", id="sparse", sparse=2, sparse_types=["int64", "string"]),
    v1(BATCH, b"a", NO_FLOATS, id="dense", dense=1, dense_shapes=[[2]], Tdense=["float32"]),
    v1(
        BATCH,
        *(b"c", b"a", b"d", f32(0, 0), np.int64(3)),
        id="both",
        sparse=1,
        dense=2,
        sparse_types=["string"],
        dense_shapes=[[2], []],
        Tdense=["float32", "int64"],
    ),
    v1(BATCH, text(b"b"), id="key that is a vector", sparse=1, sparse_types=["int64"]),
    v1(ONE, b"b", id="scalar", sparse=1, sparse_types=["int64"]),
]


def single(serialized: Any, *defaults: Any, id: str, **attrs: Any) -> OpCase:
    full = {"num_sparse": 0, "sparse_keys": [], "sparse_types": [], "dense_keys": [], "dense_shapes": []}
    return case("ParseSingleExample", serialized, *defaults, id=id, **full | attrs)


PARSE_SINGLE = [
    single(ONE, id="sparse", num_sparse=2, sparse_keys=[b"b", b"z"], sparse_types=["int64", "string"]),
    single(ONE, NO_FLOATS, i64(0), id="dense", dense_keys=[b"a", b"d"], dense_shapes=[[2], [1]]),
    single(ONE, f32(1, 2), id="default", dense_keys=[b"z"], dense_shapes=[[2]]),
    single(ONE, NO_FLOATS, id="required", dense_keys=[b"z"], dense_shapes=[[2]]),
    single(ONE, i64(0), id="variable", dense_keys=[b"b"], dense_shapes=[[None]]),
    single(ONE, i64(0), id="variable missing", dense_keys=[b"z"], dense_shapes=[[None]]),
    single(ONE, NO_FLOATS, id="another size", dense_keys=[b"a"], dense_shapes=[[3]]),
    single(ONE[:-2], NO_FLOATS, id="cut off", dense_keys=[b"a"], dense_shapes=[[2]]),
    single(text(ONE), NO_FLOATS, id="vector", dense_keys=[b"a"], dense_shapes=[[2]]),
]

SEQUENCE = features(a=floats(1, 2), b=ints(4, 5)) + lists(
    s=[strings(b"p"), strings(), strings(b"q", b"r")], t=[floats(1, 2), floats(3, 4)], u=[ints(1), ints(2, 3, 4)]
)
SHORT = features(a=floats(3, 4)) + lists(s=[strings(b"z", b"y", b"x")], t=[floats(9, 8)])
EMPTY = features(a=floats(5, 6)) + lists(t=[])
SEQUENCES = text(SEQUENCE, SHORT, EMPTY)
CONTEXT = {"context_sparse_keys": [b"b"], "context_sparse_types": ["int64"], "Ncontext_sparse": 1}
CONTEXT_DENSE = {"context_dense_keys": [b"a"], "context_dense_shapes": [[2]], "Ncontext_dense": 1}


def listed(kind: str, key: bytes, dtype: str, **more: Any) -> dict[str, Any]:
    name = f"feature_list_{kind}"
    return {f"{name}_keys": [key], f"{name}_types": [dtype], f"N{name}": 1, **more}


def sequence(serialized: Any, *defaults: Any, id: str, lacking: Any = (), **attrs: Any) -> OpCase:
    keys = ("context_sparse_keys", "context_dense_keys", "feature_list_sparse_keys", "feature_list_dense_keys")
    full = {**{key: [] for key in keys}, "feature_list_dense_missing_assumed_empty": list(lacking)}
    return case("ParseSequenceExample", serialized, NO_NAMES, *defaults, id=id, **full | attrs)


DENSE_T = listed("dense", b"t", "float32", feature_list_dense_shapes=[[2]])
PARSE_SEQUENCE = [
    sequence(SEQUENCES, id="context sparse", **CONTEXT),
    sequence(SEQUENCES, NO_FLOATS, id="context dense", **CONTEXT_DENSE),
    sequence(SEQUENCES, id="lists sparse", **listed("sparse", b"s", "string")),
    sequence(SEQUENCES, id="lists sparse numbers", **listed("sparse", b"u", "int64")),
    sequence(SEQUENCES, id="lists dense", **DENSE_T),
    sequence(SEQUENCES, NO_FLOATS, id="all", **CONTEXT, **CONTEXT_DENSE, **DENSE_T, **listed("sparse", b"s", "string")),
    sequence(SEQUENCES, id="lists dense missing", **DENSE_T | {"feature_list_dense_keys": [b"z"]}),
    sequence(SEQUENCES, id="lists dense may lack", lacking=[b"z"], **DENSE_T | {"feature_list_dense_keys": [b"z"]}),
    sequence(SEQUENCES, id="another size", **listed("dense", b"u", "int64", feature_list_dense_shapes=[[1]])),
    sequence(SEQUENCES, id="another dtype", **listed("sparse", b"t", "int64")),
    sequence(text(SEQUENCE[:-2]), id="cut off", **DENSE_T),
    sequence(text(), id="no records", **DENSE_T),
]


def sequence_v2(serialized: Any, *defaults: Any, id: str, may_lack: Any = (), **attrs: Any) -> OpCase:
    names = ("context_sparse", "context_dense", "context_ragged")
    names += ("feature_list_sparse", "feature_list_dense", "feature_list_ragged")
    keys = [text(*attrs.pop(f"{name}_keys", ())) for name in names]
    attrs.pop("Ncontext_dense", None)
    flags = np.array(may_lack, bool)
    return case("ParseSequenceExampleV2", serialized, NO_NAMES, *keys, flags, *defaults, id=id, **attrs)


RAGGED = {
    "context_ragged_keys": [b"b"],
    "context_ragged_value_types": ["int64"],
    "context_ragged_split_types": ["int32"],
    "feature_list_ragged_keys": [b"s", b"u"],
    "feature_list_ragged_value_types": ["string", "int64"],
    "feature_list_ragged_split_types": ["int64", "int32"],
}
PARSE_SEQUENCE_V2 = [
    sequence_v2(SEQUENCES, id="context", **CONTEXT),
    sequence_v2(SEQUENCE, id="context of a scalar", **CONTEXT),
    sequence_v2(SEQUENCE, NO_FLOATS, id="dense of a scalar", may_lack=[False], **CONTEXT_DENSE, **DENSE_T),
    sequence_v2(SEQUENCES, NO_FLOATS, id="dense", may_lack=[False], **CONTEXT_DENSE, **DENSE_T),
    sequence_v2(SEQUENCES, id="lists sparse", **listed("sparse", b"s", "string")),
    sequence_v2(SEQUENCE, id="lists sparse of a scalar", **listed("sparse", b"s", "string")),
    sequence_v2(SEQUENCES, id="ragged", **RAGGED),
    # TensorFlow leaves the row splits of the context of a scalar as they are in memory.
    replace(sequence_v2(SEQUENCE, id="ragged of a scalar", **RAGGED), compare=False),
    sequence_v2(SEQUENCES, id="lacking", may_lack=[True], **DENSE_T | {"feature_list_dense_keys": [b"z"]}),
    sequence_v2(SEQUENCES, id="missing", may_lack=[False], **DENSE_T | {"feature_list_dense_keys": [b"z"]}),
]


def single_sequence(serialized: Any, *rest: Any, id: str, lacking: Any = NOTHING, **attrs: Any) -> OpCase:
    names = ("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
    none: dict[str, Any] = {f"N{name}": 0 for name in names}
    return case("ParseSingleSequenceExample", serialized, lacking, *rest, b"", id=id, **none | attrs)


def counts(prefix: str, dtype: str, **more: Any) -> dict[str, Any]:
    return {f"N{prefix}": 1, f"{prefix}_types": [dtype], **more}


SINGLE_DENSE = counts("feature_list_dense", "float32", feature_list_dense_shapes=[[2]])
PARSE_SINGLE_SEQUENCE = [
    single_sequence(SEQUENCE, b"b", id="context sparse", **counts("context_sparse", "int64")),
    single_sequence(
        SEQUENCE,
        b"a",
        NO_FLOATS,
        id="context dense",
        Ncontext_dense=1,
        context_dense_shapes=[[2]],
        Tcontext_dense=["float32"],
    ),
    single_sequence(SEQUENCE, b"s", id="lists sparse", **counts("feature_list_sparse", "string")),
    single_sequence(SEQUENCE, b"t", id="lists dense", **SINGLE_DENSE),
    single_sequence(SEQUENCE, b"z", id="missing", **SINGLE_DENSE),
    single_sequence(SEQUENCE, b"z", id="lacking", lacking=text(b"z"), **SINGLE_DENSE),
    single_sequence(SEQUENCE, b"u", id="another dtype", **SINGLE_DENSE),
]

# dtype float32, shape [2], tensor_content.
CONTENT = b"\x08\x01\x12\x04\x12\x02\x08\x02" + message(4, struct.pack("<2f", 1.5, -2))
TENSORS = [
    *(case("SerializeTensor", values(d, 2, 3), id=d) for d in POD_STRING),
    case("SerializeTensor", np.float32(1.5), id="scalar"),
    case("SerializeTensor", np.zeros((0, 3), np.int64), id="empty"),
    case("SerializeTensor", b"text", id="one string"),
    case("SerializeTensor", text(b"", b"a", b"\0" * 200), id="strings"),
    case("ParseTensor", CONTENT, out_type="float32", id="content"),
    case("ParseTensor", CONTENT, out_type="float64", id="another dtype"),
    case("ParseTensor", b"\x08\x03\x12\x04\x12\x02\x08\x03\x3a\x02\x07\x09", out_type="int32", id="last repeated"),
    case("ParseTensor", b"\x08\x09\x52\x01\x05", out_type="int64", id="scalar"),
    case("ParseTensor", b"\x08\x09\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", out_type="int64", id="not packed"),
    case("ParseTensor", b"\x08\x07\x42\x02ab", out_type="string", id="string"),
    case("ParseTensor", b"\x08\x0a\x12\x04\x12\x02\x08\x02\x5a\x02\x01\x00", out_type="bool", id="bool"),
    case("ParseTensor", b"\x08\x13\x6a\x02\x80\x78", out_type="float16", id="half"),
    case("ParseTensor", b"\x08\x08" + message(9, struct.pack("<2f", 1, 2)), out_type="complex64", id="complex"),
    case("ParseTensor", CONTENT[:-1], out_type="float32", id="cut off"),
    case("ParseTensor", b"\xff", out_type="float32", id="no message"),
    case("ParseTensor", b"", out_type="float32", id="no bytes"),
    case("ParseTensor", text(CONTENT), out_type="float32", id="vector"),
    case(
        "DecodeCompressed", text(zlib.compress(b"abc" * 100), zlib.compress(b"")), compression_type=b"ZLIB", id="zlib"
    ),
    case("DecodeCompressed", gzip.compress(b"abc" * 100, mtime=0), compression_type=b"GZIP", id="gzip"),
    case("DecodeCompressed", b"abc", id="none"),
    case("DecodeCompressed", b"abc", compression_type=b"ZLIB", id="not compressed"),
    case("DecodeCompressed", b"abc", compression_type=b"LZ4", id="unknown kind"),
]

CASES = [
    *PARSE_V2,
    *PARSE_V1,
    *PARSE_SINGLE,
    *PARSE_SEQUENCE,
    *PARSE_SEQUENCE_V2,
    *PARSE_SINGLE_SEQUENCE,
    *TENSORS,
]
