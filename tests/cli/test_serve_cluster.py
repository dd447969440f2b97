"""``asyncexec serve --cluster``: what it may be, and that models run on the workers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from asyncexec.cli.app import app
from asyncexec.cli.cluster_option import cluster_spec, make_cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from tests.distributed.clusters import small_cluster
from tests.service.models import write_model
from tests.service.test_workers import X, doubling

ROOT = Path(__file__).parents[2]
NO_TLS = (None, None, None)


@pytest.mark.parametrize(
    ("told", "jobs"),
    [
        ("worker=a:1", {"worker": ["a:1"]}),
        ("worker=a:1,[::1]:2,ps=b:3", {"worker": ["a:1", "[::1]:2"], "ps": ["b:3"]}),
        ("worker=unix:/run/x=1.sock", {"worker": ["unix:/run/x=1.sock"]}),
    ],
)
def test_jobs_and_addresses_on_the_command_line(told: str, jobs: Any) -> None:
    assert cluster_spec(told) == ClusterSpec(jobs)


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ('{"worker": ["a:1", "b:2"]}', {"worker": ["a:1", "b:2"]}),
        ('{"worker": {"0": "a:1", "4": "b:2"}}', {"worker": {0: "a:1", 4: "b:2"}}),
    ],
)
def test_jobs_and_addresses_in_a_file(text: str, jobs: Any, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(text, encoding="utf-8")
    assert cluster_spec(str(file)) == ClusterSpec(jobs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "has no jobs"),
        ('{"worker": 1}', "takes a list of addresses"),
        ('{"worker": {"one": "a:1"}}', "not 'one'"),
        ('{"worker": []}', "has no tasks"),
        ('{"worker": [1]}', "is a text, not 1"),
        ('{"localhost": ["a:1"]}', "localhost"),
    ],
)
def test_files_that_are_no_clusters(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        cluster_spec(str(file))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(NotFoundError, match=r"nowhere\.json"):
        cluster_spec("nowhere.json")


@pytest.mark.parametrize(("text", "message"), [("", "no token"), ("one two", "a cluster shares one")])
def test_a_cluster_shares_one_token(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=message):
        make_cluster("worker=a:1", file, NO_TLS, objects=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--demo", "--cluster", "worker=a:1"], "it needs a folder of models"),
        ([".", "--cluster-objects"], "it needs --cluster"),
        ([".", "--cluster-token-file", "README.md"], "it needs --cluster"),
        ([".", "--cluster", "worker=a:1", "--cluster-tls-cert", "README.md"], "it needs --cluster-tls-key"),
    ],
)
def test_options_that_need_others(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.one_of("loop")
async def test_models_of_a_folder_run_on_workers(tmp_path: Path) -> None:
    def write() -> None:
        write_model(tmp_path / "models" / "m", doubling())
        (tmp_path / "token").write_text("a-secret\n", encoding="utf-8")

    def serve_and_ask(address: str) -> tuple[Any, str]:
        """What a model answers, and the metrics of its service, which is another process."""
        options = ["--cluster", f"worker={address}", "--cluster-token-file", str(tmp_path / "token")]
        options += ["--http-port=0", "--grpc-port=-1", "--log-format=json"]
        command = [sys.executable, "-m", "asyncexec", "serve", str(tmp_path / "models"), *options]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                lines = [json.loads(process.stderr.readline())["message"] for _ in range(3)]
                assert lines[0] == "m version 1 READY"
                with httpx.Client(base_url=lines[2].removeprefix("live page: "), trust_env=False) as client:
                    answer = client.post("v2/models/m/infer", json={"inputs": [X]}).json()
                    metrics = client.get("metrics").text
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate()
        assert process.returncode == 0
        return answer, metrics

    await asyncio.to_thread(write)
    async with small_cluster(1, security=Security("a-secret")) as small:
        (worker,) = small.workers
        answer, metrics = await asyncio.to_thread(serve_and_ask, worker._listeners[0].address)
    assert answer["outputs"][0]["data"] == [2, 4, 6]
    assert f'asyncexec_worker_connected{{model="m",version="1",worker="{worker.name}"}} 1.0' in metrics
