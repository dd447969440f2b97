"""Tensors on the wire: raw and JSON, both ways, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

import asyncexec as ax
from asyncexec.framework import types
from asyncexec.service.datatypes import datatype_of, dtype_of, from_json, from_raw, to_json, to_raw

NUMBERS = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([[0, 65535]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-(2**15), 1]], np.int16),
    "INT32": np.array([[-(2**31), 1]], np.int32),
    "INT64": np.array([[-(2**63), 1]], np.int64),
    "FP32": np.array([[1.5, -0.0]], np.float32),
    "FP64": np.array([[1e300, 2.5]], np.float64),
}


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_come_back_as_they_were(datatype: str) -> None:
    array = NUMBERS[datatype]
    assert datatype_of(types.as_dtype(array.dtype)) == datatype
    for found in (
        from_raw("x", datatype, [1, 2], to_raw(array)),
        from_json("x", datatype, [1, 2], to_json("x", array)),
        from_json("x", datatype, [1, 2], array.tolist()),
    ):
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_floats_of_16_bits_are_raw_alone(datatype: str) -> None:
    array = np.array([1.5, 2.0], dtype_of(datatype, "x").as_numpy_dtype)
    assert from_raw("x", datatype, [2], to_raw(array)).tobytes() == array.tobytes()
    with pytest.raises(ax.errors.InvalidArgumentError, match="sent as binary data"):
        from_json("x", datatype, [2], [1.5, 2.0])
    with pytest.raises(ax.errors.InvalidArgumentError, match="ask for it as binary data"):
        to_json("x", array)


def test_strings_come_back_as_they_were() -> None:
    array = np.array([[b"", b"\xc3\xa4"], [b"a\0b", b"long" * 100]], object)
    assert from_raw("x", "BYTES", [2, 2], to_raw(array)).tolist() == array.tolist()
    assert to_raw(np.array([b"ab"], object)) == b"\x02\0\0\0ab"
    text = np.array(["ä", "b"], object)
    assert from_json("x", "BYTES", [2], to_json("x", text)).tolist() == ["ä".encode(), b"b"]
    with pytest.raises(ax.errors.InvalidArgumentError, match="is no text"):
        to_json("x", np.array([b"\xff"], object))


def test_scalars_and_empty_tensors() -> None:
    assert from_raw("x", "INT32", [], b"\x05\0\0\0").tolist() == 5
    assert from_raw("x", "FP32", [0, 3], b"").shape == (0, 3)
    assert from_json("x", "FP32", [0, 3], []).shape == (0, 3)
    assert from_raw("x", "BYTES", [0], b"").shape == (0,)
    assert orjson.dumps(to_json("x", np.float64("nan").reshape(()))) == b"[null]"


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        ("FP32", [2], b"1234567", "expected 8, got 7"),
        ("FP32", [2], b"", "expected 8, got 0"),
        ("FP32", [-1], b"1234", "which are integers from 0"),
        ("FP32", [1.0], b"1234", "which are integers from 0"),
        ("FP32", [True], b"1234", "which are integers from 0"),
        ("FP32", [2**40, 2**40], b"1234", "is too large"),
        ("FP32", [0, 2**62, 2**62], b"", "is too large"),
        ("FP32", [1] * 40, b"1234", "which are integers from 0"),
        ("FP99", [1], b"1234", "unknown data-type 'FP99'"),
        ("BOOL", [1], b"\x02", "bytes other than 0 and 1"),
        ("BYTES", [1], b"\x05\0\0\0abc", "incomplete string data"),
        ("BYTES", [2], b"\x01\0\0\0a\x01\0\0", "incomplete string length indicator"),
        ("BYTES", [1], b"\x01\0\0\0a\x01\0\0\0b", "unexpected number of string elements 2"),
        ("BYTES", [2**20], b"\x01\0\0\0a", "incorrect number of string elements"),
        ("BYTES", [1], b"\xff\xff\xff\xffa", "incomplete string data"),
        ("BYTES", [1], b"\0\0\0\0" * 5, "unexpected number of string elements 2 or more"),
        ("BYTES", [2**11, 2**11 + 1], bytes(2**24 + 2**13), "a tensor of BYTES has at most 4194304"),
    ],
)
def test_raw_data_that_is_refused(datatype: str, shape: Any, data: bytes, told: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError) as raised:
        from_raw("x", datatype, shape, data)
    assert told in raised.value.message
    assert "'x'" in raised.value.message


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "told"),
    [
        ("FP32", [2], [1.0], "got 1 elements, expected 2"),
        ("FP32", [2], [[1.0], 2.0], "lists beside elements"),
        ("FP32", [1], 1.0, "no list"),
        ("FP32", [1], {"a": 1}, "no list"),
        ("FP32", [1], ["1"], "not all elements are FP32"),
        ("FP32", [1], [None], "not all elements are FP32"),
        ("INT32", [1], [1.5], "not all elements are INT32"),
        ("INT32", [1], [True], "not all elements are INT32"),
        ("BOOL", [1], [1], "not all elements are BOOL"),
        ("INT8", [1], [128], "cannot hold"),
        ("UINT8", [1], [-1], "cannot hold"),
        ("UINT64", [1], [2**64], "cannot hold"),
        ("FP32", [1], [10**400], "cannot hold"),
        ("FP32", [2], [1e39, 10**400], "cannot hold"),
        ("BYTES", [1], [1], "not all elements are BYTES"),
        ("BYTES", [2**22 + 1], [], "a tensor of BYTES has at most 4194304"),
        ("INT32", [0], [1], "got 1 elements, expected 0"),
    ],
)
def test_json_that_is_refused(datatype: str, shape: Any, data: Any, told: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError) as raised:
        from_json("x", datatype, shape, data)
    assert told in raised.value.message


def test_floats_that_are_too_large_are_infinite() -> None:
    assert from_json("x", "FP32", [2, 2], [1e39, -1e39, 3, 0.5]).tolist() == [[np.inf, -np.inf], [3.0, 0.5]]


def test_dtypes_that_no_client_knows() -> None:
    with pytest.raises(ax.errors.UnimplementedError, match="complex64"):
        datatype_of(types.complex64)
