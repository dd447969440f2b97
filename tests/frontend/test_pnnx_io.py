"""load_pnnx and import_pnnx: nodes, signatures, and models that cannot run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.frontend.pnnx_io import node_name
from asyncexec.importers.saved_model import TensorInfo

GOLDEN = Path(__file__).parents[1] / "golden" / "pnnx"
SMALL = GOLDEN / "small.pnnx.param"


def param_file(folder: Path, *lines: str) -> Path:
    """A param file of an input ``x`` [1, 2] and operators."""
    every = ["pnnx.Input x 0 1 0 #0=(1,2)f32", *lines]
    operands = sum(int(line.split()[3]) for line in every)
    path = folder / "model.pnnx.param"
    path.write_text("\n".join([f"7767517\n{len(every)} {operands}", *every]))
    return path


def test_a_node_an_operator_with_its_params() -> None:
    with ax.Graph() as graph:
        ax.import_pnnx(SMALL)
    assert list(graph.names) == list(ax.load_pnnx(SMALL).operators)
    conv = graph.operation("conv")
    assert conv.type == "Pnnx>nn.Conv2d"
    assert conv.attrs["kernel_size"] == (3, 3)
    assert conv.attrs["padding_mode"] == b"zeros"
    assert conv.attrs["@weight"].shape == (4, 3, 3, 3)
    assert [node.name for node in conv.consumers] == ["act"]
    assert [node.name for node in graph.operation("act").consumers] == ["pnnx_expr_1"]
    assert graph.operation("pnnx_output_0").consumers == []
    assert graph.tensor("conv:0").shape == TensorShape([None, 4, 8, 8])


def test_the_signature() -> None:
    signatures = ax.load_pnnx(SMALL).signatures
    assert list(signatures) == ["serving_default"]
    signature = signatures["serving_default"]
    assert signature.inputs == {"pnnx_input_0": TensorInfo("pnnx_input_0:0", ax.float32, TensorShape([None, 3, 8, 8]))}
    assert signature.outputs == {"output_0": TensorInfo("pnnx_output_0:0", ax.float32, TensorShape([None, 10]))}


def test_a_tuple_is_several_outputs() -> None:
    outputs = ax.load_pnnx(GOLDEN / "attention.pnnx.param").signatures["serving_default"].outputs
    assert {key: info.name for key, info in outputs.items()} == {
        "output_0": "pnnx_output_0:0",
        "output_1": "pnnx_output_0:1",
    }
    assert [info.shape for info in outputs.values()] == [TensorShape([2, 5, 8]), TensorShape([2, 4, 5, 2])]


@pytest.mark.allow_blocking
async def test_a_graph_def_round_trip_keeps_the_model(tmp_path: Path) -> None:
    model = ax.load_pnnx(SMALL)
    with np.load(GOLDEN / "small.npz") as arrays:
        x, y = arrays["x0"], arrays["y0"]
    ax.save_graph_def(model.graph_def, tmp_path / "model.json")
    with ax.Graph() as graph:
        ax.import_graph_def(ax.load_graph_def(tmp_path / "model.json"))
    async with ax.Session(graph) as session:
        np.testing.assert_allclose(await session.run("pnnx_output_0:0", {"pnnx_input_0:0": x}), y, rtol=1e-5)


@pytest.mark.allow_blocking
async def test_inputs_may_be_tensors_of_the_graph() -> None:
    with np.load(GOLDEN / "unet.npz") as arrays:
        x, y = arrays["x0"], arrays["y0"]
    with ax.Graph() as graph:
        image = ax.placeholder(ax.uint8, [None, 16, 16, 3], name="image")
        scaled = ax.transpose(ax.cast(image, ax.float32) / 255.0, [0, 3, 1, 2])
        (found, node) = ax.import_pnnx(
            GOLDEN / "unet.pnnx.param",
            name="net",
            input_map={"pnnx_input_0": scaled},
            return_elements=["pnnx_output_0:0", "head"],
        ) or (None, None)
    assert node is graph.operation("net/head")
    assert graph.find_operation("net/pnnx_input_0") is None
    pixels = np.round(x * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    async with ax.Session(graph) as session:
        result = await session.run(found, {image: pixels})
    np.testing.assert_allclose(result, y, atol=0.02)  # pixels are rounded


def test_an_input_that_is_none() -> None:
    with ax.Graph(), pytest.raises(ax.errors.NotFoundError, match=r"has no input 'conv'.*\n.*pnnx_input_0"):
        ax.import_pnnx(SMALL, input_map={"conv": ax.constant(1.0)})


def test_all_operators_that_are_not_known_are_listed(tmp_path: Path) -> None:
    path = param_file(
        tmp_path,
        "aten::zero first 1 1 0 1",
        "nn.ReLU act 1 1 1 2",
        "my.Layer mine 1 1 2 3",
        "aten::zero second 1 1 3 4",
    )
    with pytest.raises(ax.errors.NotFoundError, match=re.escape("aten::zero (first, second); my.Layer (mine)")):
        ax.load_pnnx(path)


def test_a_param_file_of_ncnn_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.ncnn.param"
    path.write_text("7767517\n2 2\nInput in0 0 1 in0\nReLU relu_0 1 1 in0 out0\n")
    with pytest.raises(ax.errors.NotFoundError, match=r"(?s)Input \(in0\).*load the .pnnx.param file"):
        ax.load_pnnx(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pnnx.Expression sum 1 1 0 1 expr=add(@0,", "expression 'add(@0,', position 7: 'add' at 0 has no end"),
        ("pnnx.Expression sum 1 1 0 1", "there is no parameter 'expr'"),
        ("pnnx.Expression sum 1 1 0 1 expr=exec(@0)", "there is no value or function 'exec('"),
        ("nn.Conv2d sum 1 1 0 1 kernel_size=(3,3)", "there is no attribute 'weight'"),
        ("torch.flatten sum 1 1 0 1 start_dim=one", "parameter 'start_dim' is 'one', not an integer"),
        ("nn.MaxPool2d sum 1 1 0 1 kernel_size=(3,3,3)", "parameter 'kernel_size' is (3, 3, 3), not 2 integers"),
        ("F.pad sum 1 1 0 1 pad=(1,2,3)", "borders come in pairs"),
        ("Tensor.to sum 1 1 0 1 dtype=torch.code", "parameter 'dtype' is 'code'"),
    ],
)
def test_params_that_are_wrong_fail_at_load_with_the_operator(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=re.escape(message)) as caught:
        ax.load_pnnx(param_file(tmp_path, line))
    assert caught.value.node == "sum"


@pytest.mark.allow_blocking
async def test_shapes_that_do_not_fit_fail_in_the_step(tmp_path: Path) -> None:
    path = param_file(
        tmp_path,
        "Tensor.reshape bad 1 1 0 1 shape=(5,-1)",
        "Tensor.repeat much 1 1 0 2 sizes=(99999999,99999999)",
    )
    with ax.Graph() as graph:
        ax.import_pnnx(path)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"shape \[1, 2\] cannot have shape \[5, -1\]"):
            await session.run("bad:0", {"x:0": np.ones((1, 2), np.float32)})
        with pytest.raises(ax.errors.ResourceExhaustedError, match="OOM"):
            await session.run("much:0", {"x:0": np.ones((1, 2), np.float32)})


def test_names_that_nodes_cannot_have() -> None:
    taken: set[str] = set()
    for name, expected in [("conv", "conv"), ("_conv", "._conv"), ("a b", "a_b"), ("a:b", "a_b_1"), ("é", "._")]:
        found = node_name(name, taken)
        assert found == expected
        taken.add(found)


def test_a_graph_that_lies_about_the_number_of_shapes() -> None:
    shapes = [TensorShape([1]), TensorShape([1])]
    attrs = {"Tout": [ax.float32], "output_shapes": shapes}
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="has 2 shapes for 1 outputs"):
        ax.create_op("Pnnx>nn.ReLU", [[ax.constant([1.0])]], attrs=attrs)


# Batches.


def shapes(model: Any) -> list[Any]:
    """The shapes of inputs and outputs."""
    signature = model.signatures["serving_default"]
    return [info.shape for info in (*signature.inputs.values(), *signature.outputs.values())]


@pytest.mark.parametrize(
    ("lines", "is_free"),
    [
        (["nn.ReLU a 1 1 0 1 #1=(1,2)f32"], True),
        (["torch.flatten a 1 1 0 1 start_dim=0 end_dim=-1 #1=(2)f32"], False),
        (["torch.transpose a 1 1 0 1 dim0=0 dim1=-1 #1=(2,1)f32"], False),
        (["nn.Softmax a 1 1 0 1 dim=-1 #1=(1,2)f32"], True),
        (["nn.Softmax a 1 1 0 1 dim=-2 #1=(1,2)f32"], False),
        (["Tensor.reshape a 1 1 0 1 shape=(1,1,2) #1=(1,1,2)f32"], True),
        (["Tensor.reshape a 1 1 0 1 shape=(2,1) #1=(2,1)f32"], False),
        (["pnnx.Expression a 1 1 0 1 expr=add(@0,size(@0,0)) #1=(1,2)f32"], False),
        (["torch.roll a 1 1 0 1 dims=(1) shifts=(1) #1=(1,2)f32"], True),
        (["nn.ReLU a 1 1 0 1"], False),
    ],
)
def test_a_traced_batch_is_free_where_rows_do_not_meet(tmp_path: Path, lines: list[str], is_free: bool) -> None:
    given, _ = shapes(ax.load_pnnx(param_file(tmp_path, *lines, "pnnx.Output y 1 0 1")))
    assert given == TensorShape([None if is_free else 1, 2])


def test_a_row_that_the_model_holds_keeps_the_batch(tmp_path: Path) -> None:
    path = param_file(
        tmp_path,
        "pnnx.Expression token 0 1 1 expr=1 #1=(1,2)f32",
        "torch.cat both 2 1 0 1 2 dim=1 #0=(1,2)f32 #1=(1,2)f32 #2=(1,4)f32",
        "pnnx.Output y 1 0 2 #2=(1,4)f32",
    )
    assert shapes(ax.load_pnnx(path)) == [TensorShape([1, 2]), TensorShape([1, 4])]
