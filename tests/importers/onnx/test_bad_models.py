"""What is no good ONNX model is refused when it is loaded, with an error that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import asyncexec as ax
from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.framework.kernel_warning import KernelWarning
from asyncexec.importers.load_onnx import load_onnx
from tests.importers.onnx.models import of_nodes, parsed

pytestmark = pytest.mark.filterwarnings("ignore:these ops have no kernel")


def with_weights(tensor: TensorProto) -> ModelProto:
    return of_nodes([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], [tensor])


def floats(dims: list[int], **fields: Any) -> TensorProto:
    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, **fields)


def node(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> ModelProto:
    return of_nodes([helper.make_node(op, inputs, outputs, name="bad", **attrs)], ["x"], ["y"])


RECURSIVE = """
t (float[n] x) => (float[n] y) { y = my.F(x) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> F (a) => (b) { b = my.G(a) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> G (a) => (b) { b = my.F(a) }
"""


def bomb(depth: int) -> ModelProto:
    """Functions each of which calls the next twice."""
    header = '<domain: "my", opset_import: ["" : 18, "my" : 1]>'
    functions = [f"{header} F{i} (a) => (c) {{ b = my.F{i + 1}(a)\n c = my.F{i + 1}(b) }}" for i in range(depth)]
    functions.append(f"{header} F{depth} (a) => (b) {{ b = Neg(a) }}")
    text = "t (float[n] x) => (float[n] y) { y = my.F0(x) }\n" + "\n".join(functions)
    return parsed(text, head=', "my" : 1')


MODELS: dict[str, tuple[Callable[[], ModelProto], type[OpError], str]] = {
    "recursive functions": (lambda: parsed(RECURSIVE, head=', "my" : 1'), InvalidArgumentError, "calls itself"),
    "functions that multiply": (lambda: bomb(40), ResourceExhaustedError, "nodes"),
    "a newer operator set": (
        lambda: of_nodes([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"], opset=999),
        InvalidArgumentError,
        "operator set 999",
    ),
    "a value that nobody gives": (lambda: node("Neg", ["z"], ["y"]), InvalidArgumentError, "'bad' takes 'z'"),
    "a value given twice": (
        lambda: of_nodes([helper.make_node("Neg", ["x"], ["y"])] * 2, ["x"], ["y"]),
        InvalidArgumentError,
        "'y' is given by two nodes",
    ),
    "nodes in the wrong order": (
        lambda: of_nodes([helper.make_node("Neg", ["h"], ["y"]), helper.make_node("Neg", ["x"], ["h"])], ["x"], ["y"]),
        InvalidArgumentError,
        "takes 'h', which no",
    ),
    "too many inputs": (
        lambda: node("Neg", ["x", "x"], ["y"]),
        InvalidArgumentError,
        "'bad' .Neg. has 2 inputs, not 1",
    ),
    "an attribute that there is not": (
        lambda: node("Neg", ["x"], ["y"], axis=1),
        InvalidArgumentError,
        "has an attribute 'axis'",
    ),
    "an attribute of another type": (
        lambda: node("Softmax", ["x"], ["y"], axis="last"),
        InvalidArgumentError,
        "'axis' of another type than INT",
    ),
    "no attribute": (lambda: node("Concat", ["x"], ["y"]), InvalidArgumentError, "lacks attribute 'axis'"),
    "an output that nobody gives": (
        lambda: node("Neg", ["x"], ["z"]),
        InvalidArgumentError,
        "list of outputs takes 'y'",
    ),
    "a negative size": (lambda: with_weights(floats([-1])), InvalidArgumentError, "'w'.*negative size"),
    "sizes that overflow": (lambda: with_weights(floats([2**40] * 3)), InvalidArgumentError, "more than"),
    "too few bytes": (lambda: with_weights(floats([3], raw_data=b"1234")), DataLossError, "takes 12 bytes.* are 4"),
    "a huge size and no bytes": (lambda: with_weights(floats([2**40])), InvalidArgumentError, "has 0 values"),
    "too many values": (lambda: with_weights(floats([1], float_data=[1, 2])), InvalidArgumentError, "has 2 values"),
    "an element type that there is not": (
        lambda: with_weights(TensorProto(name="w", data_type=999, dims=[1], raw_data=b"1")),
        InvalidArgumentError,
        "element type 999",
    ),
    "a huge sparse tensor": (lambda: sparse([2**20, 2**20]), ResourceExhaustedError, "too large to be made dense"),
    "sparse indices out of range": (lambda: sparse([2, 2], index=9), InvalidArgumentError, "do not fit"),
    "data in files": (
        lambda: with_weights(external(location="w.bin")),
        InvalidArgumentError,
        "not read from a folder",
    ),
}


def sparse(dims: list[int], index: int = 0) -> ModelProto:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.array([index]), "i")
    model = of_nodes([helper.make_node("Identity", ["w"], ["y"])], [], ["y"])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dims))
    return model


def external(**facts: str) -> TensorProto:
    tensor = floats([2], data_location=TensorProto.EXTERNAL)
    for key, value in facts.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize("case", MODELS)
def test_bad_models(case: str) -> None:
    make, error, message = MODELS[case]
    with ax.Graph() as graph, pytest.raises(error, match=message):
        ax.import_onnx(make())
    assert list(graph) == []


FILES: dict[str, tuple[dict[str, str], type[OpError]]] = {
    "above": ({"location": "../w.bin"}, PermissionDeniedError),
    "above by a detour": ({"location": "a/../../w.bin"}, PermissionDeniedError),
    "absolute": ({"location": "/etc/hostname"}, PermissionDeniedError),
    "a link to outside": ({"location": "link.bin"}, PermissionDeniedError),
    "not there": ({"location": "other.bin"}, NotFoundError),
    "no name": ({}, PermissionDeniedError),
    "a folder": ({"location": "folder"}, InvalidArgumentError),
    "too short": ({"location": "w.bin", "offset": "4"}, DataLossError),
    "negative": ({"location": "w.bin", "offset": "-4"}, InvalidArgumentError),
    "of another length": ({"location": "w.bin", "length": "4"}, InvalidArgumentError),
    "a length that is no number": ({"location": "w.bin", "length": "8.0"}, InvalidArgumentError),
    "a name with NUL": ({"location": "w\0.bin"}, InvalidArgumentError),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_external_data(case: str, tmp_path: Path) -> None:
    facts, error = FILES[case]
    (tmp_path / "w.bin").write_bytes(b"\0" * 8)
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "w.bin").write_bytes(b"\0" * 8)
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "m.onnx").write_bytes(with_weights(external(**facts)).SerializeToString())
    with pytest.raises(error, match="initializer 'w'"):
        load_onnx(folder / "m.onnx")


WHOLE = of_nodes([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"]).SerializeToString()


@pytest.mark.parametrize("data", [b"", b"no model", WHOLE[:-3]])
def test_files_that_are_no_models(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(DataLossError, match=r"m\.onnx' is not an ONNX model"):
        load_onnx(path)


def test_a_pointer_of_git_lfs_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataLossError, match="Git LFS pointer"):
        load_onnx(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="expected an ONNX model there"):
        load_onnx(tmp_path / "m.onnx")


def test_neither_path_nor_model() -> None:
    with pytest.raises(InvalidTypeError, match="not int"):
        load_onnx(3)


def test_ops_that_there_are_not_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("FusedConv", ["x"], ["a"], name="conv", domain="com.microsoft"),
        helper.make_node("Nog", ["a"], ["b"], name="first"),
        helper.make_node("Nog", ["b"], ["c"], name="second"),
        helper.make_node("Upsample", ["c", "c"], ["y"], name="up"),
    ]
    model = of_nodes(nodes, ["x"], ["y"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnimplementedError) as caught:
        load_onnx(model)
    for part in (
        "com.microsoft:FusedConv of operator set 1 (node 'conv')",
        "ai.onnx:Nog of operator set 18 (node 'first', 'second')",
        "ai.onnx:Upsample of operator set 18 (node 'up')",
    ):
        assert part in str(caught.value)


def test_a_domain_that_is_not_imported() -> None:
    with pytest.raises(UnimplementedError, match="my:F of operator set not imported"):
        load_onnx(of_nodes([helper.make_node("F", ["x"], ["y"], domain="my")], ["x"], ["y"]))


def test_a_warning_names_what_the_reference_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.importers.onnx_support.find_onnx_kernel", lambda *op: None)
    model = of_nodes([helper.make_node("Neg", ["x"], ["y"], name="slow")], ["x"], ["y"])
    with pytest.warns(KernelWarning, match=r"onnx\.reference, which is slow: ai\.onnx:Neg.*'slow'"):
        load_onnx(model)


def test_bytes_of_a_real_model_cut_anywhere_are_refused_or_whole() -> None:
    model = with_weights(numpy_helper.from_array(np.arange(8, dtype=np.float32), "w"))
    data = model.SerializeToString()
    onnx.checker.check_model(model)
    for end in range(len(data)):
        try:
            load_onnx(data[:end])
        except OpError:
            continue
