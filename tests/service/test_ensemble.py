"""Ensembles: models made of calls of others; how they run, load and fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.app import create_app
from asyncexec.service.models.config import config_of
from asyncexec.service.models.files import ModelSource, ReadModel
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from tests.running import started
from tests.service.models import until, write_model

pytestmark = pytest.mark.allow_blocking

INVALID, UNAVAILABLE = ax.errors.InvalidArgumentError, ax.errors.UnavailableError


def unary(function: Callable[[Any], Any], dtype: Any = ax.float32, shape: Any = (None,)) -> ax.Graph:
    """Input x; output y, *function* of it."""
    with ax.Graph() as graph:
        ax.identity(function(ax.placeholder(dtype, shape, name="x")), name="y")
    return graph


def sums() -> ax.Graph:
    """Inputs a and b; outputs sum and less."""
    with ax.Graph() as graph:
        a, b = (ax.placeholder(ax.float32, [None], name=name) for name in "ab")
        ax.add(a, b, name="sum")
        ax.subtract(a, b, name="less")
    return graph


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1) -> str:
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: {version} {" ".join(maps)} }}'


def ensemble(*steps: str, inputs: str = "X", outputs: str = "Y", dtype: str = "FP32", more: str = "") -> str:
    """A config whose inputs and outputs are lists of floats."""
    tensors = [f'input {{ name: "{name}" data_type: TYPE_{dtype} dims: [-1] }}' for name in inputs.split()]
    tensors += [f'output {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] }}' for name in outputs.split()]
    return f"{' '.join(tensors)} ensemble_scheduling {{ {' '.join(steps)} }} {more}"


def write_ensemble(folder: Path, config: str) -> None:
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "config.pbtxt").write_text(config, encoding="utf-8")


DOUBLE_THEN_SUM = (
    step("double", {"x": "X"}, {"y": "twice"}),
    step("negate", {"x": "X"}, {"y": "minus"}),
    step("sums", {"a": "twice", "b": "minus"}, {"sum": "Y", "less": "Z"}),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models double, negate and sums, and ensemble "all": Y is x, Z is 3 x."""
    write_model(tmp_path / "double", unary(lambda x: x * 2))
    write_model(tmp_path / "negate", unary(ax.negative))
    write_model(tmp_path / "sums", sums())
    write_ensemble(tmp_path / "all", ensemble(*DOUBLE_THEN_SUM, outputs="Y Z"))
    return tmp_path


@asynccontextmanager
async def repository_of(folder: Path, **options: Any) -> AsyncIterator[ModelRepository]:
    repository = ModelRepository(folder, **options)
    await repository.start()
    try:
        yield repository
    finally:
        await repository.close()


def asking(*numbers: float, name: str = "X", outputs: list[str] | None = None, **parameters: Any) -> InferRequest:
    x = InferTensor("FP32", np.array(numbers, np.float32))
    return InferRequest("all", {name: x}, outputs, parameters=parameters)


async def test_steps_feed_steps(folder: Path) -> None:
    async with repository_of(folder) as repository:
        model = repository.model("all")
        found = await model.infer(asking(1, 2))
        assert {name: each.array.tolist() for name, each in found.outputs.items()} == {"Y": [1, 2], "Z": [3, 6]}
        assert (model.config.platform, found.model_name) == ("ensemble", "all")
        counts = {each.name: each.statistics.success.count for each in repository.models()}
        assert counts == {"all": 1, "double": 1, "negate": 1, "sums": 1}
        assert repository.is_ready


async def test_a_step_that_no_wanted_output_needs_does_not_run(folder: Path) -> None:
    steps = (step("double", {"x": "X"}, {"y": "Y"}), step("negate", {"x": "X"}, {"y": "Z"}))
    write_ensemble(folder / "all", ensemble(*steps, outputs="Y Z"))
    async with repository_of(folder) as repository:
        found = await repository.model("all").infer(asking(4, outputs=["Z"]))
        assert {name: each.array.tolist() for name, each in found.outputs.items()} == {"Z": [-4]}
        assert repository.model("double").statistics.success.count == 0


@pytest.mark.parametrize("is_nested", [False, True])
async def test_steps_overlap(folder: Path, is_nested: bool) -> None:
    """Two steps that each wait for the other to have begun; in ensembles of one step, too."""
    both = asyncio.Barrier(2)

    @ax.op(outputs=[ax.float32])
    async def meet(x: Any) -> Any:
        await both.wait()
        return x * 10

    repository = ModelRepository(folder, {name: unary(meet) for name in ("left", "right")})
    called = ["left", "right"]
    if is_nested:
        called = ["in_left", "in_right"]
        for name in called:
            inner = step(name.removeprefix("in_"), {"x": "X"}, {"y": "Y"})
            write_ensemble(folder / name, ensemble(inner))
    steps = [
        step(called[0], {"X" if is_nested else "x": "X"}, {"Y" if is_nested else "y": "one"}),
        step(called[1], {"X" if is_nested else "x": "X"}, {"Y" if is_nested else "y": "other"}),
        step("sums", {"a": "one", "b": "other"}, {"sum": "Y"}),
    ]
    write_ensemble(folder / "all", ensemble(*steps))
    await repository.start()
    found = await repository.model("all").infer(asking(1))
    assert found.outputs["Y"].array.tolist() == [20]
    await repository.close()


async def test_a_batch_goes_through_models_that_batch(folder: Path) -> None:
    write_model(
        folder / "double", unary(lambda x: x * 2, shape=(None, 2)), config="max_batch_size: 8 dynamic_batching {}"
    )
    dims = '{ name: "%s" data_type: TYPE_FP32 dims: [2] }'
    tensors = f"input {dims % 'X'} output {dims % 'Y'}"
    scheduling = f"ensemble_scheduling {{ {step('double', {'x': 'X'}, {'y': 'Y'})} }}"
    write_ensemble(folder / "all", f"max_batch_size: 4 {tensors} {scheduling}")
    async with repository_of(folder) as repository:
        model = repository.model("all")
        x = InferTensor("FP32", np.ones((3, 2), np.float32))
        assert (await model.infer(InferRequest("all", {"X": x}))).outputs["Y"].array.tolist() == [[2, 2]] * 3
        with pytest.raises(INVALID, match="batch-size must be <= 4 for 'all', and is 5"):
            await model.infer(InferRequest("all", {"X": InferTensor("FP32", np.ones((5, 2), np.float32))}))
        assert model.statistics.inference_count == 3


async def test_strings_and_scalars_pass(folder: Path) -> None:
    write_model(folder / "double", unary(lambda x: ax.string_join([x, x]), ax.string, ()))
    tensors = 'input { name: "X" data_type: TYPE_STRING } output { name: "Y" data_type: TYPE_STRING }'
    steps = step("double", {"x": "X"}, {"y": "t"}), step("double", {"x": "t"}, {"y": "Y"})
    write_ensemble(folder / "all", f"{tensors} ensemble_scheduling {{ {' '.join(steps)} }}")
    async with repository_of(folder) as repository:
        x = InferTensor("BYTES", np.array(b"\xff", object))
        found = await repository.model("all").infer(InferRequest("all", {"X": x}))
        assert found.outputs["Y"].array.item() == b"\xff" * 4


async def test_an_error_names_the_ensemble_and_the_model(folder: Path) -> None:
    write_model(folder / "negate", unary(lambda x: ax.negative(ax.ensure_shape(x, [2]))))
    async with repository_of(folder) as repository:
        with pytest.raises(INVALID, match="in ensemble 'all', model 'negate': ") as raised:
            await repository.model("all").infer(asking(1, 2, 3))
        assert "EnsureShape" in raised.value.message
        assert repository.model("negate").statistics.fail.count == repository.model("all").statistics.fail.count == 1


async def test_a_deadline_and_a_caller_that_leaves_end_the_steps(folder: Path) -> None:
    begun = asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def wait_long(x: Any) -> Any:
        begun.set()
        await asyncio.sleep(600)
        return x

    repository = ModelRepository(folder, {"slow": unary(wait_long)})
    write_ensemble(folder / "all", ensemble(step("slow", {"x": "X"}, {"y": "Y"})))
    await repository.start()
    model, slow = repository.model("all"), repository.model("slow")
    with pytest.raises(ax.errors.DeadlineExceededError):
        await model.infer(asking(1, timeout=1000))
    begun.clear()
    call = await started(model.infer(asking(1)))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert slow.session.statistics().running_steps == 0
    assert slow.statistics.cancel.count >= 1
    await repository.close()


async def test_a_request_holds_the_models_that_it_began_with(folder: Path) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def wait_for(x: Any) -> Any:
        begun.set()
        await released.wait()
        return x

    repository = ModelRepository(folder, {"slow": unary(wait_for)}, control="explicit", load_at_start=("all",))
    steps = step("slow", {"x": "X"}, {"y": "t"}), step("double", {"x": "t"}, {"y": "Y"})
    write_ensemble(folder / "all", ensemble(*steps))
    await repository.start()
    call = await started(repository.model("all").infer(asking(1)))
    await begun.wait()
    await repository.unload("double")
    with pytest.raises(UNAVAILABLE, match="'all' is not at ready state: ensemble 'all' depends on 'double'"):
        await repository.model("all").infer(asking(1))
    released.set()
    assert (await call).outputs["Y"].array.tolist() == [2]
    await repository.close()


async def test_a_request_holds_the_models_of_ensembles_in_its_ensemble(folder: Path) -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def wait_for(x: Any) -> Any:
        begun.set()
        await released.wait()
        return x

    write_ensemble(folder / "inner", ensemble(step("double", {"x": "X"}, {"y": "Y"})))
    steps = step("slow", {"x": "X"}, {"y": "t"}), step("inner", {"X": "t"}, {"Y": "Y"})
    write_ensemble(folder / "all", ensemble(*steps))
    repository = ModelRepository(folder, {"slow": unary(wait_for)}, control="explicit", load_at_start=("all",))
    await repository.start()
    call = await started(repository.model("all").infer(asking(1)))
    await begun.wait()
    await repository.unload("inner")
    await repository.unload("double")
    released.set()
    assert (await call).outputs["Y"].array.tolist() == [2]
    await repository.close()


async def test_its_models_are_loaded_with_it_and_unloaded_apart(folder: Path) -> None:
    async with repository_of(folder, control="explicit") as repository:
        assert not repository.is_model_ready("double")
        await repository.load("all")
        assert all(repository.is_model_ready(name) for name in ("all", "double", "negate", "sums"))
        await repository.unload("double")
        assert not repository.is_model_ready("all")
        assert not repository.is_model_ready("all", "1")
        told = {state.name: (state.state, state.reason) for state in repository.index()}
        assert told["all"] == ("UNAVAILABLE", "ensemble 'all' depends on 'double' which has no loaded version")
        await repository.load("double")
        assert repository.is_model_ready("all")
        assert (await repository.model("all").infer(asking(5))).outputs["Z"].array.tolist() == [15]
        await repository.unload("all")
        assert repository.is_model_ready("double")


async def test_a_newer_version_of_a_model_is_called_and_one_that_is_named_is_not(folder: Path) -> None:
    write_model(folder / "double", unary(lambda x: x * 20), version=2)
    steps = step("double", {"x": "X"}, {"y": "Y"}), step("double", {"x": "X"}, {"y": "Z"}, version=1)
    write_ensemble(folder / "all", ensemble(*steps, outputs="Y Z"))
    (folder / "double" / "config.pbtxt").write_text("version_policy { all {} }")
    async with repository_of(folder) as repository:
        found = await repository.model("all").infer(asking(1))
        assert [found.outputs[name].array.tolist() for name in "YZ"] == [[20], [2]]


async def test_polling_loads_it_when_its_models_come(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("away") / "double"
    (folder / "double").rename(away)
    async with repository_of(folder, control="poll", poll_s=0.01) as repository:
        assert not repository.is_model_ready("all")
        assert not repository.is_ready
        told = {state.name: state.reason for state in repository.index()}
        assert "ensemble 'all' depends on 'double' which has no loaded version" in told["all"]
        away.rename(folder / "double")
        await until(lambda: repository.is_model_ready("all"))
        assert (await repository.model("all").infer(asking(1))).outputs["Z"].array.tolist() == [3]


X_TO_Y = step("double", {"x": "X"}, {"y": "Y"})
REFUSED = [
    (ensemble(), "'ensemble_scheduling' has 0 steps"),
    (ensemble(X_TO_Y, inputs=""), "its config must name each 'input'"),
    (ensemble(X_TO_Y, outputs=""), "its config must name each 'output'"),
    (ensemble(X_TO_Y, inputs="X X"), "input 'X' is there twice"),
    (ensemble(X_TO_Y, dtype="INVALID"), "input 'X' is there twice, or has no data type"),
    (ensemble(step("none", {"x": "X"}, {"y": "Y"})), "depends on 'none' which has no loaded version"),
    (ensemble(step("double", {"x": "X"}, {"y": "Y"}, 7)), "depends on 'double' whose required version 7 is not loaded"),
    (ensemble(step("all", {"x": "X"}, {"y": "Y"})), "circular dependency between ensembles: all -> all"),
    (ensemble(step("double", {"z": "X"}, {"y": "Y"})), "maps input 'z', and model 'double' has no such input"),
    (ensemble(step("double", {"x": "X"}, {"z": "Y"})), "maps output 'z', and model 'double' has no such output"),
    (ensemble(step("double", {}, {"y": "Y"})), "does not map input 'x' of model 'double'"),
    (ensemble(step("double", {"x": "X"}, {})), "maps no output of model 'double'"),
    (ensemble(step("double", {"x": "T"}, {"y": "Y"})), "takes tensor 'T', which no step gives"),
    (ensemble(X_TO_Y, outputs="Y Z"), "output 'Z' is given by no step"),
    (
        ensemble(X_TO_Y, step("negate", {"x": "X"}, {"y": "Y"})),
        "tensor 'Y', an output of model 'negate', is given twice",
    ),
    (ensemble(step("double", {"x": "X"}, {"y": "X"})), "tensor 'X', an output of model 'double', is given twice"),
    (
        ensemble(step("double", {"x": "b"}, {"y": "a"}), step("double", {"x": "a"}, {"y": "b"}), X_TO_Y),
        "circular dependency between ensembles' tensors: a, b",
    ),
    (ensemble(X_TO_Y, dtype="INT32"), "tensor 'X': inconsistent data type: INT32 of the ensemble's input, and FP32 of"),
    (ensemble(X_TO_Y, more="max_batch_size: 4"), "inconsistent shape: [-1, -1] of the ensemble's input, and [-1] of"),
    (ensemble(X_TO_Y.replace("model_version", 'model_namespace: "n" model_version')), "'model_namespace'"),
    (ensemble(step("small", {"x": "X"}, {"y": "Y"}), more="max_batch_size: 4"), "model 'small' takes 2 at most"),
    (ensemble(step("ints", {"x": "I"}, {"y": "Y"}), inputs="I", dtype="INT32"), "and its config says TYPE_FP32"),
]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize(("config", "told"), REFUSED)
async def test_ensembles_that_do_not_fit(folder: Path, config: str, told: str) -> None:
    write_model(folder / "small", unary(ax.negative, shape=(None, None)), config="max_batch_size: 2")
    write_model(folder / "ints", unary(ax.negative, ax.int32))
    write_ensemble(folder / "all", config)
    async with repository_of(folder, control="explicit") as repository:
        with pytest.raises(INVALID) as raised:
            await repository.load("all")
        assert told in str(raised.value.__cause__)
        assert not repository.is_model_ready("all")


async def test_ensembles_that_need_each_other_are_refused(folder: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        write_ensemble(folder / name, ensemble(step(other, {"X": "X"}, {"Y": "Y"})))
    async with repository_of(folder, control="explicit") as repository:
        results = await asyncio.gather(repository.load("one"), repository.load("two"), return_exceptions=True)
        assert [type(each) for each in results] == [INVALID, INVALID]
        write_ensemble(folder / "two", ensemble(X_TO_Y))
        await repository.load("one")
        write_ensemble(folder / "two", ensemble(step("one", {"X": "X"}, {"Y": "Y"})))
        with pytest.raises(INVALID, match="circular dependency between ensembles: two -> one -> two"):
            await repository.load("two")
        assert repository.is_model_ready("one")


async def test_it_is_warmed_up(folder: Path) -> None:
    warm = (
        'model_warmup { name: "w" count: 2 inputs { key: "X" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }'
    )
    write_ensemble(folder / "all", ensemble(*DOUBLE_THEN_SUM, outputs="Y Z", more=warm))
    async with repository_of(folder) as repository:
        assert repository.model("sums").num_runs == 2


async def test_over_http(folder: Path) -> None:
    app = create_app(ModelRepository(folder, control="explicit", load_at_start=("all",)))
    async with app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        x = {"name": "X", "datatype": "FP32", "shape": [1], "data": [7]}
        answer = await client.post("/v2/models/all/infer", json={"inputs": [x], "outputs": [{"name": "Z"}]})
        assert answer.json()["outputs"] == [{"name": "Z", "datatype": "FP32", "shape": [1], "data": [21]}]
        about = (await client.get("/v2/models/all")).json()
        assert (about["platform"], about["inputs"][0]["name"]) == ("ensemble", "X")
        steps = (await client.get("/v2/models/all/config")).json()["ensemble_scheduling"]["step"]
        assert [each["model_name"] for each in steps] == ["double", "negate", "sums"]
        await client.post("/v2/repository/models/negate/unload")
        assert (await client.get("/v2/models/all/ready")).status_code == 503
        refused = await client.post("/v2/models/all/infer", json={"inputs": [x]})
        assert (refused.status_code, "depends on 'negate'" in refused.text) == (503, True)


def test_a_graph_is_no_ensemble() -> None:
    config = {"ensemble_scheduling": {"step": [{"model_name": "m"}]}}
    with pytest.raises(INVALID, match="'m' is an ensemble, and a graph"):
        ReadModel.of("m", "1", ModelSource(unary(ax.negative)), config_of(config, "test"))


async def test_how_long_it_takes_to_find_that_it_is_ready_does_not_double_with_each_ensemble_inside(
    folder: Path,
) -> None:
    depth = 40
    for i in range(depth):
        inner = f"nested{i - 1}" if i else "double"
        names = ("X", "Y") if i else ("x", "y")
        steps = (step(inner, {names[0]: "X"}, {names[1]: "t"}), step(inner, {names[0]: "t"}, {names[1]: "Y"}))
        write_ensemble(folder / f"nested{i}", ensemble(*steps))
    async with repository_of(folder, control="explicit", load_at_start=(f"nested{depth - 1}",)) as repository:
        assert repository.is_model_ready(f"nested{depth - 1}")
        await repository.unload("double")
        assert not repository.is_model_ready(f"nested{depth - 1}")
