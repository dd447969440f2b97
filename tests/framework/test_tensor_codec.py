"""The bytes of tensors: what goes in comes out, and what lies is refused before memory is taken."""

from __future__ import annotations

import contextlib
import functools
import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, OpError, PermissionDeniedError, ResourceExhaustedError
from asyncexec.framework.tensor_codec import (
    COPIED_BYTES,
    HEAD,
    MAX_KEY_BYTES,
    TensorHead,
    encode,
    prepare,
    read_head,
)
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import ALL_DTYPES, DType
from asyncexec.ops.state.lookup_table import MutableHashTable
from asyncexec.ops.state.queue_state import FIFOQueue
from asyncexec.ops.state.session_state import SessionState, TensorHandle
from asyncexec.ops.state.stack import Stack
from asyncexec.ops.state.tensor_array_state import TensorArray
from asyncexec.ops.state.tensor_list_state import TensorList
from asyncexec.ops.state.variable_state import Variable

MOST = 2**30
ANY_SHAPE = TensorShape(None)
RESOURCES = {
    "variable": Variable("v", ax.float32, ANY_SHAPE),
    "queue": FIFOQueue("q", (ax.float32,), (), 3),
    "table": MutableHashTable(ax.int64, ax.float32),
    "stack": Stack("s", ax.float32, 3),
    "tensor array": TensorArray("a", ax.float32, 3, ANY_SHAPE),
    "handle of a session": TensorHandle(SessionState(), "h", ax.float32, np.float32(1)),
}
ARRAYS = [dtype for dtype in ALL_DTYPES if not dtype.is_opaque and dtype is not ax.string]
# A quantized type has the layout of a plain one, and a numpy array does not tell which it is.
PLAIN = [dtype for dtype in ARRAYS if not dtype.name.startswith(("q", "quint"))]


def there_and_back(value: Any, *, is_large: bool = False, objects: bool = False, is_dead: bool = False) -> Any:
    """*value* as it arrives, as a small or a large tensor."""
    tensor = encode(7, "k", value, is_dead, objects=objects, max_bytes=MOST)
    body = memoryview(tensor.head)
    head = read_head(body)
    assert head is not None
    assert (head.step_id, head.key, head.is_dead, head.size) == (7, "k", is_dead, len(body))
    if not is_large:
        return prepare(head, memoryview(bytes(tensor.payload)), objects=objects, max_bytes=MOST).value()
    arriving = prepare(head, objects=objects, max_bytes=MOST)
    memoryview(arriving.memory)[:] = tensor.payload
    return arriving.value()


def any_array(dtype: DType, shape: tuple[int, ...], seed: int) -> Any:
    bits = np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if dtype is ax.bool or dtype in (ax.int2, ax.uint2, ax.int4, ax.uint4, ax.float4_e2m1fn):
        return (bits % 2)[..., 0].astype(dtype.as_numpy_dtype)
    return np.ascontiguousarray(bits).view(dtype.as_numpy_dtype)[..., 0]


@given(
    dtype=st.sampled_from(PLAIN),
    shape=hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4).map(tuple),
    seed=st.integers(0, 2**32),
    is_large=st.booleans(),
)
def test_every_dtype_and_shape_comes_bit_by_bit(
    dtype: DType, shape: tuple[int, ...], seed: int, is_large: bool
) -> None:
    sent = any_array(dtype, shape, seed)
    got = there_and_back(sent, is_large=is_large)
    assert (got.dtype, got.shape) == (dtype.as_numpy_dtype, shape)
    assert got.tobytes() == sent.tobytes()
    assert isinstance(got, np.ndarray) is bool(shape)
    if shape:
        assert got.flags.writeable
        assert got.flags.c_contiguous


@pytest.mark.parametrize("dtype", [d for d in ARRAYS if d not in PLAIN], ids=lambda dtype: dtype.name)
def test_quantized_numbers_come_as_plain_ones(dtype: DType) -> None:
    sent = np.arange(4).astype(dtype.as_numpy_dtype)
    got = there_and_back(sent)
    assert got.dtype == sent.dtype
    assert got.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", b""),
        (b"a\0\xff", b"a\0\xff"),
        (np.bytes_(b"ab"), b"ab"),
        (np.array(3.5), np.float64(3.5)),
        (np.array(b"x", object), b"x"),
        (ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(1.5)),
        (np.True_, np.True_),
    ],
)
def test_scalars_come_as_numpy_scalars_or_bytes(sent: Any, expected: Any, is_large: bool) -> None:
    got = there_and_back(sent, is_large=is_large)
    assert type(got) is type(expected)
    assert got == expected


@given(
    strings=st.lists(st.binary(max_size=20), max_size=12),
    columns=st.sampled_from([1, 2, 3]),
    is_large=st.booleans(),
)
def test_strings_come_in_their_shape(strings: list[bytes], columns: int, is_large: bool) -> None:
    strings = strings[: len(strings) // columns * columns]
    sent = np.empty(len(strings), object)
    sent[:] = strings
    sent = sent.reshape(-1, columns)
    got = there_and_back(sent, is_large=is_large)
    assert (got.dtype, got.shape) == (np.dtype(object), sent.shape)
    assert got.ravel().tolist() == strings
    assert all(type(element) is bytes for element in got.flat)


@pytest.mark.parametrize(
    "sent",
    [
        np.arange(24.0).reshape(4, 6).T,
        np.arange(24)[::-3],
        np.arange(6, dtype=">i4"),
        np.broadcast_to(np.float32(2), (3, 4)),
        np.arange(60_000, dtype=">f8").reshape(300, 200)[::2, ::2],
    ],
)
def test_any_layout_comes_in_c_order(sent: Any) -> None:
    got = there_and_back(sent, is_large=True)
    np.testing.assert_array_equal(got, sent)
    assert got.dtype == sent.dtype.newbyteorder("=")


def test_a_large_array_is_not_copied() -> None:
    sent = np.zeros(COPIED_BYTES + 1, np.uint8)
    payload = encode(1, "k", sent, False, objects=False, max_bytes=MOST).payload
    sent[5] = 9
    assert payload[5] == 9


def test_a_small_array_is_copied() -> None:
    sent = np.zeros(COPIED_BYTES, np.uint8)
    payload = encode(1, "k", sent, False, objects=False, max_bytes=MOST).payload
    sent[5] = 9
    assert payload[5] == 0


def test_the_dead_have_no_value() -> None:
    assert there_and_back(object(), is_dead=True) is None
    assert there_and_back(np.ones(5), is_dead=True) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "builtins.NoneType"),
        (3, "builtins.int"),
        ("text", "builtins.str"),
        (np.array(["text"]), "numpy.ndarray"),
        (np.array([b"a", 3], object), "numpy.ndarray"),
        (np.array(["2020-01-01"], "datetime64[D]"), "numpy.ndarray"),
        (np.zeros(2, [("a", "i4")]), "numpy.ndarray"),
    ],
    ids=repr,
)
def test_what_has_no_form_is_named(value: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'edge': a value of type .*{told} cannot go") as raised:
        encode(1, "edge", value, False, objects=False, max_bytes=MOST)
    assert "objects=True" in str(raised.value)


@pytest.mark.parametrize("value", [None, 3, "text", {"a": [1, 2]}, (np.float32,), np.array([b"a", 3], object)])
def test_objects_travel_where_they_may(value: Any) -> None:
    got = there_and_back(value, objects=True)
    assert type(got) is type(value)
    assert np.array_equal(got, value) if isinstance(value, np.ndarray) else got == value


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


@pytest.mark.parametrize("value", [Unpicklable(), lambda: None], ids=["raises", "lambda"])
def test_objects_that_cannot_be_pickled_have_no_form(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'k': a value of type .* cannot be pickled"):
        encode(1, "k", value, False, objects=True, max_bytes=MOST)


@pytest.mark.parametrize("objects", [False, True])
@pytest.mark.parametrize("kind", RESOURCES)
def test_resources_have_no_form(kind: str, objects: bool) -> None:
    value = RESOURCES[kind]
    with pytest.raises(InvalidArgumentError, match=rf"'k': a value of type .*{type(value).__name__} cannot go"):
        encode(1, "k", value, False, objects=objects, max_bytes=MOST)
    if objects:
        with pytest.raises(InvalidArgumentError, match="stays in its process"):
            encode(1, "k", [value], False, objects=True, max_bytes=MOST)


def test_too_large_or_too_long_is_not_sent() -> None:
    with pytest.raises(ResourceExhaustedError, match="'k' has 11 bytes, and 10 may travel"):
        encode(1, "k", b"x" * 11, False, objects=False, max_bytes=10)
    with pytest.raises(InvalidArgumentError, match=f"at most {MAX_KEY_BYTES} bytes"):
        encode(1, "k" * (MAX_KEY_BYTES + 1), b"", False, objects=False, max_bytes=10)


def test_a_key_is_any_text() -> None:
    key = "/job:wörker;\0;\ud800"
    body = memoryview(encode(-1, key, b"", False, objects=False, max_bytes=MOST).head)
    head = read_head(body)
    assert head is not None
    assert head.step_id == -1
    assert head.key == "/job:wörker;\0;\\xed\\xa0\\x80"  # what is no UTF-8 is shown


def told(
    dtype: int = ax.float32.enum, shape: tuple[int, ...] = (), num_bytes: int = 4, flags: int = 0, key: str = "edge"
) -> TensorHead:
    return TensorHead(3, key, dtype, flags, shape, num_bytes, 0)


LIES = {
    "no such dtype": (told(dtype=77), InvalidArgumentError, "there is no dtype 77"),
    "reference": (told(dtype=101), InvalidArgumentError, "float32_ref cannot come"),
    "resource": (told(dtype=ax.resource.enum), InvalidArgumentError, "resource cannot come"),
    "variant with a shape": (told(dtype=ax.variant.enum, shape=(1,)), InvalidArgumentError, "has no shape"),
    "too few bytes": (told(shape=(2,)), InvalidArgumentError, r"float32 of shape \[2\] has other than 4 bytes"),
    "too many bytes": (told(num_bytes=8), InvalidArgumentError, "has other than 8 bytes"),
    "product overflows": (told(shape=(2**33, 2**33), num_bytes=0), InvalidArgumentError, "has other than 0 bytes"),
    "product wraps around": (told(shape=(2**62,), num_bytes=0), InvalidArgumentError, "has other than 0 bytes"),
    "no numpy shape": (told(shape=(2**64 - 1, 0), num_bytes=0), InvalidArgumentError, "shape"),
    "rank of no array": (told(shape=(1,) * 200), InvalidArgumentError, "of rank 200"),
    "rank": (told(shape=(1,) * 255), InvalidArgumentError, "rank 255 is above 254"),
    "too large": (told(num_bytes=MOST + 4, shape=(MOST // 4 + 1,)), ResourceExhaustedError, "at most"),
    "no memory": (told(shape=(2**60,), num_bytes=2**62), ResourceExhaustedError, "memory|at most"),
    "object": (told(dtype=ax.object.enum), PermissionDeniedError, "it is a Python object"),
    "strings without lengths": (
        told(dtype=ax.string.enum, shape=(2,), num_bytes=15), InvalidArgumentError, "15 bytes are too few"),
    "strings without end": (
        told(dtype=ax.string.enum, shape=(2**61,), num_bytes=8), InvalidArgumentError, "8 bytes are too few"),
    "flags": (told(flags=2), InvalidArgumentError, "flags 2"),
    "dead and alive": (told(flags=1), InvalidArgumentError, "flags 1 do not go with dtype 1"),
    "alive and dead": (told(dtype=0, num_bytes=0), InvalidArgumentError, "flags 0 do not go with dtype 0"),
    "dead with a payload": (told(dtype=0, flags=1), InvalidArgumentError, "it is dead, and has a payload"),
    "dead with a shape": (told(dtype=0, flags=1, shape=(3,)), InvalidArgumentError, "dtype 0 has no shape"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found_before_memory_is_taken(lie: str) -> None:
    head, kind, text = LIES[lie]
    most = 2**63 if lie == "no memory" else MOST
    with pytest.raises(kind, match=text) as raised:
        prepare(head, objects=False, max_bytes=most)
    assert "tensor 'edge' of step 3" in str(raised.value)


def test_a_payload_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="4 bytes were announced, and 3 came"):
        prepare(told(), memoryview(b"abc"), objects=False, max_bytes=MOST)


@pytest.mark.parametrize(
    ("head", "payload", "text"),
    [
        (told(ax.bool.enum, (2,), 2), b"\1\2", "bytes are not bool"),
        (told(ax.int4.enum, (2,), 2), b"\7\x08", "bytes are not int4"),
        (told(ax.uint4.enum, (2,), 2), b"\0\x10", "bytes are not uint4"),
        (told(ax.string.enum, (1,), 9), struct.pack("<Q", 2) + b"a", "do not make up 9 bytes"),
        (told(ax.string.enum, (2,), 18), struct.pack("<QQ", 2**64 - 1, 3) + b"ab", "do not make up 18 bytes"),
        (told(ax.string.enum, (2**63, 0), 0), b"", "shape"),
        (told(ax.object.enum, (), 3), b"abc", "cannot be unpickled"),
    ],
)
def test_a_payload_that_is_none_of_its_dtype_is_refused(head: TensorHead, payload: bytes, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        prepare(head, memoryview(payload), objects=True, max_bytes=MOST).value()


@given(st.binary(max_size=200), st.binary(max_size=200), st.booleans())
def test_no_bytes_do_more_than_raise_a_typed_error(head: bytes, payload: bytes, says_its_size: bool) -> None:
    found = read_head(memoryview(head))
    if found is None:
        return
    if says_its_size:
        found = found._replace(num_bytes=len(payload))
    with contextlib.suppress(OpError):
        prepare(found, memoryview(payload), objects=False, max_bytes=MOST).value()


@given(
    dtype=st.sampled_from([d.enum for d in ARRAYS] + [0, ax.string.enum, 31, 77]),
    shape=st.lists(st.one_of(st.integers(0, 4), st.integers(0, 2**64 - 1)), max_size=4).map(tuple),
    flags=st.integers(0, 2),
    payload=st.binary(max_size=64),
)
def test_no_head_does_more_than_raise_a_typed_error(
    dtype: int, shape: tuple[int, ...], flags: int, payload: bytes
) -> None:
    head = TensorHead(1, "k", dtype, flags, shape, len(payload), HEAD.size)
    try:
        value = prepare(head, memoryview(payload), objects=False, max_bytes=MOST).value()
    except OpError:
        return
    assert flags == 1 or np.shape(value) == shape


def variant_of(metadata: object, tensors: bytes = b"") -> bytes:
    """The payload of a variant that tells *metadata* of itself."""
    told_of = json.dumps(metadata).encode()
    return len(told_of).to_bytes(8, "little") + told_of + tensors


def received(payload: bytes) -> Any:
    head = TensorHead(3, "edge", ax.variant.enum, 0, (), len(payload), 0)
    return prepare(head, memoryview(payload), objects=False, max_bytes=MOST).value()


def test_a_tensor_list_arrives_as_it_was() -> None:
    inner = TensorList(ax.int32, TensorShape([]), (np.int32(7),))
    elements = (np.ones((2, 3), np.float32), None, np.zeros((2, 3), np.float32))
    for sent in (
        TensorList(ax.float32, TensorShape([2, None]), elements, 5),
        TensorList(ax.string, TensorShape(None), (b"a", b"")),
        TensorList(ax.variant, TensorShape([]), (inner, inner)),
    ):
        made = encode(3, "edge", sent, False, objects=False, max_bytes=MOST)
        got = received(bytes(made.payload))
        assert (got.dtype, got.element_shape, got.max_num_elements) == (
            sent.dtype,
            sent.element_shape,
            sent.max_num_elements,
        )
        for mine, theirs in zip(got.elements, sent.elements, strict=True):
            if isinstance(theirs, TensorList):
                assert mine.elements == theirs.elements
            else:
                np.testing.assert_array_equal(mine, theirs)


FLOATS = {"form": "TensorList", "dtype": 1, "shape": [], "max": -1}


NO_VARIANTS = {
    "nothing": b"",
    "length beyond the end": (2**63).to_bytes(8, "little"),
    "no JSON": variant_of("")[:8] + b"{",
    "no object": variant_of([1]),
    "unknown": variant_of({"form": "os.system", "set": []}),
    "tensors that are not there": variant_of({**FLOATS, "set": [True]}),
    "more than it tells": variant_of({**FLOATS, "set": []}, b"more"),
    "another dtype": variant_of(
        {**FLOATS, "set": [True]},
        b"".join(encode(0, "", np.int32(1), False, objects=False, max_bytes=MOST)),
    ),
    "deep": functools.reduce(
        lambda inner, _: (
            variant_of({"form": "TensorList", "dtype": 21, "shape": [], "max": -1, "set": [True]})
            + HEAD.pack(0, 0, 21, 0, 0, len(inner))
            + inner
        ),
        range(100),
        variant_of({**FLOATS, "set": []}),
    ),
}


@pytest.mark.parametrize("case", NO_VARIANTS)
def test_what_is_no_variant_is_refused(case: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"tensor 'edge' of step 3|tensor '' of step 0"):
        received(NO_VARIANTS[case])
