"""Local clusters: worker processes are started, started again, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from multiprocessing import process
from pathlib import Path
from unittest import mock

import pytest

import asyncexec as ax
from asyncexec.distributed.launchers import local_process
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    MissingExtraError,
    UnavailableError,
)
from tests.distributed.launchers.process_ops import exit_process, process_id

ROOT = Path(__file__).parents[3]
# Stands in for the whole of a worker.
FAILS = "import sys; print('no such luck', file=sys.stderr); sys.exit(7)"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where files of clusters are; the path of a socket is short."""
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ids_of_two(device: str) -> tuple[ax.Graph, list[ax.Tensor]]:
    with ax.Graph() as graph:
        found = []
        for task in range(2):
            with ax.device(f"{device}/task:{task}"):
                found.append(process_id())
    return graph, found


@pytest.mark.one_of("loop")
async def test_each_worker_is_a_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, ids = ids_of_two("/job:local")
    with graph:
        here = process_id()
    async with ax.cluster.local(2) as cluster, ax.Session(graph, cluster=cluster) as session:
        assert cluster.workers == ["/job:local/replica:0/task:0", "/job:local/replica:0/task:1"]
        first, second, own = await session.run([*ids, here])
        assert len({first, second, own}) == 3
        assert own == os.getpid()
        assert await session.run(ids) == [first, second]
    # Not even zombies: those would be there for os.kill.
    for pid in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert os.listdir(folder) == []
    assert capsys.readouterr().err.count("asked for the process id\n") == 5


@pytest.mark.one_of("loop")
async def test_a_worker_that_dies_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    with ax.Graph() as graph:
        code = ax.placeholder(ax.int64, [])
        with ax.device("/job:mine"):
            pid, dies = process_id(), exit_process(code)
    async with ax.cluster.local(1, job="mine") as cluster, ax.Session(graph, cluster=cluster) as session:
        first = await session.run(pid)
        with pytest.raises(UnavailableError, match="/job:mine/replica:0/task:0"):
            await session.run(dies, {code: 3})
        assert await session.run(pid) != first
    told = [record.getMessage() for record in caplog.records if record.name == "asyncexec.cluster"]
    assert told == ["/job:mine/replica:0/task:0 ended with exit code 3"]


@pytest.mark.one_of("loop")
async def test_a_worker_that_cannot_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "_START", FAILS)
    with pytest.raises(UnavailableError, match=r"/task:\d ended .*with exit code 7; it wrote:\nno such luck$"):
        async with ax.cluster.local(2):
            pass
    assert os.listdir(folder) == []


@pytest.mark.one_of("loop")
async def test_a_worker_that_cannot_start_again() -> None:
    with ax.Graph() as graph, ax.device("/job:local"):
        pid = process_id()
    async with ax.cluster.local(1) as cluster, ax.Session(graph, cluster=cluster) as session:
        first = await session.run(pid)
        with mock.patch.object(local_process, "_START", FAILS):
            os.kill(first, signal.SIGKILL)
            with pytest.raises(UnavailableError, match="no such luck"):
                await run_until_it_is_not_started(session, pid)
        assert await session.run(pid) != first  # who asks later is served


async def run_until_it_is_not_started(session: ax.Session, fetch: ax.Tensor) -> None:
    while True:
        try:
            await session.run(fetch)
        except UnavailableError as error:
            if "is lost" not in error.message:
                raise


@pytest.mark.one_of("loop")
async def test_a_worker_that_does_not_begin_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "_START", "import time; time.sleep(1000)")
    with pytest.raises(UnavailableError, match=r"did not listen within 0\.2 s"):
        async with ax.cluster.local(1, start_timeout_s=0.2):
            pass


@pytest.mark.one_of("loop")
async def test_a_worker_that_does_not_end_is_killed() -> None:
    with ax.Graph() as graph, ax.device("/job:local"):
        pid = process_id()
    options = ax.cluster.TransportOptions(close_grace_s=0.1)
    async with ax.cluster.local(1, grace_s=0.2, options=options) as cluster:
        async with ax.Session(graph, cluster=cluster) as session:
            found = await session.run(pid)
        os.kill(found, signal.SIGSTOP)
    with pytest.raises(ProcessLookupError):
        os.kill(found, 0)


def test_what_a_cluster_is_not_made_of() -> None:
    with pytest.raises(InvalidArgumentError, match="num_workers must be 1 or more, not 0"):
        ax.cluster.local(0)
    with pytest.raises(InvalidArgumentError, match="'localhost' is the process that the session is in"):
        ax.cluster.local(1, job="localhost")
    with pytest.raises(InvalidArgumentError, match="has no tasks"):
        ax.cluster.connect({"worker": []})


PROGRAM = """
    import os, signal, sys
    import asyncexec as ax

    @ax.op(outputs=[ax.int64])
    def process_id():
        return os.getpid()

    async def main():
        with ax.Graph() as graph, ax.device("/job:local"):
            pid = process_id()
        async with ax.cluster.local(1) as cluster, ax.Session(graph, cluster=cluster) as session:
            while sys.stdin.readline():
                print(await session.run(pid), flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
"""
GUARDED = PROGRAM + '\n    if __name__ == "__main__":\n        ax.run(main)\n'
UNGUARDED = PROGRAM + "\n    ax.run(main)\n"


def started(folder: Path, program: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, path], env=environment, text=True, start_new_session=True, **pipes)


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_ctrl_c_is_left_to_the_parent_and_its_death_ends_the_workers(folder: Path) -> None:
    """The op is one of ``__main__``; the signals go to all processes of the program, as those of a terminal do."""
    with started(folder, GUARDED) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None

        def ask() -> str:
            parent.stdin.write("\n")
            parent.stdin.flush()
            return parent.stdout.readline()

        pid = ask()
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.readline() == "interrupted\n"
        assert ask() == pid
        parent.kill()
        parent.communicate(timeout=60)
    wait_until(lambda: not is_running(int(pid)))
    wait_until(lambda: [path.name for path in folder.iterdir()] == ["program.py"])


STUCK = """
    import os, time
    import asyncexec as ax

    @ax.op(outputs=[ax.int64], expensive=True)
    def sleep():
        print(os.getpid(), flush=True)
        time.sleep(1000)

    async def main():
        with ax.Graph() as graph, ax.device("/job:local"):
            found = sleep()
        async with ax.cluster.local(1, grace_s=0.5) as cluster, ax.Session(graph, cluster=cluster) as session:
            await session.run(found)

    if __name__ == "__main__":
        ax.run(main)
"""


@pytest.mark.deep
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_worker_that_is_stuck_ends_with_the_parent(folder: Path) -> None:
    with started(folder, STUCK) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.communicate(timeout=60)
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: [path.name for path in folder.iterdir()] == ["program.py"])


@pytest.mark.deep
def test_a_program_that_starts_its_work_when_it_is_imported(folder: Path) -> None:
    with started(folder, UNGUARDED) as parent:
        _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert "UnavailableError: /job:local/replica:0/task:0 ended before it listened, with exit code 1" in errors
    assert "under: if __name__ == '__main__':" in errors


async def test_a_worker_process_starts_no_others_while_it_imports_the_program() -> None:
    importing = mock.patch.object(process.current_process(), "_inheriting", True, create=True)
    with importing, pytest.raises(FailedPreconditionError, match="would start workers itself"):
        async with ax.cluster.local(1):
            pass


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError) as missing:
        ax.cluster.ray(1)
    assert missing.value.hint == 'pip install "asyncexec[ray]"'
    with pytest.raises(MissingExtraError) as missing:
        ax.cluster.dask(None)
    assert missing.value.hint == 'pip install "asyncexec[dask]"'
