"""Triton's own clients, unchanged, against the service."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums, write_model

pytest.importorskip("tritonclient")
pytestmark = [pytest.mark.clients, pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]

SLOW = """
import asyncio
import asyncexec as ax
@ax.op
async def wait_long(x: float) -> float:
    await asyncio.sleep(600)
    return x
with ax.Graph() as graph:
    x = ax.placeholder(ax.float32, [None, 3], name="x")
    with ax.control_dependencies([wait_long(1.0)]):
        ax.identity(x, name="y")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ax.Graph() as words:
        ax.identity(ax.placeholder(ax.string, [None], name="x"), name="y")
    write_model(tmp_path / "sums", sums())
    write_model(tmp_path / "words", words)
    (tmp_path / "slow" / "1").mkdir(parents=True)
    (tmp_path / "slow" / "1" / "graph.py").write_text(SLOW, encoding="utf-8")
    return tmp_path


def ask(kind: str, port: int | None, script: str = "triton_client") -> Any:
    """What the client called *kind* gets from the service on *port*."""
    command = [sys.executable, "-m", f"tests.service.{script}", kind, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trace_settings(text: str) -> tuple[str, str]:
    """The rate and the level in *text*, which shows a dict or a message."""
    rate, level = (re.search(rf"trace_{name}\W+(?:value\W+)*(\w+)", text) for name in ("rate", "level"))
    assert rate is not None
    assert level is not None
    return rate[1], level[1]


@pytest.mark.parametrize("kind", ["http", "http_aio", "grpc", "grpc_aio"])
async def test_a_client_of_triton(kind: str, folder: Path) -> None:
    names = ("slow", "sums", "words")
    repository = ModelRepository(folder, control="explicit", load_at_start=names, allow_python=True)
    async with (
        nothing_of_grpc_left(),
        serving(repository, http_port=0, grpc_port=0, trace_file=folder / "trace.json") as ports,
    ):
        found = await asyncio.to_thread(ask, kind, ports.http if kind.startswith("http") else ports.grpc)
        assert repository.model("slow").session.statistics().running_steps == 0  # its deadline has ended it
    assert (found["live"], found["ready"], found["model_ready"]) == (True, True, [True, False])
    assert found["whole"] == {"sum": [[6.0] * 3] * 2, "diff": [[4.0] * 3] * 2}
    assert found["one"] == [[[4.0] * 3] * 2, True]
    assert found["words"] == ["a", "", "ä"]
    expected = [
        "Request for unknown model: 'none' is not found",
        "Request for unknown model: 'sums' version 9 is not found",
        "expected 2 inputs but got 1 inputs for model 'sums'",
        "inference input 'y' data-type is 'BYTES', but model 'sums' expects 'FP32'",
        "took more than its timeout" if kind.startswith("http") else "Deadline Exceeded",
        "failed to load 'none', failed to poll from model repository",
    ]
    for text, told in zip(expected, found["refused"], strict=True):
        assert text in told
    assert (found["unloaded"], found["loaded"]) == (False, True)
    assert all("sums" in text for text in found["texts"].values())
    rates, levels = zip(*map(trace_settings, found["settings"][:3]), strict=True)
    assert (rates, levels) == (("1000", "7", "1000"), ("OFF", "TIMESTAMPS", "OFF"))
    for text in found["settings"][3:5]:
        assert re.search(r"log_verbose_level\W+(value\W+uint32_param\W+)?3\b", text)
    assert "trace file location can not be updated" in found["settings"][5]
    assert "log file location can not be updated" in found["settings"][6]
    if kind.startswith("grpc"):
        assert found["stream"] == [i * 5 + 1.0 for i in range(10)]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_extensions_of_triton(kind: str, tmp_path: Path) -> None:
    config = 'max_batch_size: 4 output { name: "sum" label_filename: "labels" } output { name: "diff" }'
    write_model(tmp_path / "sums", sums(), config=config)
    (tmp_path / "sums" / "labels").write_text("ant\nbee\ncat\n", encoding="utf-8")
    async with nothing_of_grpc_left(), serving(tmp_path, http_port=0, grpc_port=0, shared_memory=True) as ports:
        found = await asyncio.to_thread(ask, kind, ports.http if kind == "http" else ports.grpc, "triton_extensions")
    shared = found["shared"]
    assert (shared["sum"], shared["diff"]) == ([[6, 8, 7], [14, 12, 13]], [[4, 2, 3], [-4, -2, -3]])
    assert all(name in shared["status"] for name in ("in", "out", "_in", "_out", "48"))
    assert shared["after"].strip() in ("", "[]")
    assert found["classes"] == [["8.000000:1:bee", "7.000000:2:cat"], ["14.000000:0:ant", "13.000000:2:cat"]]
