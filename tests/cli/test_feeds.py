"""``--feed`` and ``--device-count``: what they accept, what it means, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from asyncexec.cli.feeds import FeedArgument, feed_value, parse_device_count, parse_feed
from asyncexec.framework.types import as_dtype


def value_of(text: str, dtype: str) -> Any:
    return feed_value(FeedArgument("x:0", text), as_dtype(dtype))


def test_a_name_alone_is_its_first_output() -> None:
    assert parse_feed("x=1") == ("x:0", "1")
    assert parse_feed("a/b:1=[1, 2]") == ("a/b:1", "[1, 2]")
    assert parse_feed("x=a=b") == ("x:0", "a=b")


@pytest.mark.parametrize("argument", ["x", "=1", ""])
def test_what_is_not_name_and_value_is_refused(argument: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not NAME=VALUE"):
        parse_feed(argument)


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("3", "float32", np.float32(3)),
        ("[[1, 2.5]]", "float64", np.array([[1, 2.5]])),
        ("[1, 2]", "int64", np.array([1, 2], np.int64)),
        ("[1.0, 2.0]", "int32", np.array([1, 2], np.int32)),
        ("[]", "float32", np.zeros(0, np.float32)),
        ("true", "bool", np.True_),
        ("255", "uint8", np.uint8(255)),
    ],
)
def test_json_becomes_a_tensor_of_the_dtype(text: str, dtype: str, expected: Any) -> None:
    value = value_of(text, dtype)
    np.testing.assert_array_equal(value, expected, strict=True)
    assert type(value) is type(expected)


def test_strings_become_bytes_quoted_or_not() -> None:
    assert value_of("plain text", "string") == b"plain text"
    assert value_of('"quoted"', "string") == b"quoted"
    value = value_of('[["a", "é"]]', "string")
    assert value.dtype == object
    assert value.tolist() == [[b"a", "é".encode()]]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("[1, [2]]", "float32"),
        ("1.5", "int32"),
        ("300", "uint8"),
        ("word", "float32"),
        ('"word"', "float32"),
        ("1", "bool"),
        ("1", "string"),
        ("null", "int32"),
        ('{"a": 1}', "float32"),
    ],
)
def test_a_value_that_is_not_of_the_dtype_is_refused_by_name(text: str, dtype: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"x:0 \\({dtype}\\)"):
        value_of(text, dtype)


def test_arrays_come_from_files(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array, text=np.array([b"ab", b"c"]))
    np.testing.assert_array_equal(value_of(f"@{tmp_path}/a.npy", "float32"), array, strict=True)
    np.testing.assert_array_equal(value_of(f"@{tmp_path}/a.npz:x", "float64"), array.astype(np.float64), strict=True)
    assert value_of(f"@{tmp_path}/a.npz:text", "string").tolist() == [b"ab", b"c"]


def test_a_file_that_is_not_what_it_should_be_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(1))
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("not an array")
    for text, message in [
        ("missing.npy", "cannot read"),
        ("a.npz", "name one of the arrays of .*KEY with x"),
        ("a.npz:y", "name one of the arrays"),
        ("pickled.npy", "cannot read .*allow_pickle=False"),
        ("text.npy", "cannot read"),
    ]:
        with pytest.raises(typer.BadParameter, match=message):
            value_of(f"@{tmp_path}/{text}", "float32")


def test_device_counts() -> None:
    assert parse_device_count(["CPU=2", "gpu=1"]) == {"CPU": 2, "GPU": 1}
    assert parse_device_count([]) == {}
    for bad in ("CPU", "CPU=x", "=1", "CPU=-1"):
        with pytest.raises(typer.BadParameter, match="is not TYPE=COUNT"):
            parse_device_count([bad])
