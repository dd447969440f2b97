"""Outputs as classes: the largest elements, with their indices and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.app import create_app
from asyncexec.service.models.classes import classified, labels_in
from asyncexec.service.models.config import config_of
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferTensor
from tests.service.models import model_of, write_model

pytestmark = pytest.mark.one_of("loop")


def classes(array: Any, count: int, labels: list[str] | None = None, *, has_batch: bool, datatype: str = "") -> Any:
    array = np.asarray(array)
    tensor = InferTensor(datatype or {"f4": "FP32", "i8": "INT64"}[array.dtype.str[1:]], array)
    return classified("y", tensor, count, labels or [], has_batch=has_batch).array.tolist()


def test_the_largest_elements_of_each_row() -> None:
    rows = np.array([[0.5, 4, -1], [2, 3, 1]], np.float32)
    assert classes(rows, 2, has_batch=True) == [[b"4.000000:1", b"0.500000:0"], [b"3.000000:1", b"2.000000:0"]]
    assert classes(rows, 2, has_batch=False) == [b"4.000000:1", b"3.000000:4"]
    assert classes(rows, 9, has_batch=True)[1] == [b"3.000000:1", b"2.000000:0", b"1.000000:2"]


def test_integers_and_labels() -> None:
    assert classes([[7, 9, 8]], 3, ["a", "b"], has_batch=True) == [[b"9:1:b", b"8:2", b"7:0:a"]]


def test_large_integers_differ_by_one() -> None:
    largest = 2**63 - 1
    assert classes([largest - 1, largest, largest - 2], 2, has_batch=False) == [
        f"{largest}:1".encode(),
        f"{largest - 1}:0".encode(),
    ]


def test_nan_comes_after_all_numbers() -> None:
    row = np.array([np.nan, -np.inf, np.nan, 1], np.float32)
    assert classes(row, 4, has_batch=False) == [b"1.000000:3", b"-inf:1", b"nan:0", b"nan:2"]


def test_equal_elements_come_in_their_order_and_nan_last() -> None:
    assert classes([1, 3, 3, 1], 3, has_batch=False) == [b"3:1", b"3:2", b"1:0"]
    told = classes(np.array([np.nan, -5, np.inf], np.float32), 3, has_batch=False)
    assert told == [b"inf:2", b"-5.000000:1", b"nan:0"]


def test_nothing_to_classify() -> None:
    assert classes(np.zeros((0, 3), np.float32), 2, has_batch=True) == []
    assert classes(np.zeros((2, 0), np.float32), 2, has_batch=True) == [[], []]
    assert classes(np.float32(3), 2, has_batch=False) == [b"3.000000:0"]


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.array([True]), "BOOL"),
        (np.array([b"a"], object), "BYTES"),
        (np.array([1], np.float16), "FP16"),
        (np.array([1], ax.bfloat16.as_numpy_dtype), "BF16"),
    ],
)
def test_other_types_have_no_classes(array: Any, datatype: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"output 'y' due to unsupported type '{datatype}'"):
        classes(array, 1, has_batch=False, datatype=datatype)


def test_there_is_an_end_to_classes() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 1048576 classes"):
        classes(np.zeros((2, 2**19 + 1), np.float32), 2**31 - 1, has_batch=True)


@pytest.mark.parametrize("name", ["none.txt", "../labels.txt", "/etc/hostname", "..", "folder"])
def test_labels_are_a_file_of_the_model(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "labels.txt").write_text("a\n")
    config = config_of({"output": [{"name": "y", "label_filename": name}]}, "test")
    with pytest.raises(InvalidArgumentError, match="'label_filename' of output 'y' is no file of the model"):
        labels_in(folder, config)


def test_labels_are_text(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(b"\xff")
    with pytest.raises(InvalidArgumentError, match="'label_filename' of output 'y' is no text"):
        labels_in(tmp_path, config_of({"output": [{"name": "y", "label_filename": "labels"}]}, "test"))


def scores() -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, [None, 3], name="x"), name="y")
    return graph


def test_a_model_that_has_no_folder_has_no_labels() -> None:
    with pytest.raises(InvalidArgumentError, match="no folder to find it in"):
        model_of(ModelSource(scores()), output=[{"name": "y", "label_filename": "labels.txt"}])


@pytest.mark.allow_blocking
async def test_classes_over_http(tmp_path: Path) -> None:
    config = 'max_batch_size: 4\noutput { name: "y" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" }'
    write_model(tmp_path / "m", scores(), config=config)
    (tmp_path / "m" / "labels.txt").write_text("cat\ndog\n\nbird\n", encoding="utf-8")
    x = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 3, 2, 9, 7, 8]}
    app = create_app(ModelRepository(tmp_path))
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        wanted = [{"name": "y", "parameters": {"classification": 2}}]
        answer = await client.post("/v2/models/m/infer", json={"inputs": [x], "outputs": wanted})
        none = [{"name": "y", "parameters": {"classification": 0}}]
        plain = await client.post("/v2/models/m/infer", json={"inputs": [x], "outputs": none})
    told = ["3.000000:1:dog", "2.000000:2", "9.000000:0:cat", "8.000000:2"]
    assert answer.json()["outputs"] == [{"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": told}]
    assert plain.json()["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [1, 3, 2, 9, 7, 8]}]
