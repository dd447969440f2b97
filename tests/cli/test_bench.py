"""``asyncexec bench``: what is measured and written, made-up inputs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.cli.bench_measure import NodeCost, by_op, op_of, quantile

SHORT = ("--seconds", "0.01", "--warmups", "1")


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    """y is x of unknown batch times a vector; s is a string that is passed on."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        ax.matmul(x, ax.constant(np.ones((3, 1), np.float32)), name="y")
        ax.identity(ax.placeholder(ax.string, [], name="s"), name="same")
    path = tmp_path / "graph.json"
    ax.save_graph_def(graph.as_graph_def(), path)
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], terminal_width=200)


def test_each_batch_is_measured_at_each_concurrency(graph_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(graph_path, *SHORT, "--batch", "1,4", "--concurrency", "1,2", "--json", out)
    assert result.exit_code == 0, result.output
    assert "items/s" in result.stdout
    assert "MatMul" in result.stdout
    report = json.loads(out.read_text())
    assert [(row["batch"], row["concurrency"]) for row in report["rows"]] == [(1, 1), (1, 2), (4, 1), (4, 2)]
    assert report["inputs"] == {"x": "float32 [4, 3]", "s": "string []"}
    for row in report["rows"]:
        assert row["runs"] >= row["concurrency"]
        assert 0 < row["median_ms"] <= row["p99_ms"]
        assert row["per_second"] > 0
    product = next(cost for cost in report["nodes"] if cost["name"] == "y")
    assert (product["op"], product["calls"]) == ("MatMul", 1)


def test_an_input_can_be_fed_or_shaped(graph_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = invoke(graph_path, *SHORT, "--feed", "s=word", "--shape", "x=5,3", "--values", "zeros", "--json", out)
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["inputs"]["x"] == "float32 [5, 3]"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--signature", "other"], "no signature 'other'"),
        (["--feed", "z=1"], "has no z"),
        (["--shape", "x=2000000000,3"], "--shape"),
        (["--shape", "x=900000000,3"], "elements"),
        (["--shape", "x=5,4"], "x"),
        (["--memory-limit", "5000", "--shape", "x=5000,3"], "ResourceExhaustedError"),
        (["--beside", "onnxruntime"], "onnxruntime reads .onnx files"),
        (["--beside", "tensorflow"], "SavedModels and .pb files"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_short(graph_path: Path, arguments: list[str], told: str) -> None:
    result = invoke(graph_path, *SHORT, *arguments)
    assert result.exit_code in (1, 2)
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--batch", "0"], ["--batch", "1,"], ["--concurrency", "9999"], ["--shape", "x"], ["--seconds", "0"]]
)
def test_options_that_read_otherwise_exit_with_2(graph_path: Path, arguments: list[str]) -> None:
    assert invoke(graph_path, *arguments).exit_code == 2


def test_an_input_of_unknown_rank_needs_a_shape(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        ax.negative(ax.placeholder(ax.float32, None, name="x"), name="y")
    path = tmp_path / "graph.json"
    ax.save_graph_def(graph.as_graph_def(), path)
    result = invoke(path, *SHORT)
    assert result.exit_code == 1
    assert "--shape x=" in result.stderr
    assert invoke(path, *SHORT, "--shape", "x=2,2").exit_code == 0


def test_quantiles_and_costs() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([*range(100)], 0.99) == 99
    assert quantile([], 0.5) == 0
    assert op_of("y = MatMul(x, w)") == "MatMul"
    costs = [NodeCost("a", "Add", 1.0, 1), NodeCost("m", "MatMul", 1.5, 1), NodeCost("b", "Add", 2.0, 2)]
    assert by_op(costs) == [NodeCost("", "Add", 3.0, 3), NodeCost("", "MatMul", 1.5, 1)]
