"""PNNX files: what the converter wrote, and files that are cut, lie or are none."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, NotFoundError, OpError
from asyncexec.importers.pnnx.param_file import read_pnnx
from asyncexec.importers.pnnx.param_values import parse_param, parse_typed_shape
from asyncexec.importers.pnnx.records import PnnxOperand

GOLDEN = Path(__file__).parents[1] / "golden" / "pnnx"
RELU = "nn.ReLU act 1 1 0 1 #0=(1,2)f32 #1=(1,2)f32"


def param_file(folder: Path, *lines: str, head: str | None = None) -> Path:
    """A param file of an input and operators, with counts that fit unless *head* is given."""
    every = ["pnnx.Input x 0 1 0 #0=(1,2)f32", *lines]
    operands = sum(int(line.split()[3]) for line in every if len(line.split()) > 3 and line.split()[3].isdecimal())
    path = folder / "model.pnnx.param"
    path.write_text("\n".join([head or f"7767517\n{len(every)} {operands}", *every]) + "\n")
    return path


def copied(folder: Path, name: str = "small") -> Path:
    """The files of a golden model in *folder*; gives the param file."""
    for suffix in ("param", "bin"):
        shutil.copy(GOLDEN / f"{name}.pnnx.{suffix}", folder)
    return folder / f"{name}.pnnx.param"


def test_operators_with_operands_params_and_attributes() -> None:
    operators = read_pnnx(GOLDEN / "small.pnnx.param")
    assert list(operators) == "pnnx_input_0 conv act pnnx_expr_1 pool torch.flatten_0 fc pnnx_output_0".split()
    conv = operators["conv"]
    assert conv.type == "nn.Conv2d"
    assert conv.inputs == (PnnxOperand("0", types.float32, (1, 3, 8, 8)),)
    assert conv.outputs == (PnnxOperand("1", types.float32, (1, 4, 8, 8)),)
    assert conv.consumers == ("act",)
    assert conv.params["kernel_size"] == (3, 3)
    assert conv.params["bias"] is True
    assert conv.params["padding_mode"] == "zeros"
    assert conv.attributes["weight"].shape == (4, 3, 3, 3)
    assert conv.attributes["weight"].dtype == np.float32
    assert operators["torch.flatten_0"].input_names == ("input",)
    assert operators["pnnx_output_0"].consumers == ()


def test_attributes_are_the_bytes_in_the_zip() -> None:
    bias = read_pnnx(GOLDEN / "small.pnnx.param")["fc"].attributes["bias"]
    with zipfile.ZipFile(GOLDEN / "small.pnnx.bin") as archive:
        assert bias.tobytes() == archive.read("fc.bias")


def test_one_operand_may_be_several_inputs() -> None:
    operators = read_pnnx(GOLDEN / "attention.pnnx.param").values()
    (attention,) = [each for each in operators if each.type == "F.scaled_dot_product_attention"]
    assert attention.input_names == ("query", "key", "value")


def test_consumers_come_in_the_order_of_outputs_and_lines(tmp_path: Path) -> None:
    path = param_file(
        tmp_path,
        "torch.chunk two 1 2 0 1 2 chunks=2 dim=0",
        "nn.ReLU of_second 1 1 2 3",
        "nn.ReLU of_first 1 1 1 4",
        "pnnx.Expression both 2 1 1 2 5 expr=add(@0,@1)",
    )
    assert read_pnnx(path)["two"].consumers == ("of_first", "both", "of_second")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("True", True),
        ("-3", -3),
        ("1.500000e+00", 1.5),
        ("-inf", -np.inf),
        ("zeros", "zeros"),
        ("torch.float", "torch.float"),
        ("()", ()),
        ("(1,-1)", (1, -1)),
        ("[1.0,2]", (1.0, 2)),
        ("(None,7)", (None, 7)),
        ("ijk,ikl->ijl", "ijk,ikl->ijl"),
        ("9" * 30, float("9" * 30)),
    ],
)
def test_params(text: str, value: object) -> None:
    assert parse_param(text) == value


def test_shapes() -> None:
    assert parse_typed_shape("(1,?,%h)f16") == ((1, None, None), types.float16)
    assert parse_typed_shape("()i64") == ((), types.int64)
    for bad in ("(1,2)", "1,2f32", "(1,-2)f32", "(a)f32", "(1)f33", f"({'9' * 30})f32"):
        with pytest.raises(ValueError, match=r"no shape|no dimension"):
            parse_typed_shape(bad)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("7767518\n1 1", "no .pnnx.param file"),
        ("7767517\n1", "line 2: expected the numbers"),
        ("7767517\n-1 1", "line 2: expected the numbers"),
        ("7767517\n99999999999999999999 1", "line 2: expected the numbers"),
        ("7767517\n3 2", "2 of 3 operators"),
        ("7767517\n2 5", "2 operands, and says it has 5"),
    ],
)
def test_heads_that_lie(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(DataLossError, match=message):
        read_pnnx(param_file(tmp_path, RELU, head=head))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nn.ReLU act", "line 4: expected type, name and the numbers"),
        ("nn.ReLU act 1 -1 0 1", "line 4: expected type, name and the numbers"),
        ("nn.ReLU act 9 1 0 1", "tells of 9 inputs and 1 outputs, and names fewer"),
        ("nn.ReLU act 1 1 7 1", "takes operand '7', which no operator before it gives"),
        ("nn.ReLU act 1 1 1 1", "takes operand '1', which no operator before it gives"),
        ("nn.ReLU act 1 1 0 0", "gives operand '0', as 'x' does"),
        ("nn.ReLU x 1 1 0 1", "there is an operator of that name before"),
        ("nn.ReLU act 1 1 0 1 #0=(1,2", "no shape with a type"),
        ("nn.ReLU act 1 1 0 1 dim", "'dim' is no key=value"),
        ("nn.ReLU act 1 1 0 1 @=3", "is no key=value"),
        ("nn.ReLU act 1 1 0 1 @w=(?)f32", "needs a type and whole dimensions"),
    ],
)
def test_lines_that_are_wrong(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        read_pnnx(param_file(tmp_path, line, head="7767517\n2 2"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        read_pnnx(tmp_path / "missing.pnnx.param")
    path = copied(tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(NotFoundError, match=r"small.pnnx.bin.*the attributes of a PNNX model"):
        read_pnnx(path)


def test_the_bin_file_may_lie_elsewhere(tmp_path: Path) -> None:
    path = copied(tmp_path)
    moved = path.with_suffix(".bin").rename(tmp_path / "weights")
    assert read_pnnx(path, moved)["fc"].attributes["bias"].shape == (10,)


def with_members(path: Path, **changed: bytes | None) -> None:
    """Write the bin file again, stored, with other bytes for some members, or without them."""
    source = path.with_suffix(".bin")
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(source, "w") as archive:
        for name, data in {**members, **changed}.items():
            if data is not None:
                archive.writestr(name, data)


def test_an_attribute_that_is_missing(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with_members(path, **{"fc.bias": None})
    with pytest.raises(NotFoundError, match=r"line 9: operator 'fc': .* has no attribute 'fc.bias'"):
        read_pnnx(path)


@pytest.mark.parametrize("size", [0, 39, 41])
def test_an_attribute_of_another_size(tmp_path: Path, size: int) -> None:
    path = copied(tmp_path)
    with_members(path, **{"fc.bias": bytes(size)})
    with pytest.raises(DataLossError, match=rf"'fc.bias' .* has {size} bytes, but \[10\] of float32 has 40"):
        read_pnnx(path)


def test_a_shape_that_is_beyond_the_file(tmp_path: Path) -> None:
    path = copied(tmp_path)
    path.write_text(path.read_text().replace("@bias=(10)f32", "@bias=(999999999999,999999999999)f32"))
    with pytest.raises(DataLossError, match=r"'fc.bias' .* has 40 bytes"):
        read_pnnx(path)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    with zipfile.ZipFile(path.with_suffix(".bin"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conv.bias", bytes(16))
    with pytest.raises(DataLossError, match="is compressed"):
        read_pnnx(path)


def test_bytes_that_have_changed(tmp_path: Path) -> None:
    path = copied(tmp_path)
    data = path.with_suffix(".bin").read_bytes()
    with zipfile.ZipFile(path.with_suffix(".bin")) as archive:
        bias = archive.read("fc.bias")
    path.with_suffix(".bin").write_bytes(data.replace(bias, bytes(40)))
    with pytest.raises(DataLossError, match="no zip of attributes"):
        read_pnnx(path)


def test_members_that_share_bytes_cannot_have_more_than_the_file(tmp_path: Path) -> None:
    lines = [f"pnnx.Attribute a{number} 0 1 {number + 1} @data=(1000)u8" for number in range(3)]
    path = param_file(tmp_path, *lines)
    with zipfile.ZipFile(path.with_suffix(".bin"), "w") as archive:
        archive.writestr("a0.data", bytes(1000))
        first = archive.infolist()[0]
        for number in (1, 2):
            other = zipfile.ZipInfo(f"a{number}.data")
            other.header_offset, other.CRC = first.header_offset, first.CRC
            other.file_size = other.compress_size = 1000
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
    with pytest.raises(DataLossError):
        read_pnnx(path)


def test_any_cut_is_a_typed_error(tmp_path: Path) -> None:
    path = copied(tmp_path)
    param, weights = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    for size in range(0, len(weights), 7):
        path.with_suffix(".bin").write_bytes(weights[:size])
        with pytest.raises(DataLossError):
            read_pnnx(path)
    path.with_suffix(".bin").write_bytes(weights)
    for size in range(0, len(param.rstrip()), 7):
        path.write_bytes(param[:size])
        try:
            read_pnnx(path)
        except OpError:
            continue
        assert param[size:].startswith(b")f32") is False  # only parameters of the last line may be lost unseen
        assert size > len(param) - 20
