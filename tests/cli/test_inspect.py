"""``asyncexec inspect``: where graphs come from, what is said of them, and what when they cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.cli.reporting import MOST_ROWS
from asyncexec.graph.graph_text import parse_graph_text

ROOT = Path(__file__).parents[2]
MODULE = """
import asyncexec as ax

@ax.op
def tax_{tag}(amount: float, rate: float = 0.2) -> float:
    return amount * (1 + rate)

class Holder:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = tax_{tag}(x)
    number = 3

built = Holder.graph.as_graph_def()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A graph with two placeholders, a node that asks for a device, and three outputs."""
    text = """
        x: Placeholder[float32, [?, 2]]
        s: Placeholder[string, []]
        w: Const[[[1.0], [2.0]]]
        y: MatMul(x, w) @ /cpu:0
        same: Identity(s)
        log: NoOp(^y)
        end: Neg(y)
    """
    path = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text(text), path)
    return path


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the current folder, of another name in each test, for modules stay imported."""
    name = f"taxes_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(tag=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def inspect(*arguments: object, stdin: bytes = b"") -> Result:
    command = ["inspect", *(str(argument) for argument in arguments)]
    return CliRunner().invoke(app, command, terminal_width=80, input=stdin)


def as_json(*arguments: object, stdin: bytes = b"") -> Any:
    result = inspect(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_it_tells_ops_inputs_outputs_and_devices(path: Path) -> None:
    result = inspect(path)
    assert result.exit_code == 0, result.output
    assert "7 nodes" in result.stdout
    for expected in ("inputs (2)", "outputs (3)", "MatMul", "x:0", "[?,2]", "end:0", "log", "(any)", "CPU:0"):
        assert expected in result.stdout


def test_json_tells_the_same_and_follows_its_schema(path: Path) -> None:
    found = as_json(path, "--passes")
    schema = json.loads((ROOT / "schemas" / "graph_summary.schema.json").read_text())
    Draft202012Validator(schema).validate(found)
    assert found["version"] == 1
    assert found["source"] == str(path)
    assert found["node_count"] == 7
    assert found["op_counts"]["Placeholder"] == 2
    assert found["inputs"][0] == {"name": "x:0", "op": "Placeholder", "dtype": "float32", "shape": "[?,2]"}
    assert [each["name"] for each in found["outputs"]] == ["same:0", "log", "end:0"]
    assert found["unknown_ops"] == []
    assert found["problem"] is None
    assert {"prune", "place"} & {each["name"] for each in found["passes"]}


def test_it_shows_what_passes_make_of_the_graph(tmp_path: Path) -> None:
    text = "x: Placeholder[float32, []]\na: Neg(x) @ /gpu:0\nb: Neg(x) @ /gpu:0\nend: Sub(a, b)\nlog: NoOp(^end)"
    path = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text(text), path)
    result = inspect(path, "--passes")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    merging = next(row for row in rows if row[:1] == ["merge_common_subexpressions"])
    assert merging[1:] == ["4", "->", "3", "-1", "~1", "-b", "~end"]
    assert ["prune", "5", "->", "4"] in rows
    assert "passes" not in inspect(path).stdout


@pytest.mark.parametrize("suffix", ["pb", "pbtxt", "json"])
def test_a_graph_may_come_from_standard_input(path: Path, tmp_path: Path, suffix: str) -> None:
    other = tmp_path / f"other.{suffix}"
    ax.save_graph_def(ax.load_graph_def(path), other)
    found = as_json("-", stdin=other.read_bytes())
    assert found["source"] == "-"
    assert found["node_count"] == 7


def test_standard_input_that_is_no_graph_exits_with_1() -> None:
    for stdin in (b"", b'{"node": 3', b"\x00\xff\x07", b"node { nonsense"):
        result = inspect("-", stdin=stdin)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) <= 3


@pytest.mark.parametrize("name", ["Holder.graph", "built"])
def test_a_graph_of_a_module_is_imported(module: str, name: str) -> None:
    found = as_json(f"{module}:{name}", "--passes")
    assert found["op_counts"][f"tax_{module}"] == 1
    assert found["outputs"] == [
        {"name": f"tax_{module}:0", "op": f"tax_{module}", "dtype": "float64", "shape": "<unknown>"}
    ]
    assert found["unknown_ops"] == []


def test_a_path_is_never_imported_as_a_module(module: str, tmp_path: Path) -> None:
    assert inspect(f"{module}.py").exit_code == 1
    assert inspect(module).exit_code == 2
    assert module not in sys.modules
    (tmp_path / f"{module}:built").write_text("{")
    assert inspect(f"{module}:built").exit_code == 1
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MODULE:Holder.number", "of type int"),
        ("MODULE:nothing", "nothing"),
        ("no_such_module_xyz:graph", "no_such_module_xyz"),
    ],
)
def test_a_module_without_that_graph_exits_with_1(module: str, name: str, said: str) -> None:
    result = inspect(name.replace("MODULE", module))
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) <= 3


def test_a_saved_graph_with_ops_of_a_user_is_shown_and_says_which(module: str, tmp_path: Path) -> None:
    text = "x: Placeholder[float64, []]\nz: Neg(x)"
    graph_def = json.loads(parse_graph_text(text).to_json())
    graph_def["node"].append({"name": "mine", "op": "MyOwnOp", "input": ["z"]})
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(graph_def))
    result = inspect(path, "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "not registered here: MyOwnOp" in result.stderr
    assert "3 nodes" in result.stdout
    assert "unknown ops (1)" in result.stdout
    assert "MyOwnOp" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert as_json(path)["unknown_ops"] == ["MyOwnOp"]


def test_an_imported_module_registers_the_ops_of_a_saved_graph(module: str, tmp_path: Path) -> None:
    saved = subprocess.run(
        [sys.executable, "-c", f"import {module}; print({module}.built.to_json())"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    (tmp_path / "saved.json").write_text(saved.stdout)
    assert as_json("saved.json")["unknown_ops"] == [f"tax_{module}"]
    found = as_json("saved.json", "--import", module, "--passes")
    assert found["unknown_ops"] == []
    assert found["outputs"][0]["dtype"] == "float64"
    assert found["passes"]


def test_an_op_that_reaches_outside_is_shown_and_not_run(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text(f"name: Const['{secret}']\nread: ReadFile(name)"), path)
    result = inspect(path)
    assert result.exit_code == 0
    assert "read:0" in result.stdout
    refused = inspect(path, "--passes")
    assert refused.exit_code == 1
    assert "ReadFile" in refused.stderr


def test_a_graph_that_cannot_be_imported_is_shown_and_exits_with_1(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"node": [{"name": "a", "op": "Neg", "input": ["nothing"]}, {"name": "b", "op": "NoOp"}]}')
    result = inspect(path, "--html", tmp_path / "page.html")
    assert result.exit_code == 1
    assert "2 nodes" in result.stdout
    assert "nothing" in result.stderr
    assert 1 <= len(result.stderr.splitlines()) <= 3
    assert "nothing" in (tmp_path / "page.html").read_text(encoding="utf-8")
    result = inspect(path, "--json")
    assert result.exit_code == 1
    assert "nothing" in json.loads(result.stdout)["problem"]


def test_columns_are_not_cut_where_nobody_reads_on_a_screen(tmp_path: Path) -> None:
    name = "/".join(["a_long_name_scope"] * 30)
    path = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text(f"{name}: Placeholder[float32, [1, 2, 3]]"), path)
    (line,) = [line for line in inspect(path).stdout.splitlines() if line.startswith(name)]
    assert line.split() == [f"{name}:0", "Placeholder", "float32", "[1,2,3]"]


def test_tables_are_capped_and_say_so_and_json_is_not(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text("\n".join(f"x{i}: Placeholder[float32, []]" for i in range(100))), path)
    lines = inspect(path).stdout.splitlines()
    assert "inputs (100)" in lines
    assert sum(line.startswith("x") for line in lines) == MOST_ROWS
    assert f"... and {100 - MOST_ROWS} more" in lines
    assert len(as_json(path)["inputs"]) == 100


def test_it_writes_a_page(path: Path, tmp_path: Path) -> None:
    page = tmp_path / "graph.html"
    assert inspect(path, "--html", page).exit_code == 0
    assert "MatMul" in page.read_text(encoding="utf-8")


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"node": [{"name": "a\x1b[31m", "op": "Op\x1b]0;x\x07[bold]"}]}))
    result = inspect(path)
    assert "\x1b" not in result.output
    assert "Op\\x1b]0;x\\x07[bold]" in result.stdout
