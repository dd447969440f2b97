"""The command line from end to end, on a real session: results, files written, exit codes, messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.cli.reporting import MOST_ROWS
from asyncexec.graph.graph_text import parse_graph_text

ROOT = Path(__file__).parents[2]


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    """y = x @ [[1], [2]] + 1, a string s that is passed through, and a check that x is not negative."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 2], name="x")
        weights = ax.constant(np.array([[1], [2]], np.float32), name="weights")
        ax.add(ax.matmul(x, weights), 1.0, name="y")
        ax.identity(ax.placeholder(ax.string, [], name="s"), name="same")
        ax.create_op("CheckNumerics", [x], attrs={"message": "x is not finite"}, name="checked")
    path = tmp_path / "graph.json"
    ax.save_graph_def(graph.as_graph_def(), path)
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=200)


def test_run_shows_what_was_fetched(graph_path: Path) -> None:
    result = invoke("run", graph_path, "--feed", "x=[[1, 2], [3, 4]]", "--fetch", "y")
    assert result.exit_code == 0, result.output
    assert "y:0" in result.stdout
    assert "float32" in result.stdout
    assert "[2, 1]" in result.stdout
    assert "12." in result.stdout


def test_run_without_fetch_gets_the_outputs(graph_path: Path) -> None:
    result = invoke("run", graph_path, "--feed", "x=[[1, 2]]", "--feed", "s=hello")
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in ("y:0", "same:0", "checked:0", "hello"))


def test_run_stores_what_was_fetched(graph_path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2]], np.float32))
    output = tmp_path / "out.npz"
    feeds = ("--feed", f"x=@{tmp_path}/x.npy", "--feed", "s=text")
    result = invoke("run", graph_path, *feeds, "--fetch", "y:0", "--fetch", "same", "--output", output)
    assert result.exit_code == 0, result.output
    with np.load(output, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["y:0"], np.array([[6]], np.float32), strict=True)
        assert stored["same:0"][()] == b"text"


def test_run_writes_a_timeline(graph_path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    result = invoke("run", graph_path, "--feed", "x=[[1, 2]]", "--fetch", "y", "--trace", trace)
    assert result.exit_code == 0, result.output
    events = json.loads(trace.read_text())["traceEvents"]
    assert "y" in {event["args"]["name"] for event in events if event["ph"] == "X"}


def test_run_of_targets_alone_fetches_nothing(graph_path: Path) -> None:
    result = invoke("run", graph_path, "--feed", "x=[[1, 2]]", "--target", "y")
    assert result.exit_code == 0, result.output
    assert "y:0" not in result.stdout


def test_run_on_several_devices(graph_path: Path) -> None:
    result = invoke("run", graph_path, "--feed", "x=[[1, 2]]", "--fetch", "y", "--device-count", "CPU=2")
    assert result.exit_code == 0, result.output


def test_a_failed_run_exits_with_1_and_names_the_node_on_stderr(graph_path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[np.nan, 0]], np.float32))
    result = invoke("run", graph_path, "--feed", f"x=@{tmp_path}/x.npy", "--fetch", "checked")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "InvalidArgumentError" in result.stderr
    assert "x is not finite" in result.stderr
    assert "checked" in result.stderr
    assert "CheckNumerics" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--fetch", "nothing"], ["--feed", "nothing=1", "--fetch", "y"], ["--fetch", "y"]]
)
def test_names_that_do_not_exist_and_missing_feeds_exit_with_1(graph_path: Path, arguments: list[str]) -> None:
    result = invoke("run", graph_path, *arguments)
    assert result.exit_code == 1
    assert "Error" in result.stderr


def test_debug_lets_the_exception_through(graph_path: Path) -> None:
    result = invoke("run", graph_path, "--fetch", "nothing", "--debug")
    assert isinstance(result.exception, ax.errors.OpError)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "no-such-file.pb"],
        ["run", "GRAPH", "--feed", "x"],
        ["run", "GRAPH", "--feed", "x=word", "--fetch", "y"],
        ["run", "GRAPH", "--device-count", "CPU"],
        ["run", "GRAPH", "--no-such-option"],
        ["no-such-verb"],
        ["inspect"],
    ],
)
def test_misuse_exits_with_2_and_says_so_on_stderr(graph_path: Path, arguments: list[str]) -> None:
    result = invoke(*(graph_path if argument == "GRAPH" else argument for argument in arguments))
    assert result.exit_code == 2
    assert "Usage" in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_no_graph_exits_with_1(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"node": 3')
    for verb in ("run", "inspect"):
        result = invoke(verb, path)
        assert result.exit_code == 1
        assert "Error" in result.stderr


def test_schemas_in_the_tree_are_current(tmp_path: Path) -> None:
    result = invoke("schema", tmp_path)
    assert result.exit_code == 0, result.output
    written = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.schema.json")}
    kept = {path.name: json.loads(path.read_text()) for path in (ROOT / "schemas").glob("*.schema.json")}
    assert written == kept


def test_many_outputs_are_shown_as_their_first_rows(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        for i in range(200):
            ax.add(x, float(i), name=f"y{i}")
    path = tmp_path / "graph.json"
    ax.save_graph_def(graph.as_graph_def(), path)
    result = invoke("run", path, "--feed", "x=0.5", "--output", tmp_path / "out.npz")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"... and {200 - MOST_ROWS} more"
    assert "y3:0" in result.stdout
    assert "3.5" in result.stdout
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["y199:0"] == 199.5


def test_long_values_are_shortened(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    text = "s: Placeholder[string, []]\nsame: Identity(s)\nx: Placeholder[float32, ?]\nall: Identity(x)"
    ax.save_graph_def(parse_graph_text(text), graph)
    np.save(tmp_path / "x.npy", np.ones((1000, 1000), np.float32))
    result = invoke("run", graph, "--feed", f"s={'long' * 1000}", "--feed", f"x=@{tmp_path}/x.npy")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) < 1200
    assert "[1000, 1000]" in result.stdout


def test_what_a_stranger_wrote_cannot_steer_the_terminal(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    ax.save_graph_def(parse_graph_text("s: Placeholder[string, []]\nsame: Identity(s)"), graph)
    result = invoke("run", graph, "--feed", "s=\x1b]0;title\x07 [bold]", "--fetch", "same")
    assert "\x1b" not in result.stdout
    assert "[bold]" in result.stdout


def test_the_shell_completes_verbs_and_options() -> None:
    def completed(words: str, position: int) -> str:
        told = {"_ASYNCEXEC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        command = [sys.executable, "-m", "asyncexec.cli.main"]
        environment = {**os.environ, **told}
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment).stdout

    assert completed("asyncexec ins", 1).split() == ["inspect"]
    assert {"--html", "--json", "--import"} <= set(completed("asyncexec inspect --", 2).split())


def test_help_and_version() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert all(verb in result.stdout for verb in ("run", "inspect", "schema"))
    for verb in ("run", "inspect", "schema"):
        assert invoke(verb, "--help").exit_code == 0
    assert invoke("--version").stdout.startswith("asyncexec ")


def test_help_loads_nothing_heavy() -> None:
    source = "import sys; import asyncexec.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True, cwd=ROOT)
    assert {"numpy", "scipy", "tensorboard", "google.protobuf", "httpx"}.isdisjoint(loaded.stdout.split())


def test_run_restores_the_variables_of_a_saved_model_and_fetches_its_outputs() -> None:
    folder = Path(__file__).parents[1] / "golden" / "saved_models" / "v1_simple"
    result = invoke("run", folder, "--feed", "x=[[1, 2], [-3, 0.5]]")
    assert result.exit_code == 0
    assert "y:0" in result.output
    assert "[-1.75  5.5  -3.  ]" in result.output
    with np.load(folder.parent / "expected.npz") as expected:
        assert expected["v1_simple/serving_default/out/y"][1].tolist() == [-1.75, 5.5, -3.0]
