"""Lookup tables: what TensorFlow's do, run after run in one session (each answer here was seen in TensorFlow 2.21)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from tests.ops.op_case import OpCase, f32, i64, text
from tests.ops.op_runner import run_case
from tests.ops.session import Session

STRING_TO_INT: dict[str, Any] = {"key_dtype": "string", "value_dtype": "int64"}


class Table:
    """A table of a session and the ops on it."""

    def __init__(self, op: str = "HashTableV2", *inputs: Any, session: Session | None = None, **attrs: Any) -> None:
        self.session = session or Session()
        self._op, self._inputs, self._attrs = op, inputs, {**STRING_TO_INT, **attrs}

    def run(self, op: str, *inputs: Any, **attrs: Any) -> list[Any]:
        (handle,) = run_case(OpCase(self._op, self._inputs, self._attrs), self.session)
        return run_case(OpCase(op, [handle, *inputs], attrs), self.session)

    def find(self, keys: Any, default: Any) -> Any:
        return self.run("LookupTableFindV2", keys, default)[0]

    def size(self) -> int:
        return int(self.run("LookupTableSizeV2")[0])

    def initialize(self, keys: Any, values: Any) -> None:
        assert self.run("InitializeTableV2", keys, values) == []

    def export(self) -> dict[Any, Any]:
        keys, values = self.run("LookupTableExportV2", Tkeys="string", Tvalues="int64")
        return dict(zip(keys.tolist(), values.tolist(), strict=True))


def test_a_hash_table_is_filled_once_and_then_read() -> None:
    table = Table()
    assert table.size() == 0
    table.initialize(text(b"a", b"b"), i64(1, 2))
    np.testing.assert_array_equal(table.find(text(b"b", b"z", b"a"), np.int64(-1)), [2, -1, 1])
    found = table.find(np.array([[b"a"], [b"q"]], object), np.int64(-7))
    np.testing.assert_array_equal(found, [[1], [-7]])
    assert table.find(b"b", np.int64(0)) == 2
    assert table.size() == 2
    assert table.export() == {b"a": 1, b"b": 2}


def test_a_hash_table_not_yet_filled_cannot_be_read() -> None:
    table = Table()
    with pytest.raises(FailedPreconditionError):
        table.find(text(b"a"), np.int64(-1))
    with pytest.raises(AbortedError):
        table.export()


def test_filling_again_with_as_many_entries_changes_nothing() -> None:
    table = Table()
    table.initialize(text(b"a", b"b"), i64(1, 2))
    table.initialize(text(b"a", b"c"), i64(5, 6))
    assert table.export() == {b"a": 1, b"b": 2}
    with pytest.raises(FailedPreconditionError):
        table.initialize(text(b"a"), i64(1))


def test_one_key_with_two_values_is_refused() -> None:
    table = Table()
    with pytest.raises(FailedPreconditionError):
        table.initialize(text(b"a", b"a"), i64(1, 2))
    assert table.size() == 0
    table.initialize(text(b"a", b"a"), i64(1, 1))
    assert table.size() == 1


@pytest.mark.parametrize(
    ("op", "inputs", "error"),
    [
        ("InitializeTableV2", (text(b"a", b"b"), i64(1, 2, 3)), InvalidArgumentError),
        ("InitializeTableV2", (text(b"a").reshape(1, 1), i64([1])), InvalidArgumentError),
        ("InitializeTableV2", (i64(1), i64(1)), InvalidArgumentError),
        ("LookupTableInsertV2", (text(b"a"), i64(1)), UnimplementedError),
        ("LookupTableRemoveV2", (text(b"a"),), UnimplementedError),
    ],
)
def test_what_a_hash_table_refuses(op: str, inputs: Any, error: type[OpError]) -> None:
    with pytest.raises(error):
        Table().run(op, *inputs)


def test_a_lookup_of_another_dtype_is_refused() -> None:
    table = Table()
    table.initialize(text(b"a"), i64(1))
    with pytest.raises(InvalidArgumentError):
        table.find(i64(1), np.int64(-1))
    with pytest.raises(InvalidArgumentError):
        table.find(text(b"a"), np.float32(-1))
    with pytest.raises(InvalidArgumentError):
        table.find(text(b"a"), i64(-1))


def test_a_mutable_table_is_written_at_any_time() -> None:
    table = Table("MutableHashTableV2")
    np.testing.assert_array_equal(table.find(text(b"a"), np.int64(-1)), [-1])
    table.run("LookupTableInsertV2", text(b"a", b"b", b"a"), i64(1, 2, 3))
    np.testing.assert_array_equal(table.find(text(b"a", b"z"), i64(-1, -2)), [3, -2])
    table.run("LookupTableInsertV2", b"c", np.int64(9))
    table.run("LookupTableRemoveV2", text(b"a", b"not there"))
    assert table.export() == {b"b": 2, b"c": 9}
    table.run("LookupTableImportV2", text(b"z"), i64(5))
    assert table.export() == {b"z": 5}
    with pytest.raises(InvalidArgumentError):
        table.find(text(b"a", b"z"), i64(1, 2, 3))
    with pytest.raises(InvalidArgumentError):
        table.run("LookupTableInsertV2", text(b"a"), i64(1, 2))
    with pytest.raises(InvalidArgumentError):
        table.initialize(text(b"a"), i64(1))


def test_a_dense_table_has_values_with_a_shape_and_two_reserved_keys() -> None:
    table = Table(
        "MutableDenseHashTableV2", np.int64(0), np.int64(-1), key_dtype="int64", value_dtype="float32", value_shape=[2]
    )
    table.run("LookupTableInsertV2", i64(1, 3), f32([1, 2], [3, 4]))
    np.testing.assert_array_equal(table.find(i64([3], [9]), f32(-1, -2)), [[[3, 4]], [[-1, -2]]])
    np.testing.assert_array_equal(table.find(np.int64(1), f32(-1, -2)), [1, 2])
    table.run("LookupTableRemoveV2", i64(1, 7))
    assert table.size() == 1
    for reserved in (0, -1):
        with pytest.raises(InvalidArgumentError):
            table.find(i64(reserved), f32(-1, -2))
        with pytest.raises(InvalidArgumentError):
            table.run("LookupTableInsertV2", i64(reserved), f32([1, 2]))
    with pytest.raises(InvalidArgumentError):
        table.run("LookupTableInsertV2", i64(5), f32([1, 2, 3]))
    with pytest.raises(InvalidArgumentError):
        table.find(i64(1), f32(1))


@pytest.mark.parametrize(
    ("keys", "attrs"),
    [((0, 0), {}), ((0, 1), {"initial_num_buckets": 3}), ((0, 1), {"max_load_factor": 1.5})],
)
def test_a_dense_table_with_impossible_parameters_is_refused(keys: tuple[int, int], attrs: dict[str, Any]) -> None:
    table = Table("MutableDenseHashTableV2", *map(np.int64, keys), key_dtype="int64", **attrs)
    with pytest.raises(InvalidArgumentError):
        table.size()


def test_tables_are_shared_by_name_and_only_with_the_same_dtypes() -> None:
    session = Session()
    Table(session=session, shared_name=b"x").initialize(text(b"a"), i64(1))
    assert Table(session=session, shared_name=b"x").size() == 1
    assert Table(session=session, shared_name=b"y").size() == 0
    assert Table(session=session).size() == 0
    with pytest.raises(InvalidArgumentError):
        Table(session=session, shared_name=b"x", value_dtype="float32").size()


def test_the_first_versions_of_the_ops_use_the_same_tables() -> None:
    session = Session()
    (handle,) = run_case(OpCase("MutableHashTableV2", attrs=STRING_TO_INT), session)
    run_case(OpCase("LookupTableInsert", [handle, text(b"a"), i64(4)]), session)
    (found,) = run_case(OpCase("LookupTableFind", [handle, text(b"a"), np.int64(0)]), session)
    np.testing.assert_array_equal(found, [4])


VOCABULARY = "a\tx\t1\nb\ty\t2\nc\tz\t3\n"


@pytest.mark.parametrize(
    ("dtypes", "attrs", "expected"),
    [
        (("string", "int64"), {"key_index": -2, "value_index": -1}, {b"a\tx\t1": 0, b"b\ty\t2": 1, b"c\tz\t3": 2}),
        (("string", "int64"), {"key_index": 0, "value_index": 2}, {b"a": 1, b"b": 2, b"c": 3}),
        (("int64", "string"), {"key_index": -1, "value_index": 1}, {0: b"x", 1: b"y", 2: b"z"}),
        (("string", "float32"), {"key_index": 1, "value_index": 2}, {b"x": 1.0, b"y": 2.0, b"z": 3.0}),
        (("string", "int64"), {"key_index": 0, "value_index": -1, "vocab_size": 2}, {b"a": 0, b"b": 1}),
        (("string", "int64"), {"key_index": 0, "value_index": -1, "offset": 5}, {b"a": 5, b"b": 6, b"c": 7}),
    ],
)
def test_a_table_is_filled_from_a_file(
    tmp_path: Path, dtypes: tuple[str, str], attrs: dict[str, Any], expected: dict[Any, Any]
) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_text(VOCABULARY)
    table = Table(key_dtype=dtypes[0], value_dtype=dtypes[1])
    table.run("InitializeTableFromTextFileV2", str(path).encode(), **attrs)
    keys, values = table.run("LookupTableExportV2", Tkeys=dtypes[0], Tvalues=dtypes[1])
    assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("content", "attrs", "error"),
    [
        (VOCABULARY, {"key_index": 0, "value_index": 5}, InvalidArgumentError),
        (VOCABULARY, {"key_index": 0, "value_index": 1}, InvalidArgumentError),
        (VOCABULARY, {"key_index": -2, "value_index": -1, "vocab_size": 5}, InvalidArgumentError),
        (VOCABULARY, {"key_index": -2, "value_index": -2}, InvalidArgumentError),
        (VOCABULARY, {"key_index": 0, "value_index": 2, "delimiter": b"ab"}, InvalidArgumentError),
        ("a\nb\n\nc", {"key_index": -2, "value_index": -1}, InvalidArgumentError),
        ("a\nb\na", {"key_index": -2, "value_index": -1}, FailedPreconditionError),
        (None, {"key_index": -2, "value_index": -1}, NotFoundError),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, content: str | None, attrs: dict[str, Any], error: type[OpError]
) -> None:
    path = tmp_path / "vocabulary.txt"
    if content is not None:
        path.write_text(content)
    table = Table()
    with pytest.raises(error):
        table.run("InitializeTableFromTextFileV2", str(path).encode(), **attrs)
    assert table.size() == 0


TENSORS: dict[str, Any] = {"key_dtype": "int64", "value_dtype": "float32", "value_shape": [2]}


def test_a_table_of_tensors() -> None:
    table = Table("MutableHashTableOfTensorsV2", **TENSORS)
    assert table.run("LookupTableInsertV2", i64(1, 2), f32([1, 2], [3, 4])) == []
    np.testing.assert_array_equal(table.find(i64(2, 5, 1), f32(9, 8)), [[3, 4], [9, 8], [1, 2]])
    assert table.size() == 2
    with pytest.raises(InvalidArgumentError):
        table.run("LookupTableInsertV2", i64(1, 2), f32(1, 2))
    np.testing.assert_array_equal(table.find(i64(2, 5), f32([9, 8], [7, 6])), [[3, 4], [7, 6]])
    keys, values = table.run("LookupTableExportV2", Tkeys="int64", Tvalues="float32")
    assert dict(zip(keys.tolist(), values.tolist(), strict=True)) == {1: [1, 2], 2: [3, 4]}


@pytest.mark.parametrize("shape", [[], [2, 3], None])
def test_a_table_of_tensors_has_vectors(shape: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a vector"):
        Table("MutableHashTableOfTensorsV2", **TENSORS | {"value_shape": shape}).size()


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "values"),
    [
        ("MutableDenseHashTable", [np.int64(0)], {}, i64(3, 4)),
        ("MutableHashTableOfTensors", [], {"value_shape": [1]}, i64([3], [4])),
    ],
)
async def test_tables_by_reference(op: str, inputs: list[Any], attrs: dict[str, Any], values: Any) -> None:
    with ax.Graph() as graph:
        table = ax.create_op(op, inputs, attrs | {"key_dtype": ax.int64, "value_dtype": ax.int64})
        insert = ax.create_op("LookupTableInsert", [table, i64(1, 2), values])
        keys = ax.placeholder(ax.int64, [None])
        found = ax.create_op("LookupTableFind", [table, keys, np.full(values.shape[1:], -1)])
    async with ax.Session(graph) as session:
        await session.run([], targets=[insert])
        assert (await session.run(found, {keys: [2, 7]})).ravel().tolist() == [4, -1]
        if inputs:
            with pytest.raises(InvalidArgumentError, match="empty_key"):
                await session.run(found, {keys: [0]})


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("AnonymousMutableHashTable", (), STRING_TO_INT),
        ("AnonymousMutableHashTableOfTensors", (), STRING_TO_INT | {"value_shape": [1]}),
        ("AnonymousMutableDenseHashTable", (b"", b"-"), STRING_TO_INT),
    ],
)
def test_a_table_without_a_name_is_new_in_each_run(op: str, inputs: Any, attrs: dict[str, Any]) -> None:
    session = Session()
    (first,) = run_case(OpCase(op, inputs, attrs), session)
    values = np.int64([[1]]) if "Tensors" in op else i64(1)
    run_case(OpCase("LookupTableInsertV2", [first, text(b"a"), values], {}), session)
    assert run_case(OpCase("LookupTableSizeV2", [first], {}), session) == [1]
    (second,) = run_case(OpCase(op, inputs, attrs), session)
    assert run_case(OpCase("LookupTableSizeV2", [second], {}), session) == [0]


def test_a_hash_table_without_a_name() -> None:
    session = Session()
    (table,) = run_case(OpCase("AnonymousHashTable", (), STRING_TO_INT), session)
    run_case(OpCase("InitializeTableV2", [table, text(b"a"), i64(1)], {}), session)
    assert run_case(OpCase("LookupTableFindV2", [table, b"a", np.int64(0)], {}), session) == [1]
