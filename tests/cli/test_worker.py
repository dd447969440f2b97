"""``asyncexec worker``: a cluster finds it, SIGTERM ends it in order, and misuse is told."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.framework.errors import UnauthenticatedError, UnavailableError
from tests.signals import handlers

ROOT = Path(__file__).parents[2]


@contextmanager
def worker_process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "asyncexec", "worker", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with handlers(), subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["worker", *map(str, arguments)], terminal_width=200)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
async def test_it_is_a_worker_of_a_cluster_until_it_is_told_to_end(tmp_path: Path) -> None:
    """The step under way gets its time, and no other begins."""
    token = tmp_path / "token"
    token.write_text("secret\n", encoding="utf-8")
    options = ["--job", "trainer", "--task", 3, "--device-count", "CPU=2", "--allow-objects", "--log-format", "json"]
    options += ["--max-sessions", 1]
    with ax.Graph() as graph, ax.device("/job:trainer/task:3/cpu:1"):
        x = ax.placeholder(ax.float32, [])
        y = x + 1.0
        slow = ax.identity(sleep(0.5))
    with worker_process("--listen", "127.0.0.1:0", "--token-file", token, *options) as process:
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())["message"]
        found = re.fullmatch(r"/job:trainer/replica:0/task:3 listens at (tcp:.*), incarnation [0-9a-f]+", told)
        assert found is not None
        spec = {"trainer": {3: found[1]}}
        with pytest.raises(UnauthenticatedError):
            async with ax.cluster.connect(spec, token="another"):
                pass
        cluster = ax.cluster.connect(spec, token="secret", objects=True, reconnect_timeout_s=0.1)
        async with cluster, ax.Session(graph, cluster=cluster) as session:
            assert await session.run(y, {x: 1.0}) == 2.0
            async with ax.Session(graph, cluster=cluster) as second:
                with pytest.raises(ax.errors.ResourceExhaustedError, match="max_sessions"):
                    await second.run(y, {x: 1.0})
            under_way = asyncio.create_task(session.run(slow))
            assert await asyncio.to_thread(process.stderr.readline) == "asleep\n"
            process.send_signal(signal.SIGTERM)
            assert await under_way == 1
            with pytest.raises(UnavailableError, match=r"about to end|lost|refused"):
                await run_for_ever(session, y, {x: 1.0})
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
        assert (process.returncode, errors) == (0, "")


async def run_for_ever(session: ax.Session, fetch: ax.Tensor, feeds: dict[ax.Tensor, float]) -> None:
    while True:
        await session.run(fetch, feeds)


@ax.op(outputs=[ax.int64])
async def sleep(seconds: float) -> int:
    print("asleep", file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
    return 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--listen", "nowhere"], 1, "'nowhere' is not an address"),
        (["--listen", "0.0.0.0:0"], 1, "whoever reaches tcp:0.0.0.0:0 could run graphs"),
        (["--listen", "127.0.0.1:0", "--allow-objects"], 1, "could run code, as objects are allowed"),
        (["--job", "a b"], 1, "the name of a job"),
        (["--job", "localhost"], 1, "the process that the session is in"),
        (["--device-count", "CPU"], 2, "TYPE=COUNT"),
        (["--import", "no_such_module"], 1, "no_such_module"),
        (["--tls-cert", __file__], 2, "--tls-key"),
        (["--tls-ca", __file__], 2, "--tls-cert"),
        (["--task", "-1"], 2, "--task"),
        (["--token-file", "no-such-file"], 2, "no-such-file"),
    ],
)
def test_misuse_is_told(options: list[str], code: int, message: str) -> None:
    result = refused(*options)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(("text", "message"), [("", "there is no token in"), ("a b", "there are 2 tokens in")])
def test_a_file_with_other_than_one_token(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    result = refused("--token-file", file)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["asyncexec-worker@.service", "kubernetes-workers.yaml"])
def test_deploy_files_give_options_that_there_are(name: str) -> None:
    text = (ROOT / "examples" / "deploy" / name).read_text(encoding="utf-8")
    command = re.search(r"asyncexec worker (--job(?:.|\n +--)*)", text)
    assert command is not None
    used = set(re.findall(r"--[a-z][a-z-]+", command[1]))
    assert {"--job", "--task", "--listen", "--token-file", "--drain-s"} <= used
    parameters = typer.main.get_command(app).commands["worker"].params
    assert used <= {option for parameter in parameters for option in parameter.opts}
