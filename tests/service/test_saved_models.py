"""SavedModels with variables, tables and assets, as the service serves them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from asyncexec.framework.errors import OpError
from asyncexec.service import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_models"


def served(folder: Path, name: str) -> Path:
    """A repository of the model called *name*, in *folder*; the SavedModel in it."""
    return Path(shutil.copytree(GOLDEN / name, folder / name / "1" / "model.savedmodel"))


@pytest.mark.parametrize("name", ["keras", "v1_simple"])
async def test_variables_are_restored_before_a_model_is_ready(tmp_path: Path, name: str) -> None:
    served(tmp_path, name)
    with np.load(GOLDEN / "expected.npz") as found:
        values = dict(found)
    inputs, wanted = f"{name}/serving_default/in/", f"{name}/serving_default/out/"
    feeds = {key.removeprefix(inputs): InferTensor("FP32", values[key]) for key in values if key.startswith(inputs)}
    repository = ModelRepository(tmp_path)
    await repository.start()
    model = repository.model(name)
    answered = (await model.infer(InferRequest(name, feeds))).outputs
    await repository.close()
    found = {output_name: output.array for output_name, output in answered.items()}
    assert {wanted + key for key in found} == {key for key in values if key.startswith(wanted)}
    for key, value in found.items():
        np.testing.assert_allclose(value, values[wanted + key], rtol=1e-5, atol=1e-6)


async def test_tables_are_filled(tmp_path: Path) -> None:
    served(tmp_path, "v1_builder")
    repository = ModelRepository(tmp_path)
    await repository.start()
    words = InferTensor("BYTES", np.array([b"blue", b"red", b"?"], "O"))
    x = InferTensor("FP32", np.zeros((1, 2), np.float32))
    response = await repository.model("v1_builder").infer(InferRequest("v1_builder", {"words": words, "x": x}))
    assert response.outputs["ids"].array.tolist() == [2, 0, -1]
    await repository.close()


async def test_a_model_whose_checkpoint_does_not_fit_is_not_ready(tmp_path: Path) -> None:
    folder = served(tmp_path, "v1_simple")
    for file in (GOLDEN / "keras" / "variables").iterdir():
        shutil.copy(file, folder / "variables")
    served(tmp_path, "keras")
    repository = ModelRepository(tmp_path)
    await repository.start()
    states = {state.name: state for state in repository.index()}
    assert states["keras"].state == "READY"
    assert states["v1_simple"].state == "UNAVAILABLE"
    assert "'p', 'r', 'v'" in states["v1_simple"].reason
    with pytest.raises(OpError):
        repository.model("v1_simple")
    await repository.close()


async def test_onnx_and_pnnx_models_are_served(tmp_path: Path) -> None:
    helper = pytest.importorskip("onnx").helper
    tensors = [helper.make_tensor_value_info(name, 1, ["n", 2]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", tensors[:1], tensors[1:]))
    onnx_folder, pnnx_folder = tmp_path / "negative" / "1", tmp_path / "attention" / "1"
    for folder in (onnx_folder, pnnx_folder):
        folder.mkdir(parents=True)
    (onnx_folder / "model.onnx").write_bytes(model.SerializeToString())
    for suffix in ("param", "bin"):
        shutil.copy(GOLDEN.parent / "pnnx" / f"attention.pnnx.{suffix}", pnnx_folder / f"model.pnnx.{suffix}")
    repository = ModelRepository(tmp_path)
    await repository.start()
    x = InferTensor("FP32", np.ones((3, 2), np.float32))
    answered = await repository.model("negative").infer(InferRequest("negative", {"x": x}))
    with np.load(GOLDEN.parent / "pnnx" / "attention.npz") as values:
        given, expected = values["x0"], values["y0"]
    feeds = {"pnnx_input_0": InferTensor("INT64" if given.dtype == np.int64 else "FP32", given)}
    attention = await repository.model("attention").infer(InferRequest("attention", feeds))
    await repository.close()
    assert answered.outputs["y"].array.tolist() == [[-1.0, -1.0]] * 3
    np.testing.assert_allclose(next(iter(attention.outputs.values())).array, expected, rtol=1e-5, atol=1e-5)
