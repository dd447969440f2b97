"""Kernels that say they are elementwise give for a part of their inputs what they give for the whole, to the bit."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from asyncexec.framework import types
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernels
from asyncexec.framework.op_def import REQUIRED, OpDef
from asyncexec.framework.op_registry import registry as ops
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE
from asyncexec.framework.types import DType

USUAL: Final = [types.float32, types.float64, types.int32, types.bool]
OTHERS: Final = [
    *(types.float16, types.bfloat16, types.int8, types.int16, types.int64),
    *(types.uint8, types.uint16, types.uint32, types.uint64),
]
TILE_BYTES: Final = 2**17  # numpy has other ways from 2**18 bytes on: the whole takes them
NUM_TILES: Final = 2.3


def elementwise_ops() -> list[str]:
    found = []
    for name in ops:
        ops.lookup(name)
        if name != "Conj" and any(each.is_elementwise for each in kernels._kernels.get((name, "CPU"), ())):
            found.append(name)
    return found  # Conj is of complex numbers alone, which do not go by tiles


def variants(op_def: OpDef, dtypes: Sequence[DType]) -> Iterator[dict[str, Any]]:
    """Attrs of an op for each of *dtypes*, and for each pair where it converts."""
    attrs: dict[str, Any] = {"N": 3}
    attrs.update({attr.name: attr.default for attr in op_def.attrs.values() if attr.default is not REQUIRED})
    names = [attr.name for attr in op_def.attrs.values() if attr.kind == "type"]
    if names == ["SrcT", "DstT"]:
        for source, to in itertools.product(dtypes, [*USUAL, *dtypes]):
            yield {**attrs, "SrcT": source, "DstT": to}
            yield {**attrs, "SrcT": to, "DstT": source, "Truncate": True}
    elif not names:
        yield attrs
    else:
        allowed = op_def.attrs["T"].allowed
        yield from ({**attrs, "T": dtype} for dtype in dtypes if allowed is None or dtype in allowed)


def arrays(dtype: DType, size: int, rng: np.random.Generator) -> Iterator[np.ndarray[Any, Any]]:
    """Any bits; numbers as they are met; what is special."""
    np_dtype = dtype.as_numpy_dtype
    with np.errstate(all="ignore"):
        if dtype is types.bool:
            yield rng.integers(0, 2, size).astype(bool)
            return
        yield rng.integers(0, 256, size * np_dtype.itemsize, dtype=np.uint8).view(np_dtype)
        if dtype.is_integer:
            yield rng.integers(1, 5, size).astype(np_dtype)
            return
        yield (rng.standard_normal(size) * rng.choice([1e-3, 1.0, 30.0, 1e5], size)).astype(np_dtype)
        special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 0.5, 1e-40, 3e38]
        yield rng.choice(special, size).astype(np_dtype)


def kernels_of(op: str, dtypes: Sequence[DType]) -> Iterator[tuple[Mapping[str, Any], list[DType], Any]]:
    op_def = ops.lookup(op).op_def
    for attrs in variants(op_def, dtypes):
        registration = kernels.find(op, "CPU", attrs)
        if registration is None or not registration.is_elementwise:
            continue
        inputs = [dtype for arg in op_def.inputs for dtype in arg.dtypes(attrs)]
        outputs = tuple(dtype for arg in op_def.outputs for dtype in arg.dtypes(attrs))
        construction = OpKernelConstruction(
            "node", op_def, attrs, tuple(inputs), outputs, output_shapes=(UNKNOWN_SHAPE,)
        )
        yield attrs, inputs, registration.factory(construction)


def part(value: Any, start: int, length: int) -> Any:
    return value[start : start + length] if isinstance(value, np.ndarray) else value


def test_there_are_such_ops() -> None:
    assert {"AddV2", "Exp", "Relu", "Cast", "SelectV2", "Less", "LogicalAnd", "FloorDiv"} <= set(elementwise_ops())


@pytest.mark.parametrize("op", elementwise_ops())
def test_a_part_is_a_part_of_the_whole(op: str) -> None:
    assert num_compared(op, USUAL)


@pytest.mark.deep
@pytest.mark.parametrize("op", elementwise_ops())
def test_a_part_is_a_part_of_the_whole_in_other_dtypes(op: str) -> None:
    print(f"{op}: {num_compared(op, OTHERS)} calls compared")


def num_compared(op: str, among: Sequence[DType]) -> int:
    """How many calls have been compared."""
    rng = np.random.default_rng(zlib.crc32(op.encode()))
    compared = 0
    for attrs, dtypes, kernel in kernels_of(op, among):
        length = TILE_BYTES // max(dtype.as_numpy_dtype.itemsize for dtype in dtypes) // (1 if op != "Cast" else 8)
        size = int(NUM_TILES * length)
        for inputs in zip(*[arrays(dtype, size, rng) for dtype in dtypes], strict=False):
            # Each input in turn is a scalar; at last, none is.
            for scalar in range(len(inputs), -1, -1) if len(inputs) > 1 else [1]:
                values = [value[7] if slot == scalar else value for slot, value in enumerate(inputs)]
                with np.errstate(all="ignore"):
                    try:
                        whole = kernel(*values)
                    except OpError:  # a division by zero, say: the whole is for the nodes one by one
                        continue
                    parts = [kernel(*[part(value, at, length) for value in values]) for at in range(0, size, length)]
                if whole.shape != (size,):
                    continue  # Select with a scalar hands on an input
                assert b"".join(each.tobytes() for each in parts) == whole.tobytes(), (attrs, scalar)
                assert {each.dtype for each in parts} == {whole.dtype}
                compared += 1
    return compared
