"""GetSessionHandle, GetSessionTensor, DeleteSessionTensor.  Handles, messages and codes are TensorFlow 2.21's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.ops.state.session_state import SessionState, TensorHandle, kept
from tests.ops.kernel_bench import KernelBench, infer

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


def handle_of(bench: KernelBench, value: Any, *, dtype: str = "float32", op: str = "GetSessionHandle") -> TensorHandle:
    handle: TensorHandle = bench.run(op, value, name="h", T=dtype)
    return handle


def read(bench: KernelBench, handle: Any, dtype: str = "float32") -> Any:
    return bench.run("GetSessionTensor", handle, dtype=dtype)


def test_handles_are_of_name_number_and_device(bench: KernelBench) -> None:
    first, second = handle_of(bench, np.float32(1)), handle_of(bench, np.float32(1))
    assert first.handle == str(first) == f"h;0;{CPU}"
    assert bytes(second) == f"h;1;{CPU}".encode()
    assert isinstance(handle_of(bench, np.float32(1), op="GetSessionHandleV2"), TensorHandle)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float32(2), "float32"),
        (np.arange(3), "int64"),
        (b"text", "string"),
        (np.array([b"a", b"b"], object), "string"),
        (np.True_, "bool"),
    ],
)
def test_what_is_kept_is_had_by_the_text_of_the_handle(bench: KernelBench, value: Any, dtype: str) -> None:
    handle = kept(handle_of(bench, value, dtype=dtype))
    got = read(bench, bytes(handle), dtype)
    assert np.array_equal(got, value)
    assert type(got) is type(value)


def test_nothing_is_kept_before_the_step_is_over(bench: KernelBench) -> None:
    handle = handle_of(bench, np.float32(1))
    with pytest.raises(InvalidArgumentError, match=rf"^The tensor with handle 'h;0;{CPU}' is not in"):
        read(bench, handle)


@pytest.mark.parametrize("handle", [b"", b"no such", b"\xff;1;2"])
def test_a_handle_of_nothing(bench: KernelBench, handle: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="is not in the session store"):
        read(bench, handle)
    with pytest.raises(InvalidArgumentError, match=r"^Failed to delete a tensor with handle '.*' in the"):
        bench.run("DeleteSessionTensor", handle)


def test_a_message_shows_only_the_beginning_of_a_long_handle(bench: KernelBench) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(bench, b"x" * 10_000)
    assert len(caught.value.message) < 300


def test_what_is_deleted_is_there_no_longer(bench: KernelBench) -> None:
    first, second = (kept(handle_of(bench, np.float32(i))) for i in range(2))
    assert bench.run("DeleteSessionTensor", first) == ()
    with pytest.raises(InvalidArgumentError, match="not in the session store"):
        read(bench, first)
    with pytest.raises(InvalidArgumentError, match="Failed to delete"):
        bench.run("DeleteSessionTensor", first)
    assert kept(first) is first  # a handle that was kept once brings nothing back
    with pytest.raises(InvalidArgumentError, match="not in the session store"):
        read(bench, first)
    assert read(bench, second) == 1


def test_another_dtype_than_was_kept(bench: KernelBench) -> None:
    handle = kept(handle_of(bench, np.float32(1)))
    with pytest.raises(InternalError, match=r"^Output 0 of type float32 does not match declared output type int32"):
        read(bench, handle, "int32")


def test_a_handle_is_a_scalar(bench: KernelBench) -> None:
    for op, attrs in (("GetSessionTensor", {"dtype": "float32"}), ("DeleteSessionTensor", {})):
        with pytest.raises(InvalidArgumentError, match=r"a handle is a scalar, not of shape \[2\]"):
            bench.run(op, np.array([b"a", b"b"], object), **attrs)
        with pytest.raises(InvalidArgumentError, match="Shape must be rank 0 but is rank 1"):
            infer(op, [2], **attrs)


def test_shapes() -> None:
    assert infer("GetSessionHandle", [2, 3], T="float32") == [[]]
    assert infer("GetSessionHandleV2", None, T="float32") == [[]]
    assert infer("GetSessionTensor", [], dtype="float32") == [None]
    assert infer("DeleteSessionTensor", None) == []


def test_what_is_kept_cannot_be_changed_from_outside(bench: KernelBench) -> None:
    value = np.zeros(2, np.float32)
    handle = kept(handle_of(bench, value))
    value[:] = 9
    assert read(bench, handle).tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        read(bench, handle)[0] = 1


def test_closing_the_session_lets_go_of_all(bench: KernelBench) -> None:
    handle = kept(handle_of(bench, np.float32(1)))
    state = bench.resource_mgr.lookup_or_create(SessionState, "", "_session_state", SessionState)
    assert len(state) == 1
    bench.resource_mgr.close()
    assert len(state) == 0
    with pytest.raises(InvalidArgumentError, match="not in the session store"):
        handle.read()


def test_a_handle_is_a_string_tensor(bench: KernelBench) -> None:
    handle = kept(handle_of(bench, np.float32(1)))
    assert np.shape(handle) == ()
    assert bench.run("StringLength", handle) == len(handle.handle)
    assert repr(handle) == f"<ax.TensorHandle 'h;0;{CPU}' float32>"
