"""Models as one graph: variables become constants, whatever they pass through, and what has a state is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.framework.errors import FailedPreconditionError, NotFoundError, UnimplementedError
from asyncexec.importers.saved_model import SignatureDef, TensorInfo
from asyncexec.models.freeze import frozen
from tests.models.test_load_model import GOLDEN, expected, of
from tests.optimization.recursive_functions import noinline

STATE = {"VarHandleOp", "Variable", "VariableV2", "ReadVariableOp", "ResourceGather", "RestoreV2"}


@pytest.mark.parametrize(("name", "signature"), [("keras", "serving_default"), ("v1_simple", "serving_default")])
async def test_a_frozen_model_gives_what_tensorflow_gives(name: str, signature: str, tmp_path: Path) -> None:
    values, path = expected(), tmp_path / "frozen.pb"
    async with ax.load_model(GOLDEN / name) as model:
        graph_def = await model.freeze(signature)
    await asyncio.to_thread(ax.save_graph_def, graph_def, path)
    assert not STATE & {node.op for node in graph_def.node}
    async with ax.load_model(path) as model:
        found = await model.signatures["serving_default"](**of(values, f"{name}/{signature}/in/"))
    wanted = of(values, f"{name}/{signature}/out/")
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)


def signature_of(inputs: dict[str, ax.Tensor], outputs: dict[str, ax.Tensor], **defaults: Any) -> SignatureDef:
    def infos(tensors: dict[str, ax.Tensor]) -> dict[str, TensorInfo]:
        return {key: TensorInfo(each.name, each.dtype, each.shape) for key, each in tensors.items()}

    return SignatureDef(infos(inputs), infos(outputs), "", defaults)


async def same_frozen(graph: ax.Graph, signature: SignatureDef, feeds: dict[str, Any]) -> ax.GraphDef:
    """The frozen graph; it gives what *graph* does."""
    with graph:
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run([], targets=[initializer])
        names = {key: info.name for key, info in signature.outputs.items()}
        wanted = await session.run(
            names, {signature.inputs[key].name: value for key, value in {**signature.defaults, **feeds}.items()}
        )
        graph_def = frozen(graph, signature, session.values_of)
    again = ax.Graph()
    with again:
        ax.import_graph_def(graph_def)
    async with ax.Session(again) as session:
        found = await session.run(
            {key: f"{key}:0" for key in wanted}, {f"{key}:0": value for key, value in feeds.items()}
        )
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)
    assert not STATE & {node.op for node in graph_def.node}
    return graph_def


async def test_variables_pass_through_loops_branches_and_functions() -> None:
    with ax.Graph() as graph:
        table = ax.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="table")
        scale = ax.Variable(np.float32(0.5), name="scale")
        n = ax.placeholder(ax.int32, [], name="given")

        @ax.function
        def row(i: ax.Tensor) -> ax.Tensor:
            return ax.raw_ops.ResourceGather(resource=table.handle, indices=i, dtype=ax.float32) * scale

        def body(i: ax.Tensor, total: ax.Tensor) -> tuple[ax.Tensor, ax.Tensor]:
            more = ax.cond(i > 1, lambda: row(i), lambda: table[i] - scale)
            return i + 1, total + more

        _, total = ax.while_loop(lambda i, total: i < n, body, [0, ax.zeros([3], ax.float32)])
        shape = ax.raw_ops.VariableShape(input=table.handle)
        signature = signature_of({"n": n}, {"total": total, "shape": shape})
    for count in (0, 1, 4):
        await same_frozen(graph, signature, {"n": count})


async def test_a_variable_that_a_call_takes_which_stays_one() -> None:
    with ax.Graph() as graph:
        scale = ax.Variable(np.float32(0.5), name="scale")
        x = ax.placeholder(ax.float32, [], name="given")

        @ax.function
        def scaled(x: ax.Tensor, handle: ax.Tensor) -> ax.Tensor:
            return x * ax.raw_ops.ReadVariableOp(resource=handle, dtype=ax.float32)

        y = scaled(x, scale.handle)
        signature = signature_of({"x": x}, {"y": y})
    graph.functions.update({name: noinline(each) for name, each in graph.functions.items()})
    frozen_def = await same_frozen(graph, signature, {"x": 3.0})
    assert not any("Call" in node.op for node in frozen_def.node)


async def test_names_of_a_signature_may_be_those_of_other_nodes() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="out")
        y = ax.add(x, 1, name="in")
        signature = signature_of({"in": x}, {"out": y, "in_1": ax.negative(y, name="in_1")})
    graph_def = await same_frozen(graph, signature, {"in": 3})
    assert graph_def.node[0].name == "in"
    assert {node.op for node in graph_def.node if node.name in ("out", "in_1")} == {"Identity"}


async def test_ends_that_no_graph_can_call_as_the_signature_does_get_other_names() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="given")
        y = ax.Variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="table")
        row = ax.raw_ops.ResourceGather(resource=y.handle, indices=ax.constant(1), dtype=ax.float32, name="row")
        total = ax.add(row, ax.identity(x, name="row/axis"), name="total")
        signature = signature_of({"x": x}, {"x": total, "the sum:0": total, "_x": x})
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run([], targets=[initializer])
        graph_def = frozen(graph, signature, session.values_of)
    with ax.Graph() as again:
        ax.import_graph_def(graph_def)
    async with ax.Session(again) as session:
        found = await session.run(["x_1:0", "the_sum_0:0", "._x:0"], {"x:0": 2.0})
    np.testing.assert_array_equal(found[0], [4, 5])
    np.testing.assert_array_equal(found[1], [4, 5])
    assert found[2] == 2.0


async def test_an_input_keeps_its_default() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder_with_default(ax.constant(2), [], name="with_default")
        y = ax.placeholder(ax.int32, [], name="plain")
        signature = signature_of({"x": x, "y": y}, {"product": x * y}, y=np.int32(5))
    graph_def = await same_frozen(graph, signature, {})
    assert [node.op for node in graph_def.node if node.name in "xy"] == ["PlaceholderWithDefault"] * 2


async def test_what_has_a_state_is_refused_by_name() -> None:
    async with ax.load_model(GOLDEN / "module") as model:
        with pytest.raises(UnimplementedError, match=r"AssignAddVariableOp' \(AssignAddVariableOp\)"):
            await model.freeze()
        with pytest.raises(UnimplementedError, match=r"'hash_table' \(HashTableV2\), .*\(LookupTableFindV2\)"):
            await model.freeze("ids")
        with pytest.raises(NotFoundError, match="no signature 'none'"):
            await model.freeze("none")


async def test_variables_without_a_value_are_named() -> None:
    with ax.Graph() as graph:
        weight = ax.Variable(1.0, name="weight")
        signature = signature_of({}, {"y": weight + 1.0})
    async with ax.Session(graph) as session:
        with pytest.raises(FailedPreconditionError, match="no value: 'weight'"):
            frozen(graph, signature, session.values_of)


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)], terminal_width=200)


def test_the_command_writes_a_graph(tmp_path: Path) -> None:
    out, text = tmp_path / "keras.pb", tmp_path / "keras.pbtxt"
    result = convert(GOLDEN / "keras", out)
    assert result.exit_code == 0, result.output
    assert "x -> output_0" in result.stdout
    assert convert(out, text).exit_code == 0
    assert ax.load_graph_def(text) == ax.load_graph_def(out)


def test_the_command_writes_variables(tmp_path: Path) -> None:
    out = tmp_path / "keras.safetensors"
    assert convert(GOLDEN / "keras", out).exit_code == 0
    assert out.stat().st_size > 0
    checkpoint = tmp_path / "keras"
    assert convert(GOLDEN / "keras", checkpoint).exit_code == 0
    assert (tmp_path / "keras.index").exists()


def test_the_command_tells_what_cannot_be_written(tmp_path: Path) -> None:
    result = convert(GOLDEN / "module", tmp_path / "out.pb")
    assert (result.exit_code, "AssignAddVariableOp" in result.stderr) == (1, True)
    assert not list(tmp_path.iterdir())
    result = convert(GOLDEN / "keras", tmp_path / "out.pb", "--signature", "none")
    assert (result.exit_code, "no signature 'none'" in result.stderr) == (1, True)
