"""TensorProtos decode to what TensorFlow makes of them, and hostile ones cost nothing."""

from __future__ import annotations

import base64
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import json_format, text_format
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tensorboard.compat.proto import tensor_pb2

from asyncexec.framework import types
from asyncexec.framework.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    OpError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.framework.tensor_proto import (
    DEFAULT_TENSOR_BYTES,
    decode_shape,
    decode_tensor,
    dtype_of_enum,
    encode_shape,
    encode_tensor,
)
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.importers.tf_graph_def import load_graph_def

GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN: dict[str, dict[str, Any]] = json.loads((GOLDEN_FOLDER / "tensors.json").read_text())
# TensorFlow takes a tensor of unknown rank for a scalar.
STRICTER = {"FLOAT-unknown_rank"}
ALL_DTYPES_CASE = GOLDEN_FOLDER / "tf" / "fetch_no_placeholders_all_dtypes"


def proto(text: str) -> TensorProto:
    message = text_format.Parse(text, tensor_pb2.TensorProto())
    return TensorProto.model_validate_json(json_format.MessageToJson(message))


def tensor(dtype: DType, *dims: int, **fields: Any) -> TensorProto:
    shape = TensorShapeProto(dim=tuple(DimProto(size=size) for size in dims))
    return TensorProto(dtype=dtype.enum, tensor_shape=shape, **fields)


def check_value(value: Any, shape: list[int]) -> None:
    """A value is a read-only array, or a scalar when 0-d."""
    if shape:
        assert isinstance(value, np.ndarray)
        assert not value.flags.writeable
        assert list(value.shape) == shape
    else:
        assert isinstance(value, (np.generic, bytes))


def element_bytes(value: Any) -> bytes:
    """The bytes of the elements; of 4-bit integers the half that counts (TensorFlow leaves anything in the other)."""
    data: bytes = value.tobytes()
    return bytes(byte & 0xF for byte in data) if value.dtype.name in ("int4", "uint4") else data


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_decodes_as_tensorflow_does(name: str) -> None:
    case, answer = proto(GOLDEN[name]["proto"]), GOLDEN[name]["answer"]
    if answer is None or name in STRICTER:
        with pytest.raises(InvalidArgumentError):
            decode_tensor(case)
        return
    value = decode_tensor(case)
    check_value(value, answer["shape"])
    if "strings" in answer:
        items = [value] if isinstance(value, bytes) else value.ravel().tolist()
        assert [base64.b64encode(item).decode() for item in items] == answer["strings"]
    else:
        assert value.dtype.name == answer["dtype"]
        assert element_bytes(value) == element_bytes(np.frombuffer(base64.b64decode(answer["bytes"]), value.dtype))


@pytest.mark.parametrize("name", sorted(name for name in GOLDEN if GOLDEN[name]["answer"] and name not in STRICTER))
def test_what_is_decoded_is_encoded_to_the_same(name: str) -> None:
    case = proto(GOLDEN[name]["proto"])
    dtype = dtype_of_enum(case.dtype)
    value = decode_tensor(case)
    again = decode_tensor(encode_tensor(value, dtype))
    assert type(again) is type(value)
    if isinstance(value, bytes) or value.dtype == object:
        np.testing.assert_array_equal(again, value)
    else:
        assert again.dtype == value.dtype
        assert again.shape == value.shape
        assert again.tobytes() == value.tobytes()


def test_constants_of_all_dtypes_of_the_oracle() -> None:
    nodes = {node.name: node for node in load_graph_def(ALL_DTYPES_CASE / "graph.pb").node}
    (run,) = json.loads((ALL_DTYPES_CASE / "meta.json").read_text())["runs"]
    with np.load(ALL_DTYPES_CASE / "data.npz") as data:
        for fetch in run["fetches"]:
            node = nodes[fetch["tensor"].removesuffix(":0")]
            content = node.attr["value"].tensor
            assert content is not None
            value, expected = decode_tensor(content), data[fetch["array"]]
            check_value(value, fetch["shape"])
            assert dtype_of_enum(content.dtype).name == fetch["dtype"]
            if expected.dtype.kind == "S":
                assert np.array(value).astype("S").tolist() == expected.tolist()
            else:
                np.testing.assert_array_equal(value.astype(expected.dtype), expected)


class TestHostileProtos:
    def test_a_float_spread_over_a_gibibyte_is_refused_and_the_message_names_the_budget(self) -> None:
        case = tensor(types.float32, 2**28, float_val=(1.0,))
        tracemalloc.start()
        with pytest.raises(ResourceExhaustedError, match=rf"budget of {DEFAULT_TENSOR_BYTES}"):
            decode_tensor(case)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000

    def test_the_budget_is_the_callers(self) -> None:
        case = tensor(types.float32, 100, float_val=(1.0,))
        assert decode_tensor(case, byte_budget=396).sum() == 100
        with pytest.raises(ResourceExhaustedError):
            decode_tensor(case, byte_budget=395)

    def test_what_the_proto_carries_is_not_held_to_the_budget(self) -> None:
        values = tuple(float(i) for i in range(100))
        assert decode_tensor(tensor(types.float32, 100, float_val=values), byte_budget=0).sum() == 4950
        assert decode_tensor(tensor(types.uint8, 100, tensor_content=bytes(100)), byte_budget=0).size == 100

    @pytest.mark.parametrize("count", [2**40, 2**62])
    def test_enormous_shapes(self, count: int) -> None:
        with pytest.raises(ResourceExhaustedError):
            decode_tensor(tensor(types.float32, count, float_val=(1.0,)))
        with pytest.raises(ResourceExhaustedError):
            decode_tensor(tensor(types.float32, count), byte_budget=2**70)

    def test_one_string_spread_over_67_million(self) -> None:
        with pytest.raises(ResourceExhaustedError):
            decode_tensor(tensor(types.string, 2**26, string_val=(b"x",)))

    def test_string_content_of_more_strings_than_bytes(self) -> None:
        with pytest.raises(InvalidArgumentError):
            decode_tensor(tensor(types.string, 2**40, tensor_content=b"\0\0"))

    @pytest.mark.parametrize("dims", [(2**32, 2**32), (-1,), (3, -5), (1,) * 300, (2**62, 4)])
    def test_shapes_that_cannot_be(self, dims: tuple[int, ...]) -> None:
        with pytest.raises(InvalidArgumentError):
            decode_tensor(tensor(types.float32, *dims, float_val=(1.0,)))

    def test_more_dimensions_than_numpy_has(self) -> None:
        with pytest.raises(UnimplementedError, match="at most 64"):
            decode_tensor(tensor(types.float32, *[1] * 65, float_val=(1.0,)))

    @pytest.mark.parametrize(
        ("dtype", "fields"),
        [
            (types.float32, {"float_val": (1.0, 2.0, 3.0)}),
            (types.string, {"string_val": (b"", b"", b"")}),
            (types.complex64, {"scomplex_val": (1.0,) * 6}),
            (types.float8_e5m2, {"float8_val": b"123"}),
        ],
    )
    def test_more_values_than_the_shape_holds(self, dtype: DType, fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgumentError, match="2 elements, not 3"):
            decode_tensor(tensor(dtype, 2, **fields))
        with pytest.raises(InvalidArgumentError, match="0 elements, not 3"):
            decode_tensor(tensor(dtype, 0, **fields))

    def test_half_a_complex_number(self) -> None:
        with pytest.raises(InvalidArgumentError, match="odd number"):
            decode_tensor(tensor(types.complex64, 2, scomplex_val=(1.0, 2.0, 3.0)))

    @pytest.mark.parametrize("number", [0, 20, 21, 34, 77, 101, 120, 205, 999, 1000, -3])
    def test_dtypes_that_have_no_values(self, number: int) -> None:
        with pytest.raises(InvalidArgumentError):
            decode_tensor(TensorProto(dtype=number))

    @given(
        st.integers(0, 34),
        st.lists(st.one_of(st.integers(-2, 6), st.integers(-(2**63), 2**63 - 1)), max_size=4),
        st.binary(max_size=16),
        st.lists(st.floats(width=32), max_size=4),
        st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    )
    def test_any_proto_gives_a_value_or_a_typed_error(
        self, number: int, dims: list[int], content: bytes, floats: list[float], ints: list[int]
    ) -> None:
        shape = TensorShapeProto(dim=tuple(DimProto(size=size) for size in dims))
        case = TensorProto(
            dtype=number,
            tensor_shape=shape,
            tensor_content=content,
            float_val=tuple(floats),
            scomplex_val=tuple(floats),
            half_val=tuple(ints),
            int_val=tuple(ints),
            string_val=(content, content),
        )
        with suppress(OpError):
            check_value(decode_tensor(case, byte_budget=2**20), dims)


class TestEncoding:
    def test_one_element_stands_in_its_own_field(self) -> None:
        assert encode_tensor(np.float32(1.5)).float_val == (1.5,)
        assert encode_tensor(np.array([3], np.int8)).int_val == (3,)
        assert encode_tensor(np.array(1 + 2j, np.complex64)).scomplex_val == (1.0, 2.0)
        assert encode_tensor(np.float16(1)).half_val == (15360,)

    def test_several_are_packed(self) -> None:
        assert encode_tensor(np.array([[1, 2]], np.int32)).tensor_content == b"\1\0\0\0\2\0\0\0"

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (3, types.int32),
            (2**40, types.int64),
            (1.5, types.float32),
            (True, types.bool),
            (1j, types.complex128),
            ("text", types.string),
            (b"bytes", types.string),
            ([["a", b"b"]], types.string),
            ([1, 2.5], types.float32),
            ([], types.float32),
            (np.array(["a", "bc"]), types.string),
            (np.array([1.0]), types.float64),
            (np.array([1], ml_dtypes.bfloat16), types.bfloat16),
        ],
    )
    def test_dtype_of_a_value(self, value: Any, dtype: DType) -> None:
        assert encode_tensor(value).dtype == dtype.enum

    def test_a_dtype_given_converts_python_numbers(self) -> None:
        assert decode_tensor(encode_tensor([1, 2], types.float64)).dtype == np.float64
        assert decode_tensor(encode_tensor(7, types.qint8)) == 7
        assert decode_tensor(encode_tensor([0, 255], types.uint8)).tolist() == [0, 255]
        assert decode_tensor(encode_tensor(1.5, types.bfloat16)) == 1.5
        assert decode_tensor(encode_tensor([-8, 7], types.int4)).tolist() == [-8, 7]

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (300, types.int8),
            (-1, types.uint8),
            (1, types.bool),
            (1j, types.float32),
            (1.5, types.int32),
            ("x", types.int32),
            (object(), None),
            ([1, [2]], None),
            (np.array([1.0]), types.float32),
            (np.array([1, "a"], object), None),
            (1, types.resource),
            (1, types.string),
        ],
    )
    def test_values_that_do_not_fit(self, value: Any, dtype: DType | None) -> None:
        with pytest.raises(InvalidArgumentError):
            encode_tensor(value, dtype)

    def test_objects_have_no_wire_form(self) -> None:
        with pytest.raises(InvalidTypeError):
            encode_tensor(np.array([object()]), types.object)

    @given(
        npst.arrays(
            st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16"]),
            npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        )
    )
    def test_any_array_comes_back(self, array: np.ndarray) -> None:
        again = decode_tensor(encode_tensor(array))
        assert np.asarray(again).tobytes() == array.tobytes()
        assert again.dtype == array.dtype
        assert again.shape == array.shape

    def test_arrays_that_are_not_contiguous(self) -> None:
        array = np.arange(6, dtype=np.int32).reshape(2, 3).T
        np.testing.assert_array_equal(decode_tensor(encode_tensor(array)), array)


class TestShapes:
    @pytest.mark.parametrize("dims", [None, [], [2, 3], [None, 4], [0]])
    def test_shapes_come_back(self, dims: list[int | None] | None) -> None:
        assert decode_shape(encode_shape(TensorShape(dims))) == TensorShape(dims)

    def test_unknown_rank_with_dimensions(self) -> None:
        with pytest.raises(InvalidArgumentError):
            decode_shape(TensorShapeProto(unknown_rank=True, dim=(DimProto(size=1),)))

    def test_sizes_below_unknown(self) -> None:
        with pytest.raises(InvalidArgumentError):
            decode_shape(TensorShapeProto(dim=(DimProto(size=-2),)))
