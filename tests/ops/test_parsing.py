"""Parsing of records: what the golden answers cannot tell."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.framework.errors import OpError
from asyncexec.ops.parsing.wire import as_varint, delimited, fields, packed_varints, varint_at
from tests.ops.cases import parsing
from tests.ops.op_case import case
from tests.ops.op_runner import run_case


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_packed_varints_are_those_written(numbers: list[int]) -> None:
    data = b"".join(as_varint(number % 2**64) for number in numbers)
    assert packed_varints(data).tolist() == numbers


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01"])
def test_varints_that_do_not_end(data: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        packed_varints(data)
    with pytest.raises(ValueError, match="does not end"):
        varint_at(data, data.index(data[-1:]) if len(data) == 2 and data[0] == 1 else 0)


@given(st.lists(st.tuples(st.integers(1, 2000), st.binary(max_size=300))))
def test_fields_are_those_written(parts: list[tuple[int, bytes]]) -> None:
    data = b"".join(delimited(number, content) for number, content in parts)
    assert [(number, content) for number, _, content in fields(data)] == parts


@given(st.binary(max_size=60), st.integers(0, 255), st.integers(0, 200))
def test_damaged_records_are_typed_errors(junk: bytes, byte: int, place: int) -> None:
    damaged = bytearray(parsing.SEQUENCE)
    damaged[place % len(damaged)] = byte
    for data in (junk, bytes(damaged)):
        for each in (
            parsing.dense(data, parsing.NO_FLOATS, ""),
            parsing.sequence_v2(data, id="", **parsing.RAGGED),
            case("ParseTensor", data, out_type="float32"),
        ):
            with contextlib.suppress(OpError):
                run_case(each)


def test_an_error_names_the_record_and_the_feature() -> None:
    records, names = parsing.text(parsing.ONE, parsing.TWO), parsing.text(b"first", b"second")
    bad = parsing.dense(records, parsing.NO_FLOATS, "", key="c", names=names)
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"Name: first, Key: c\.  Data types don't match"):
        run_case(bad)


async def test_records_in_a_session() -> None:
    with ax.Graph() as graph:
        records = ax.placeholder(ax.string, [None])
        parsed = ax.raw_ops.ParseExampleV2(
            serialized=records,
            names=np.empty(0, object),
            sparse_keys=np.empty(0, object),
            dense_keys=["a"],
            ragged_keys=["b"],
            dense_defaults=[np.zeros(0, np.float32)],
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=[ax.int64],
            ragged_split_types=[ax.int32],
            dense_shapes=[[2]],
        )
    assert [tensor.shape.as_list() for tensor in parsed] == [[None, 2], [None], [None]]
    async with ax.Session(graph) as session:
        dense, values, splits = await session.run(parsed, {records: parsing.BATCH})
    assert dense.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert values.tolist() == [-1, 300, 2**62, 5]
    assert splits.tolist() == [0, 3, 4, 4]


async def test_a_tensor_is_parsed_as_it_was_serialized() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.bfloat16, [None])
        back = ax.raw_ops.ParseTensor(serialized=ax.raw_ops.SerializeTensor(tensor=x), out_type=ax.bfloat16)
    async with ax.Session(graph) as session:
        got = await session.run(back, {x: [1.0, -2.5]})
    assert got.dtype == ax.bfloat16.as_numpy_dtype
    assert got.tolist() == [1.0, -2.5]
