"""The command ``python -m benchmarks``: it runs, and its table and JSON tell rows and targets.  No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from asyncexec.framework.extras import is_installed
from asyncexec.session import plan_compiler
from benchmarks.__main__ import BENCHMARKS, main, select
from benchmarks.graphs import FOLDER, chain, floor_of, layered
from benchmarks.measure import Settings, Times, ratios
from benchmarks.report import FLOOR, HEADINGS, OURS, TENSORFLOW, Row, Target, at_most_of_tensorflow, summary
from benchmarks.runs import without_native

ROOT = Path(__file__).parents[1]


@pytest.mark.allow_blocking
def test_a_quick_run_prints_a_row_each_and_writes_json(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-tensorflow", "--json", str(written)]
    done = subprocess.run([*command, "run_latency", "chain_10"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    headings = next(line for line in lines if line.split()[:1] == ["row"])
    assert [heading in headings for heading in HEADINGS] == [True] * len(HEADINGS)
    assert [line.split()[0] for line in lines if line.strip().startswith(("run_latency", "chain_10"))] == [
        "run_latency",
        "chain_10",
    ]
    content = json.loads(written.read_text())
    assert content["machine"]["cores"] >= 1
    latency, chain_of_10 = content["rows"]
    assert (latency["name"], latency["unit"], chain_of_10["unit"]) == ("run_latency", "µs", "µs a node")
    assert latency["targets"] == [
        {"text": "at most 0.02 of TensorFlow's", "measured": None, "limit": 0.02, "met": None}
    ]
    assert set(chain_of_10["times"]) == {OURS, FLOOR}
    assert all(0 < times["best"] <= times["median"] for times in chain_of_10["times"].values())


def test_an_unknown_name_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no_such_row"]) == 2
    assert "no_such_row" in capsys.readouterr().err


def test_names_are_unique_and_can_be_patterns() -> None:
    names = [benchmark.name for benchmark in BENCHMARKS]
    assert len(set(names)) == len(names)
    chains = [benchmark.name for benchmark in select(["chain_*"], Settings())]
    assert chains == ["chain_10", "chain_100", "chain_1000", "chain_10000"]
    assert not any(benchmark.is_long for benchmark in select([], Settings(is_quick=True)))


def test_ratios_are_against_the_quickest_other() -> None:
    ours, slow, quick = Times((2.0, 4.0, 3.0)), Times((30.0,)), Times((6.0,))
    assert ratios(ours, [slow, quick]) == pytest.approx((0.5, 1 / 3))
    assert ratios(ours, []) is None


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 50.0), (99, 99.0), (100, 100.0)])
def test_percentile(percent: float, expected: float) -> None:
    assert Times(tuple(map(float, range(100, 0, -1)))).percentile(percent) == expected


def test_a_target_needs_something_to_compare_with() -> None:
    times = {OURS: Times((1.0,)), TENSORFLOW: Times((20.0,))}
    assert at_most_of_tensorflow(times, 0.1).is_met is True
    assert at_most_of_tensorflow(times, 0.01).is_met is False
    assert at_most_of_tensorflow({OURS: Times((1.0,))}, 0.1).is_met is None


def test_a_row_has_a_cell_for_every_heading() -> None:
    row = Row("name", "µs", {OURS: Times((1234.5, 1000.0)), FLOOR: Times((2.0,))}, (Target("at most 1", 2.0, 1.0),))
    cells = dict(zip(HEADINGS, summary(row), strict=True))
    assert cells["asyncexec"] == "1,117 (1,000)"
    assert cells["/ floor"] == "559 (500)"
    assert (cells["TensorFlow"], cells["/ TF"]) == ("", "")
    assert (cells["target"], cells["met"]) == ("at most 1: 2", "NO")


def test_generated_graphs_have_the_nodes_asked_for() -> None:
    assert len(chain(50).graph_def.node) == 50 + 2
    assert len(layered(50).graph_def.node) == 50 + 3
    assert floor_of(chain(10))() == [pytest.approx(0.01, rel=1e-5)]


def test_every_graph_file_has_its_feeds_beside_it() -> None:
    assert {path.stem for path in FOLDER.glob("*.pb")} == {path.stem for path in FOLDER.glob("*.json")}


def test_native_code_is_back_after_a_row_without_it() -> None:
    plan_compiler.has_llvmlite.cache_clear()
    with without_native():
        assert not plan_compiler.has_llvmlite()
    assert plan_compiler.has_llvmlite() == is_installed("llvmlite")
