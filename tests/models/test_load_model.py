"""Models in files: SavedModels with variables that TensorFlow and Keras wrote, graphs, and files that are none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from asyncexec.importers.proto_messages import proto_messages
from asyncexec.models import model as model_module

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_models"


def expected() -> dict[str, Any]:
    with np.load(GOLDEN / "expected.npz") as found:
        return dict(found)


def of(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """What of *values* is below *prefix*; strings as the graphs have them."""
    found = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return {key: value.astype("O") if value.dtype.kind == "S" else value for key, value in found.items()}


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / name, folder / name, symlinks=True))


def signatures() -> Iterator[tuple[str, str]]:
    yield from sorted({tuple(key.split("/")[:2]) for key in expected() if "/in/" in key})  # type: ignore[misc]


@pytest.mark.parametrize(("name", "signature"), list(signatures()))
async def test_saved_models_give_what_tensorflow_gives(name: str, signature: str) -> None:
    values = expected()
    async with ax.load_model(GOLDEN / name) as model:
        call = model.signatures[signature]
        inputs, outputs = of(values, f"{name}/{signature}/in/"), of(values, f"{name}/{signature}/out/")
        assert set(call.inputs) == set(inputs)
        found = await call(**inputs)
    assert set(found) == set(call.outputs) == set(outputs)
    for key, value in outputs.items():
        if value.dtype == object:
            assert np.asarray(found[key]).tolist() == value.tolist()
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)


async def test_variables_live_as_long_as_the_model() -> None:
    x = np.ones((1, 2), np.float32)
    async with ax.load_model(GOLDEN / "module") as model:
        call = model.signatures["serving_default"]
        assert [(await call(x=x))["calls"] for _ in range(3)] == [1, 2, 3]
    async with ax.load_model(GOLDEN / "module") as model:
        assert (await model.signatures["serving_default"](x=x))["calls"] == 1


async def test_a_model_is_read_on_a_thread_and_starts_at_its_first_call() -> None:
    model = await ax.load_model(GOLDEN / "keras")
    x = np.ones((1, 2), np.float32)
    calls = [model.signatures["serving_default"](x=x) for _ in range(3)]
    found = await asyncio.gather(*calls)
    for each in found:
        np.testing.assert_array_equal(each["output_0"], found[0]["output_0"])
    await model.close()
    with pytest.raises(Exception, match="closed"):
        await model.signatures["serving_default"](x=x)


def test_a_model_without_a_loop() -> None:
    model = ax.load_model(GOLDEN / "v1_simple")
    assert model.signatures["serving_default"].method_name == "tensorflow/serving/predict"
    assert list(model.signatures) == ["serving_default"]
    assert model.graph["x:0"].dtype is ax.float32
    assert "v1_simple" in repr(model)
    assert repr(model.signatures["serving_default"]) == "<ax.ModelSignature 'serving_default': x -> y, z>"


async def test_a_session_of_ones_own() -> None:
    model = await ax.load_model(GOLDEN / "v1_simple")
    values = expected()
    async with ax.Session(model.graph) as session:
        with pytest.raises(FailedPreconditionError):
            await session.run("y:0", {"x:0": values["v1_simple/serving_default/in/x"]})
        await model.initialize(session)
        found = await session.run("y:0", {"x:0": values["v1_simple/serving_default/in/x"]})
        np.testing.assert_allclose(found, values["v1_simple/serving_default/out/y"])
    async with ax.Session(ax.Graph()) as session:
        with pytest.raises(InvalidArgumentError, match="another graph"):
            await model.initialize(session)


async def test_wrong_keywords_are_all_named() -> None:
    async with ax.load_model(GOLDEN / "v1_builder") as model:
        with pytest.raises(InvalidArgumentError, match="needs words, x and has no a, b") as caught:
            await model.signatures["serving_default"](a=1, b=2)
        assert "it takes words, x" in str(caught.value)


async def test_a_graph_is_called_by_the_names_of_its_nodes(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        scale = ax.placeholder_with_default(np.float32(2), [], name="scale")
        ax.multiply(x, scale, name="y")
    for name in ("graph.pb", "graph.pbtxt", "graph.json"):
        await asyncio.to_thread(ax.save_graph_def, graph.as_graph_def(), tmp_path / name)
        async with ax.load_model(tmp_path / name) as model:
            call = model.signatures["serving_default"]
            assert (await call(x=[1, 2]))["y"].tolist() == [2, 4]
            assert (await call(x=[1, 2], scale=3))["y"].tolist() == [3, 6]


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("none.pb", NotFoundError, "none.pb"),
        ("none", NotFoundError, "does not exist"),
        (".", NotFoundError, "not a SavedModel"),
        ("notes.txt", InvalidArgumentError, r"no model of a known format: SavedModel \(.*GraphDef \(.pb"),
    ],
)
async def test_what_is_no_model(tmp_path: Path, path: str, error: type[Exception], message: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(error, match=message):
        async with ax.load_model(tmp_path / path):
            pass


async def test_files_that_are_missing_are_all_named(tmp_path: Path) -> None:
    path = copy_of("module", tmp_path)
    (path / "assets" / "colors.txt").unlink()
    (path / "variables" / "variables.index").unlink()
    with pytest.raises(NotFoundError, match=r"assets/colors.txt, variables/variables.index"):
        await ax.load_model(path)


@pytest.mark.parametrize("name", ["variables.index", "variables.data-00000-of-00001"])
async def test_checkpoints_that_are_damaged(tmp_path: Path, name: str) -> None:
    path = copy_of("keras", tmp_path)
    file = path / "variables" / name
    data = file.read_bytes()
    for content, message in (
        (data[: len(data) // 2], "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ):
        file.write_bytes(content)
        with pytest.raises(DataLossError, match=message):
            async with ax.load_model(path):
                pass


async def test_a_checkpoint_of_another_model_names_what_is_missing(tmp_path: Path) -> None:
    path = copy_of("v1_simple", tmp_path)
    for file in (GOLDEN / "keras" / "variables").iterdir():
        shutil.copy(file, path / "variables" / file.name)
    with pytest.raises(NotFoundError, match="'p', 'r', 'v'"):
        async with ax.load_model(path):
            pass


async def test_no_file_outside_of_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("red\n")
    linked = copy_of("v1_builder", tmp_path / "linked")
    (linked / "assets" / "colors.txt").unlink()
    (linked / "assets" / "colors.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(PermissionDeniedError, match="not in it"):
        await ax.load_model(linked)
    shards = copy_of("keras", tmp_path / "shards")
    shard = shards / "variables" / "variables.data-00000-of-00001"
    shard.rename(tmp_path / "shard")
    shard.symlink_to(tmp_path / "shard")
    with pytest.raises(PermissionDeniedError, match="may not read"):
        async with ax.load_model(shards):
            pass


def saved_model(folder: Path, *nodes: tuple[str, str]) -> Path:
    message = proto_messages(packed=False).saved_model(saved_model_schema_version=1)
    graph_def = message.meta_graphs.add().graph_def
    for name, op in nodes:
        graph_def.node.add(name=name, op=op)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())
    return folder


async def test_ops_that_are_not_there_are_all_named(tmp_path: Path) -> None:
    saved_model(tmp_path, ("a", "NoSuchOp"), ("b", "NorThisOp"), ("c", "NoSuchOp"), ("d", "NoOp"))
    with pytest.raises(NotFoundError, match=r"'NoSuchOp' \(node 'a'\), 'NorThisOp' \(node 'b'\)"):
        await ax.load_model(tmp_path)


async def test_typos_of_several_ops_are_told_what_is_meant(tmp_path: Path) -> None:
    saved_model(tmp_path, ("a", "Relux"), ("b", "Softmaxx"), ("c", "QqqZzz"))
    with pytest.raises(NotFoundError) as caught:
        await ax.load_model(tmp_path)
    assert caught.value.hint is not None
    assert "Softmax for Softmaxx" in caught.value.hint
    assert "Relu" in caught.value.hint
    assert "QqqZzz" not in caught.value.hint


async def test_a_model_writes_no_files(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        ax.create_op("WriteFile", [str(tmp_path / "new"), "x"], name="write")
    message = proto_messages(packed=False).saved_model(saved_model_schema_version=1)
    meta_graph = message.meta_graphs.add()
    data = tmp_path / "graph.pb"
    await asyncio.to_thread(ax.save_graph_def, graph.as_graph_def(), data)
    meta_graph.graph_def.ParseFromString(data.read_bytes())
    meta_graph.collection_def["saved_model_main_op"].node_list.value.append("write")
    (tmp_path / "saved_model.pb").write_bytes(message.SerializeToString())
    with pytest.raises(PermissionDeniedError, match="may not write"):
        async with ax.load_model(tmp_path):
            pass
    assert not (tmp_path / "new").exists()


async def test_a_model_whose_start_runs_foreign_code_does_not_start(tmp_path: Path) -> None:
    path = saved_model(tmp_path, ("call", "PyFunc"))
    message = proto_messages(packed=False).saved_model.FromString((path / "saved_model.pb").read_bytes())
    attr = message.meta_graphs[0].graph_def.node[0].attr
    attr["token"].s = b"pyfunc_0"
    for name in ("Tin", "Tout"):
        attr[name].list.SetInParent()
    message.meta_graphs[0].collection_def["saved_model_main_op"].node_list.value.append("call")
    (path / "saved_model.pb").write_bytes(message.SerializeToString())
    assert "call" in (await ax.load_model(path)).graph
    with pytest.raises(PermissionDeniedError, match=r"PyFunc \('call'\)"):
        async with ax.load_model(path):
            pass


DEFAULTS = """
    saved_model_schema_version: 1
    meta_graphs {
      graph_def {
        node { name: "a" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "b" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
        node { name: "y" op: "Sub" input: "a" input: "b" attr { key: "T" value { type: DT_FLOAT } } }
      }
      signature_def {
        key: "serving_default"
        value {
          inputs { key: "first" value { name: "a:0" dtype: DT_FLOAT } }
          inputs { key: "second" value { name: "b:0" dtype: DT_FLOAT } }
          outputs { key: "difference" value { name: "TENSOR" dtype: DT_FLOAT } }
          defaults { key: "second" value { dtype: DT_FLOAT tensor_shape { } float_val: 2.0 } }
        }
      }
    }
"""


async def test_inputs_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pbtxt").write_text(DEFAULTS.replace("TENSOR", "y:0"))
    async with ax.load_model(tmp_path) as model:
        call = model.signatures["serving_default"]
        assert await call(first=5.0) == {"difference": 3.0}
        assert await call(first=5.0, second=1.0) == {"difference": 4.0}


async def test_a_signature_of_tensors_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pbtxt").write_text(DEFAULTS.replace("TENSOR", "z:0"))
    with pytest.raises(NotFoundError, match=r"signature 'serving_default'.*'z'"):
        await ax.load_model(tmp_path)


async def test_onnx_models_are_called_by_their_names(tmp_path: Path) -> None:
    helper = pytest.importorskip("onnx").helper
    tensors = [helper.make_tensor_value_info(name, 1, ["n", 2]) for name in ("x", "y.0", "sum")]
    nodes = [helper.make_node("Add", ["x", "y.0"], ["sum"])]
    model = helper.make_model(helper.make_graph(nodes, "g", tensors[:2], tensors[2:]))
    (tmp_path / "add.onnx").write_bytes(model.SerializeToString())
    async with ax.load_model(tmp_path / "add.onnx") as loaded:
        signature = loaded.signatures["serving_default"]
        assert str(signature.inputs["x"].shape) == "[?,2]"
        found = await signature(**{"x": np.ones((3, 2), np.float32), "y.0": np.ones((1, 2), np.float32)})
    assert found["sum"].tolist() == [[2.0, 2.0]] * 3


async def test_pnnx_models_give_what_torch_gives() -> None:
    folder = GOLDEN.parent / "pnnx"
    with np.load(folder / "attention.npz") as values:
        x, expected_outputs = values["x0"], [values["y0"], values["y1"]]
    async with ax.load_model(folder / "attention.pnnx.param") as model:
        found = await model.signatures["serving_default"](pnnx_input_0=x)
    for output, value in zip(found.values(), expected_outputs, strict=True):
        np.testing.assert_allclose(output, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("jit", "is_installed", "wanted"), [("auto", True, 1), ("off", True, 0), ("auto", False, 0)])
def test_onnx_runtime_is_imported_before_a_loop_would_wait_for_it(
    jit: Any, is_installed: bool, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports: list[None] = []
    monkeypatch.setattr(model_module, "has_onnx_runtime", lambda: is_installed)
    monkeypatch.setattr(model_module, "onnx_runtime", lambda: imports.append(None))
    ax.load_model(GOLDEN / "keras", ax.SessionConfig(jit=jit))
    assert len(imports) == wanted
