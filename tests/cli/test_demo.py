"""``asyncexec demo``, from the command line: its figures, its exit codes, and nothing left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from asyncexec.cli import demo as demo_module
from asyncexec.cli.app import app
from asyncexec.cli.demo import Results, load_inputs
from asyncexec.cli.demo_server import latency_s

ROOT = Path(__file__).parents[2]


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "asyncexec", "demo", *arguments]
    environment = {**os.environ, "COLUMNS": "100", "HTTP_PROXY": "http://127.0.0.1:9"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)


def figure(output: str, pattern: str) -> float:
    found = re.search(pattern, output, re.MULTILINE)
    assert found is not None, output
    return float(found[1])


def test_the_whole_demo() -> None:
    done = run_demo()
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert figure(done.stdout, r"^images +(\d+)") == 450
    assert figure(done.stdout, r"^accuracy +([\d.]+)") == 0.991
    assert "450/450" in done.stdout
    assert figure(done.stdout, r"^largest difference +(\S+)") <= 1e-5
    at_server = figure(done.stdout, r"^sum of latencies +([\d.]+) s at the server")
    assert at_server == pytest.approx(2.70, abs=0.02)
    assert figure(done.stdout, r"([\d.]+) s as measured in flight$") >= at_server
    assert figure(done.stdout, r"^wall time +([\d.]+) s") < figure(done.stdout, r"([\d.]+) s as measured in flight$")
    assert figure(done.stdout, r"^longest pause of the loop +([\d.]+) ms") > 0


def test_fewer_images_fewer_at_a_time() -> None:
    done = run_demo("--limit", "20", "--concurrency", "4")
    assert done.returncode == 0, done.stderr
    assert figure(done.stdout, r"^images +(\d+)") == 20
    assert "20/20" in done.stdout
    assert "4 fetches at a time" in done.stdout


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--limit", "451"], ["--concurrency", "0"]])
def test_misuse_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["demo", *arguments]).exit_code == 2


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("httpx", "httpx"),
        ("PIL", "pillow"),
        ("starlette", "starlette"),
        ("uvicorn", "uvicorn"),
        ("google.protobuf", "protobuf"),
    ],
)
def test_a_missing_library_exits_with_1_and_the_command_that_installs_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_module, "is_installed", lambda name: name != module)
    monkeypatch.setitem(sys.modules, module, None)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert f"{package} is needed" in result.stderr
    assert 'pip install "asyncexec[demo]"' in result.stderr


@pytest.mark.parametrize("off_by", [0.0, 2e-5])
def test_results_that_are_not_tensorflows_exit_with_1(off_by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = load_inputs(10)

    async def classify(*_: object) -> Results:
        return Results(inputs.tf_probabilities + np.float32(off_by), inputs.tf_classes)

    monkeypatch.setattr(demo_module, "classify", classify)
    result = CliRunner().invoke(app, ["demo", "--limit", "10"])
    assert result.exit_code == (1 if off_by else 0), result.output
    assert ("not TensorFlow's" in result.stderr) == bool(off_by)


def test_latencies_are_a_few_milliseconds_and_always_the_same() -> None:
    latencies = [latency_s(index) for index in range(450)]
    assert latencies == [latency_s(index) for index in range(450)]
    assert 0.002 <= min(latencies) < max(latencies) <= 0.010
