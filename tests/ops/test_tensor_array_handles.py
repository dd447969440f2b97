"""TensorArrays by references and strings do what those by resources do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.state.tensor_array_state import TensorArray
from tests.ops.kernel_bench import KernelBench

FLOW = np.float32(0)


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


@pytest.mark.parametrize("version", ["", "V2"])
def test_what_is_written_is_read(bench: KernelBench, version: str) -> None:
    def run(op: str, *inputs: Any, **attrs: Any) -> Any:
        return bench.run(f"TensorArray{op}{version}", *inputs, **attrs)

    array = bench.run(f"TensorArray{version}", np.int32(3), dtype="float32", clear_after_read=False)
    run("Write", array, np.int32(1), np.float32(5), FLOW, T="float32")
    run("Scatter", array, np.array([0, 2], np.int32), np.array([4, 6], np.float32), FLOW, T="float32")
    assert run("Read", array, np.int32(1), FLOW, dtype="float32") == 5
    assert run("Gather", array, np.array([2, 0], np.int32), FLOW, dtype="float32").tolist() == [6, 4]
    assert run("Size", array, FLOW) == 3
    gradient = run("Grad", array, FLOW, source=b"gradients")
    run("Write", gradient, np.int32(1), np.float32(1), FLOW, T="float32")
    run("Write", gradient, np.int32(1), np.float32(2), FLOW, T="float32")
    assert run("Read", gradient, np.int32(1), FLOW, dtype="float32") == 3
    run("Close", array)
    with pytest.raises(InvalidArgumentError, match="closed"):
        run("Read", array, np.int32(1), FLOW, dtype="float32")


@pytest.mark.parametrize("version", ["", "V2"])
def test_parts_come_together(bench: KernelBench, version: str) -> None:
    array = bench.run(f"TensorArray{version}", np.int32(2), dtype="int32")
    values, lengths = np.arange(5, dtype=np.int32), np.array([3, 2])
    bench.run(f"TensorArraySplit{version}", array, values, lengths, FLOW, T="int32")
    joined, found = bench.run(f"TensorArrayConcat{version}", array, FLOW, dtype="int32")
    assert (joined.tolist(), found.tolist()) == ([0, 1, 2, 3, 4], [3, 2])


def test_pack_and_unpack_take_all_elements(bench: KernelBench) -> None:
    array = bench.run("TensorArray", np.int32(2), dtype="float32")
    rows = np.array([[1, 2], [3, 4]], np.float32)
    bench.run("TensorArrayUnpack", array, rows, FLOW, T="float32")
    np.testing.assert_array_equal(bench.run("TensorArrayPack", array, FLOW, dtype="float32"), rows)
    with pytest.raises(InvalidArgumentError, match="vector"):
        bench.run("TensorArrayUnpack", array, np.float32(1), FLOW, T="float32")


def test_a_string_is_no_handle(bench: KernelBench) -> None:
    with pytest.raises(InvalidArgumentError, match="wrong type"):
        bench.run("TensorArrayReadV2", b"handle", np.int32(0), FLOW, dtype="float32")
    with pytest.raises(InvalidArgumentError, match="wrong type"):
        bench.run("TensorArrayGrad", b"handle", FLOW, source=b"gradients")


@pytest.mark.parametrize("version", ["", "V2"])
async def test_handles_travel_along_edges(version: str) -> None:
    with ax.Graph() as graph:
        handle = ax.create_op(f"TensorArray{version}", [2], {"dtype": ax.float32})
        flow = ax.create_op(f"TensorArrayWrite{version}", [handle, 0, np.float32(7), np.float32(0)], {})
        value = ax.create_op(f"TensorArrayRead{version}", [handle, 0, flow], {"dtype": ax.float32})
    async with ax.Session(graph) as session:
        assert await session.run(value) == 7


async def test_a_gradient_takes_the_handle_of_the_first_version_and_handles_are_fetched() -> None:
    with ax.Graph() as graph:
        handle = ax.create_op("TensorArray", [2], {"dtype": ax.float32})
        gradient = ax.create_op("TensorArrayGrad", [handle, np.float32(0)], {"source": "gradients"})
        size = ax.create_op("TensorArraySize", [gradient, np.float32(0)], {})
    async with ax.Session(graph) as session:
        assert await session.run(size) == 2
        for fetched in await session.run([handle, gradient]):
            assert isinstance(fetched, TensorArray)
