"""Repositories: folders, versions, loading, unloading and polling."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.service.models import repository as repository_module
from asyncexec.service.models.config import parse_json
from asyncexec.service.models.files import ModelSource, read_model
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import Control, ModelRepository
from asyncexec.service.requests import InferRequest
from tests.service.models import rows, sums, until, write_model


def states(repository: ModelRepository) -> list[tuple[str, str, str]]:
    return [state[:3] for state in repository.index()]


async def answer(repository: ModelRepository, name: str, version: str = "") -> str:
    """Which version of *name* answers."""
    model = repository.model(name, version)
    return (await model.infer(InferRequest(name, {"x": rows(1), "y": rows(1)}))).model_version


async def test_all_models_of_a_folder(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    await asyncio.to_thread(write_model, tmp_path / "wide", sums(), config="max_batch_size: 8")
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "model.pb").write_bytes(b"rubbish")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README").write_text("not a model")
    repository = ModelRepository(tmp_path)
    assert not repository.is_ready
    await repository.start()
    assert states(repository) == [("bad", "1", "UNAVAILABLE"), ("sum", "1", "READY"), ("wide", "1", "READY")]
    assert "not a binary GraphDef" in repository.index()[0].reason
    assert [state.name for state in repository.index(is_ready=True)] == ["sum", "wide"]
    assert not repository.is_ready  # for one of them is not
    assert (await answer(repository, "sum"), repository.is_model_ready("bad")) == ("1", False)
    await repository.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", ["10"]),
        ("version_policy { latest { num_versions: 2 } }", ["3", "10"]),
        ("version_policy { all {} }", ["2", "3", "10"]),
        ("version_policy { specific { versions: [2, 7] } }", ["2"]),
    ],
)
async def test_version_policy(tmp_path: Path, policy: str, expected: list[str]) -> None:
    for version in (2, 3, 10):
        await asyncio.to_thread(write_model, tmp_path / "sum", sums(), version, policy)
    (tmp_path / "sum" / "notes").mkdir()
    repository = ModelRepository(tmp_path)
    await repository.start()
    assert repository.versions("sum") == expected
    assert await answer(repository, "sum") == expected[-1]
    assert await answer(repository, "sum", expected[0]) == expected[0]
    await repository.close()


async def test_what_is_unknown_or_not_ready(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    (tmp_path / "empty").mkdir()
    repository = ModelRepository(tmp_path)
    await repository.start()
    with pytest.raises(ax.errors.NotFoundError, match="Request for unknown model: 'no' is not found"):
        repository.model("no")
    with pytest.raises(ax.errors.NotFoundError, match="Request for unknown model: 'sum' version 7 is not found"):
        repository.model("sum", "7")
    with pytest.raises(ax.errors.UnavailableError, match="'empty' is not at ready state"):
        repository.model("empty")
    assert "at least one version must be available" in repository.index()[0].reason
    await repository.close()


async def test_models_are_loaded_and_unloaded_on_demand(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    await asyncio.to_thread(write_model, tmp_path / "other", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    assert states(repository) == [("sum", "1", "READY"), ("other", "", "")]
    await asyncio.to_thread(write_model, tmp_path / "sum", sums(), 2)
    before = repository.model("sum")
    await repository.load("sum")
    assert await answer(repository, "sum") == "2"
    assert repository.model("sum") is not before
    config = '{"version_policy": {"specific": {"versions": [1]}}}'
    await repository.load("sum", {"config": config})
    assert await answer(repository, "sum") == "1"
    await repository.unload("sum")
    with pytest.raises(ax.errors.UnavailableError):
        repository.model("sum")
    await repository.close()
    assert ("sum", "1", "UNAVAILABLE") in states(repository)


async def test_all_models_may_be_loaded_at_the_start_and_then_on_demand(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await asyncio.to_thread(write_model, tmp_path / name, sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("*",))
    await repository.start()
    assert states(repository) == [("a", "1", "READY"), ("b", "1", "READY")]
    await repository.unload("a")
    assert [model.name for model in repository.models()] == ["b"]
    await repository.close()


async def test_the_service_is_not_ready_where_a_model_that_is_to_be_served_is_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum", "smu"))
    await repository.start()
    assert "failed to load 'smu'" in caplog.text
    assert not repository.is_ready
    assert repository.is_model_ready("sum")
    assert [tuple(state) for state in repository.index()] == [
        ("smu", "", "UNAVAILABLE", "model not found in any model repository"),
        ("sum", "1", "READY", ""),
    ]
    await repository.unload("smu")
    assert repository.is_ready
    await asyncio.to_thread(write_model, tmp_path / "smu", sums())
    await repository.load("smu")
    assert states(repository) == [("smu", "1", "READY"), ("sum", "1", "READY")]
    await repository.close()


@pytest.mark.parametrize("name", ["no", "", "../outside", "/etc", ".."])
async def test_what_cannot_be_loaded(tmp_path: Path, name: str) -> None:
    await asyncio.to_thread(write_model, tmp_path / "outside", sums())
    await asyncio.to_thread(write_model, tmp_path / "models" / "sum", sums())
    repository = ModelRepository(tmp_path / "models", control="explicit")
    await repository.start()
    with pytest.raises(ax.errors.InvalidArgumentError, match="failed to poll from model repository"):
        await repository.load(name)
    with pytest.raises(ax.errors.UnimplementedError, match="only 'config'"):
        await repository.load("sum", {"file:1/model.pb": b""})
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"failed to load 'sum', .* is no model configuration"):
        await repository.load("sum", {"config": "{"})
    await repository.close()


async def test_a_version_that_fails_leaves_those_that_are_served(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    (tmp_path / "sum" / "config.pbtxt").write_text("max_batch_size: many")
    with pytest.raises(ax.errors.InvalidArgumentError, match="failed to load 'sum'"):
        await repository.load("sum")
    assert await answer(repository, "sum") == "1"
    await repository.close()


@pytest.mark.parametrize("control", ["none", "poll"])
async def test_loading_is_not_for_clients_where_the_files_decide(tmp_path: Path, control: Control) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control=control)
    await repository.start()
    with pytest.raises(ax.errors.UnimplementedError, match="explicit model load / unload is not allowed"):
        await repository.load("sum")
    with pytest.raises(ax.errors.UnimplementedError, match="explicit model load / unload is not allowed"):
        await repository.unload("sum")
    await repository.close()


async def test_polling_sees_what_changes(tmp_path: Path) -> None:
    path = await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="poll", poll_s=0.001)
    await repository.start()
    await asyncio.to_thread(write_model, path, sums(), 2)
    await until(lambda: repository.versions("sum") == ["2"])
    await asyncio.to_thread(write_model, tmp_path / "new", sums())
    await until(lambda: repository.is_model_ready("new"))
    (tmp_path / "new").rename(tmp_path / ".gone")
    await until(lambda: not repository.is_model_ready("new"))
    with pytest.raises(ax.errors.NotFoundError):
        repository.model("new")
    await repository.close()


async def test_python_of_the_operator_runs_where_it_is_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "greet" / "1"
    folder.mkdir(parents=True)
    (folder / "graph.py").write_text(
        "import asyncexec as ax\n"
        "with ax.Graph() as graph:\n"
        "    x = ax.placeholder(ax.float32, [None, 3], name='x')\n"
        "    y = ax.placeholder(ax.float32, [None, 3], name='y')\n"
        "    z = ax.add(x, y)\n"
        "model = ax.service.ModelSource(graph, outputs={'sum': z})\n"
    )
    refusing = ModelRepository(tmp_path)
    await refusing.start()
    assert "only with --allow-python" in refusing.index()[0].reason
    await refusing.close()
    repository = ModelRepository(tmp_path, allow_python=True)
    await repository.start()
    assert await answer(repository, "greet") == "1"
    await repository.close()


async def test_a_saved_model_has_the_names_of_its_signature(tmp_path: Path) -> None:
    (tmp_path / "saved" / "1").mkdir(parents=True)
    saved = Path(__file__).parents[1] / "golden" / "saved_model"
    (tmp_path / "saved" / "1" / "model.savedmodel").symlink_to(saved)
    repository = ModelRepository(tmp_path)
    await repository.start()
    assert repository.model("saved").signature.outputs
    await repository.close()


async def test_models_of_graphs_are_there_from_the_start() -> None:
    bad = ModelSource(sums(), config={"max_batch_size": -1})
    repository = ModelRepository(sources={"sum": sums(), "bad": bad})
    await repository.start()
    assert await answer(repository, "sum") == "1"
    assert states(repository) == [("bad", "1", "UNAVAILABLE"), ("sum", "1", "READY")]
    await repository.close()


async def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ax.errors.NotFoundError, match="there is no folder of models"):
        await ModelRepository(tmp_path / "none").start()


WARM_X = "inputs { key: 'x' value { data_type: TYPE_FP32 dims: %s zero_data: true } }"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: -1 }", "preferred_batch_size"),
        ("max_batch_size: 8 dynamic_batching { preferred_batch_size: 9 }", "must be from 1 to 8"),
        ("dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }", "max_queue_delay_microseconds"),
        ("dynamic_batching { default_queue_policy { max_queue_size: 4294967295 } }", "max_queue_size"),
        (
            "dynamic_batching { default_queue_policy { default_timeout_microseconds: 1000000000000000 } }",
            "timeout_micro",
        ),
        ("instance_group { count: -1 }", "instance_group.count"),
        ("instance_group { count: 2147483647 }", "instance_group.count"),
        ("model_warmup { name: 'w' count: 1001 }", "model_warmup.count"),
        ("model_warmup { name: 'w' " + WARM_X % "-1" + " }", "model_warmup.inputs.dims"),
        ("model_warmup { name: 'w' " + WARM_X % "[99999999, 3]" + " }", "model_warmup.inputs"),
        ("model_warmup { name: 'w' " + WARM_X % "[1, 3]" + " }", "missing required input"),
        ("default_model_filename: '..'", "default_model_filename"),
        ("default_model_filename: '.'", "default_model_filename"),
        ("input { name: 'x' data_type: 99 dims: [-1, 3] }", "its config says 99"),
    ],
)
async def test_a_config_that_cannot_be_served_is_named(tmp_path: Path, config: str, told: str) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    served = repository.model("sum")
    (tmp_path / "sum" / "config.pbtxt").write_text(config)
    with pytest.raises(ax.errors.InvalidArgumentError, match=told):
        await repository.load("sum")
    assert (repository.model("sum"), states(repository)) == (served, [("sum", "1", "READY")])
    await repository.unload("sum")
    with pytest.raises(ax.errors.InvalidArgumentError, match=told):
        await repository.load("sum")
    assert [state[2] for state in states(repository)] == ["UNAVAILABLE"]
    assert told in repository.index()[0].reason
    await repository.close()


async def test_a_warm_up_that_fails_in_any_way_is_not_the_end_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def warm_up(model: Model) -> None:
        if model.name == "bad":
            raise ValueError("too cold")

    monkeypatch.setattr(Model, "warm_up", warm_up)
    repository = ModelRepository(sources={"bad": sums(), "sum": sums()})
    await repository.start()
    assert states(repository) == [("bad", "1", "UNAVAILABLE"), ("sum", "1", "READY")]
    assert repository.index()[0].reason == "ValueError: too cold"
    await repository.close()


async def test_a_failed_reload_leaves_the_states_of_what_is_served(tmp_path: Path) -> None:
    path = await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit", load_at_start=("sum",))
    await repository.start()
    (path / "1" / "model.pb").write_bytes(b"rubbish")
    with pytest.raises(ax.errors.InvalidArgumentError, match="not a binary GraphDef"):
        await repository.load("sum")
    assert (states(repository), repository.is_ready) == ([("sum", "1", "READY")], True)
    with pytest.raises(ax.errors.InvalidArgumentError, match="version policy"):
        await repository.load("sum", {"config": '{"version_policy": {"specific": {"versions": [7]}}}'})
    assert (states(repository), repository.is_ready) == ([("sum", "1", "READY")], True)
    await asyncio.to_thread(write_model, path, sums(), 2)
    await repository.load("sum", {"config": '{"version_policy": {"all": {}}}'})
    assert (await answer(repository, "sum", "1"), await answer(repository, "sum")) == ("1", "2")
    await repository.unload("sum")
    await repository.close()


class HeldReads:
    """Reads of models that wait, on their threads, until they are let go."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def read_model(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.has_begun.set()
        self.may_end.wait()
        return read_model(*args, **options)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldReads]:
    reads = HeldReads()
    monkeypatch.setattr(repository_module, "read_model", reads.read_model)
    yield reads
    reads.may_end.set()


async def test_close_ends_loads_before_it_closes_models(tmp_path: Path, held: HeldReads) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit")
    await repository.start()
    load = asyncio.create_task(repository.load("sum"))
    await asyncio.to_thread(held.has_begun.wait)
    await repository.close()
    held.may_end.set()
    with pytest.raises(ax.errors.UnavailableError, match="closed"):
        await load
    assert (repository.models(), states(repository)) == ([], [("sum", "", "UNAVAILABLE")])
    with pytest.raises(ax.errors.UnavailableError, match="closed"):
        await repository.load("sum")


async def test_close_ends_a_start(tmp_path: Path, held: HeldReads) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path)
    start = asyncio.create_task(repository.start())
    await asyncio.to_thread(held.has_begun.wait)
    await repository.close()
    held.may_end.set()
    with pytest.raises(ax.errors.UnavailableError, match="closed"):
        await start
    assert repository.models() == []
    await repository.start()
    assert await answer(repository, "sum") == "1"
    await repository.close()


async def test_unload_waits_for_a_load(tmp_path: Path, held: HeldReads) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit")
    await repository.start()
    load = asyncio.create_task(repository.load("sum"))
    await asyncio.to_thread(held.has_begun.wait)
    unload = asyncio.create_task(repository.unload("sum"))
    await asyncio.sleep(0)
    held.may_end.set()
    await asyncio.gather(load, unload)
    assert not repository.is_model_ready("sum")
    await repository.close()


async def test_polling_goes_on_when_the_folder_was_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = await asyncio.to_thread(write_model, tmp_path / "models" / "sum", sums())
    repository = ModelRepository(tmp_path / "models", control="poll", poll_s=0.001)
    await repository.start()
    path.parent.rename(tmp_path / "away")
    await until(lambda: "cannot be polled" in caplog.text)
    assert await answer(repository, "sum") == "1"
    await asyncio.to_thread(write_model, tmp_path / "away" / "sum", sums(), 2)
    (tmp_path / "away").rename(path.parent)
    await until(lambda: repository.versions("sum") == ["2"])
    await repository.close()


async def test_a_polled_model_is_closed_after_it_was_removed(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="poll", poll_s=0.001)
    await repository.start()
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    (tmp_path / "sum").rename(tmp_path / ".gone")
    await until(lambda: not repository.index())
    await repository.close()
    gc.collect()  # a task tells of an exception that nobody has seen when it is collected
    assert failures == []


async def test_python_of_the_operator_cannot_end_the_service(tmp_path: Path) -> None:
    (tmp_path / "exits" / "1").mkdir(parents=True)
    (tmp_path / "exits" / "1" / "graph.py").write_text("raise SystemExit(3)")
    repository = ModelRepository(tmp_path, allow_python=True)
    await repository.start()
    assert repository.index()[0].reason == "InvalidArgumentError: exits/1/graph.py, line 1: SystemExit: 3"
    await repository.close()


RAISES = "import asyncexec as ax\n\ndef build():\n    return ax.constant(\n        [1, 'a'])\n\nbuild()\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("x = 1\nx.y\n", "fails/1/graph.py, line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("x = 1\n\nif x\n", "fails/1/graph.py, line 3: SyntaxError: expected ':'"),
        (RAISES, "fails/1/graph.py, line 4: "),
        ("x = 1\n", "fails/1/graph.py has no 'model', a ModelSource, and no 'graph', a Graph"),
    ],
)
async def test_what_python_of_the_operator_raises_names_file_and_line(tmp_path: Path, code: str, told: str) -> None:
    (tmp_path / "fails" / "1").mkdir(parents=True)
    (tmp_path / "fails" / "1" / "graph.py").write_text(code)
    repository = ModelRepository(tmp_path, allow_python=True)
    await repository.start()
    assert repository.index()[0].reason.startswith(f"InvalidArgumentError: {told}")
    await repository.close()


async def test_a_client_s_config_is_parsed_off_the_loop_and_is_not_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    repository = ModelRepository(tmp_path, control="explicit")
    await repository.start()
    threads: list[threading.Thread] = []

    def parse(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return parse_json(*args)

    monkeypatch.setattr(repository_module, "parse_json", parse)
    with pytest.raises(ax.errors.InvalidArgumentError, match="more than 1048576 bytes"):
        await repository.load("sum", {"config": " " * 2**20 + "{}"})
    with pytest.raises(ax.errors.InvalidArgumentError, match="is no model configuration"):
        await repository.load("sum", {"config": '{"platform": "\ud800"}'})
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    await repository.close()


async def test_what_is_no_file_and_names_that_nobody_can_send(tmp_path: Path) -> None:
    (tmp_path / "pipe" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe" / "1" / "model.pb")
    (tmp_path / "inner" / "1" / "model.savedmodel").mkdir(parents=True)
    os.mkfifo(tmp_path / "inner" / "1" / "model.savedmodel" / "saved_model.pb")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    repository = ModelRepository(tmp_path)
    await repository.start()
    assert [state.name for state in repository.index()] == ["inner", "pipe"]
    assert all("is no regular file and no folder" in state.reason for state in repository.index())
    await repository.close()


async def test_locks_are_kept_for_nobody(tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path, control="explicit")
    await repository.start()
    for i in range(10):
        with pytest.raises(ax.errors.InvalidArgumentError):
            await repository.load(f"none{i}")
    gc.collect()  # exceptions and their frames
    assert len(repository._locks) == 0
    await repository.close()


async def test_clients_are_not_told_where_the_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "empty" / "1").mkdir(parents=True)
    (folder / "bad" / "1").mkdir(parents=True)
    (folder / "bad" / "1" / "model.pb").write_bytes(b"rubbish")
    (folder / "text" / "1").mkdir(parents=True)
    (folder / "text" / "config.pbtxt").write_text("{")
    repository = ModelRepository(folder, control="explicit")
    await repository.start()
    for name, told in [("empty", "empty/1"), ("bad", "bad/1/model.pb"), ("text", "text/config.pbtxt")]:
        with pytest.raises(ax.errors.InvalidArgumentError, match=told) as raised:
            await repository.load(name)
        assert str(folder) not in str(raised.value)
    assert not any(str(folder) in state.reason for state in repository.index())
    folder.rename(tmp_path / "away")
    with pytest.raises(ax.errors.InvalidArgumentError, match="failed to poll") as raised:
        await repository.load("bad")
    with pytest.raises(ax.errors.NotFoundError, match=r"there is no folder of models$"):
        await repository.refresh()
    assert str(folder) not in str(raised.value)
    await repository.close()
