"""``asyncexec serve --demo``: its models give what they should, it calls them, and it ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.cli.demo_server import DATA
from asyncexec.cli.serve_demo import site
from asyncexec.cli.serve_demo.graphs import crawler, digits, sensors
from asyncexec.cli.serve_demo.models import DemoRepository
from asyncexec.service.requests import InferRequest, InferTensor
from asyncexec.service.server import Ports
from tests.service.models import model_of, until

ROOT = Path(__file__).parents[2]


def test_digits_are_told_as_by_tensorflow() -> None:
    model = model_of(digits())
    with np.load(DATA / "test.npz", allow_pickle=False) as data:
        images, expected = data["images"][:32], data["tf_classes"][:32]

    async def main() -> Any:
        answer = await model.infer(InferRequest("m", {"images": InferTensor("FP32", images)}))
        await model.close()
        return answer.outputs["classes"].array

    assert (ax.run(main) == expected).all()


def reachable() -> list[str]:
    """The pages of the site from "/" on, level by level."""
    found, level = ["/"], ["/"]
    while level:
        links = [re.findall('href="([^"]+)"', site.page(int(page.rpartition("/")[2] or 0))) for page in level]
        level = list(dict.fromkeys(link for each in links for link in each if link not in found))
        found += level
    return found


async def test_the_crawler_finds_and_ranks_what_can_be_reached() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        number = request.url.path.rpartition("/")[2] or "0"
        return httpx.Response(200, text=site.page(int(number))) if number.isdecimal() else httpx.Response(404)

    async with httpx.AsyncClient(base_url="http://site", transport=httpx.MockTransport(answer)) as web:
        model = model_of(crawler(web))
        start = InferTensor("BYTES", np.array([b"/"], object))
        outputs = (await model.infer(InferRequest("m", {"start": start}))).outputs
        pages = [page.decode() for page in outputs["pages"].array]
        assert pages == reachable()
        assert {page.decode() for page in outputs["best"].array} < set(pages)
        assert list(outputs["rank_of_best"].array) == sorted(outputs["rank_of_best"].array, reverse=True)
        missing = InferTensor("BYTES", np.array([b"/missing"], object))
        with pytest.raises(ax.errors.OpError) as raised:
            await model.infer(InferRequest("m", {"start": missing}))
        assert raised.value.node == "crawl/fetch_all/fetch_links"
        assert raised.value.iteration == "crawl 0, crawl/fetch_all 0"
        (failure,) = model.recent.failures
        assert "serve_demo/graphs.py:" in failure.line
        await model.close()


async def test_sensors_learn_what_is_usual() -> None:
    model = model_of(sensors())
    message = model.signature.inputs["message"].tensor
    fetches = {name: spec.tensor for name, spec in model.signature.outputs.items()}
    degrees = [20.0, 20.5, 19.5] * 6 + [30.0, 20.0]
    texts = [json.dumps({"sensor": "a", "degrees": each}) for each in degrees]
    feeds = [{message: text} for text in [*texts, "{"]]
    results = [each async for each in model.session.map(fetches, feeds, on_error="yield")]
    assert [bool(each["is_anomaly"]) for each in results[:-1]] == [False] * 18 + [True, False]
    assert int(results[-2]["anomalies_in_window"]) == 1
    assert isinstance(results[-1], ax.errors.OpError)
    assert results[-1].node == "read_message"
    await model.close()


@pytest.mark.allow_blocking
async def test_the_site_answers_and_ends_with_its_requests() -> None:
    async with site.site() as address, httpx.AsyncClient(base_url=address) as web:
        assert (await web.get("/page/3")).text == site.page(3)
        for path in ("/missing", "/page/80", "/page/999999999999", "/page/-1"):
            assert (await web.get(path)).status_code == 404
        port = int(address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()  # it asks for nothing
        await writer.wait_closed()
        del reader


@pytest.mark.one_of("loop")
@pytest.mark.allow_blocking
async def test_the_models_are_called_until_they_are_closed() -> None:
    repository = DemoRepository()
    await repository.start()
    await until(lambda: all(model.session.statistics().completed_steps for model in repository.models()))
    assert {model.name for model in repository.models()} == {"digits", "crawler", "sensors"}
    (stream,) = repository.model("sensors").session.statistics().streams
    assert stream.items_in
    await repository.close()


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "asyncexec", "serve", "--demo", "--http-port=0", "--grpc-port=-1", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "HTTP_PROXY": "http://127.0.0.1:9"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_ends_cleanly(number: signal.Signals) -> None:
    with start() as process:
        assert process.stdout is not None
        states = [process.stdout.readline() for _ in range(3)]
        assert states == [f"{name} version 1 READY\n" for name in ("crawler", "digits", "sensors")]
        assert process.stdout.readline().startswith("HTTP on 127.0.0.1:")
        address = process.stdout.readline().removeprefix("live page: ").strip()
        assert "<title>" in httpx.get(address, trust_env=False).text
        with httpx.stream("GET", f"{address}live/events", trust_env=False) as events:
            lines = events.iter_lines()
            snapshot = json.loads(next(lines).removeprefix("data: "))
            assert {model["name"] for model in snapshot["models"]} == {"crawler", "digits", "sensors"}
            process.send_signal(number)
            list(lines)  # to their end
        _, complaints = process.communicate(timeout=60)
        assert process.returncode == 0
        assert not re.search("Traceback|ERROR", complaints)  # a slow machine may be told of


def refused(*arguments: str) -> str:
    """What the command says of *arguments* that it does not understand, in one line."""
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "400"})
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def test_a_folder_or_the_demo(tmp_path: Path) -> None:
    assert "'repository': a folder of models, or --demo, is needed" in refused()
    assert "'repository': serve either a folder of models or --demo" in refused(str(tmp_path), "--demo")


def test_options_that_need_another(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.touch()
    for arguments, needed in (
        (["--tls-key", str(file)], "--tls-certificate"),
        (["--tls-certificate", str(file)], "--tls-key"),
        (["--load-model", "m"], "--model-control explicit"),
        (["--tensorflow-master", "--grpc-port", "-1"], "a port of gRPC"),
        (["--tensorflow-master-files"], "--tensorflow-master"),
    ):
        assert f"'{arguments[0]}': it needs {needed}" in refused(str(tmp_path), *arguments)


def test_a_missing_library_exits_with_1_and_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    result = CliRunner().invoke(app, ["serve", "--demo"])
    assert result.exit_code == 1
    assert 'pip install "asyncexec[demo,serve]"' in result.stderr


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "localhost"), ("::", "localhost"), ("::1", "[::1]"), ("10.0.0.7", "10.0.0.7"), ("box", "box")],
)
def test_the_address_of_the_page_can_be_opened(
    host: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(models: Any, *, on_start: Any, **options: Any) -> None:
        on_start(Ports(host, 8000, None))

    monkeypatch.setattr("asyncexec.service.server.serve", serve)
    result = CliRunner().invoke(app, ["serve", str(tmp_path), "--host", host])
    assert f"live page: http://{address}:8000/\n" in result.stdout


def test_all_lines_of_a_log_in_json_are(tmp_path: Path) -> None:
    """Also where the library of gRPC has something to tell, such as that a port is taken."""
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "asyncexec", "serve", str(tmp_path), "--log-format=json", "--http-port=0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
        command.append(f"--grpc-port={taken.getsockname()[1]}")
        ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    *lines, last = ended.stderr.splitlines()
    assert (ended.returncode, last[:17]) == (1, "UnavailableError:")  # the command's own
    for line in lines:
        json.loads(line)


@pytest.mark.parametrize("arguments", [[], ["--no-page"]])
def test_the_page_can_be_left_out(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def serve(models: Any, *, on_start: Any, **options: Any) -> None:
        given.update(options)
        on_start(Ports("127.0.0.1", 8000, None))

    monkeypatch.setattr("asyncexec.service.server.serve", serve)
    result = CliRunner().invoke(app, ["serve", str(tmp_path), *arguments])
    assert result.exit_code == 0, result.output
    assert given["page"] is (not arguments)
    assert ("live page: http://127.0.0.1:8000/" in result.stdout) is (not arguments)
