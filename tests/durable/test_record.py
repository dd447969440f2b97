"""The bytes of a checkpoint: what goes in comes out, and whatever else is there is told, and never taken."""

from __future__ import annotations

import struct
import warnings
from collections import OrderedDict, defaultdict
from enum import IntEnum, StrEnum
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.durable.checkpoint_log import CheckpointLog, name_of
from asyncexec.durable.journal_codec import JournalCodec
from asyncexec.durable.record import Codec, JsonCodec, Record, from_bytes, to_bytes
from asyncexec.durable.store import Store, checked_key

JSON = JsonCodec()
BAD = (ax.errors.DataLossError, ax.errors.FailedPreconditionError)
SMALL = Record({"number": 3, "position": {"log": 3}}, {"total": np.float32(1.5), "names": np.array([b"a"], object)})

tensors = st.one_of(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int8, np.int64, np.uint16, np.bool_, np.complex64]),
        hnp.array_shapes(min_dims=1, max_dims=3, max_side=4),
    ),
    st.binary(max_size=20),
)
objects = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(values=st.dictionaries(st.text(max_size=8), tensors | objects, max_size=5), number=st.integers(0, 2**60))
def test_what_goes_in_comes_out(values: dict[str, Any], number: int) -> None:
    read = from_bytes(to_bytes(Record({"number": number}, values), JSON), JSON)
    assert read.about == {"number": number}
    assert list(read.values) == list(values)
    for name, value in values.items():
        assert type(read.values[name]) is type(value)
        if isinstance(value, np.ndarray):
            assert read.values[name].dtype == value.dtype
            np.testing.assert_array_equal(read.values[name], value)
        else:
            assert read.values[name] == value


def test_a_checkpoint_that_ends_at_any_byte_is_torn() -> None:
    content = to_bytes(SMALL, JSON)
    for length in range(len(content)):
        with pytest.raises(ax.errors.DataLossError, match=r"torn|no checkpoint"):
            from_bytes(content[:length], JSON)
    with pytest.raises(ax.errors.DataLossError, match="torn"):
        from_bytes(content + b"\0", JSON)


def test_a_checkpoint_with_any_byte_changed_is_not_taken() -> None:
    content = to_bytes(SMALL, JSON)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x41
        with pytest.raises(BAD):
            from_bytes(bytes(changed), JSON)


@pytest.mark.parametrize("place", [0, 1, 2**19, 2**20 + 2**19, -4096, -1])
def test_a_large_value_with_any_byte_changed_is_not_taken(place: int) -> None:
    array = np.random.default_rng(1).integers(0, 255, 2**21 + 17, np.uint8)
    content = to_bytes(Record({}, {"a": array}), JSON)
    np.testing.assert_array_equal(from_bytes(content, JSON).values["a"], array)
    changed = bytearray(content)
    changed[place - array.nbytes if place >= 0 else place] ^= 1
    with pytest.raises(ax.errors.DataLossError, match="checksum of 'a'"):
        from_bytes(bytes(changed), JSON)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_others_are_no_checkpoint(content: bytes) -> None:
    with pytest.raises(ax.errors.DataLossError):
        from_bytes(content, JSON)


def newer(content: bytes) -> bytes:
    return content[:8] + struct.pack("<I", 99) + content[12:]


def test_a_checkpoint_of_a_newer_version_is_told() -> None:
    with pytest.raises(ax.errors.FailedPreconditionError, match=r"version 99.*\n.*newer asyncexec"):
        from_bytes(newer(to_bytes(SMALL, JSON)), JSON)


class Point:
    """What JSON cannot have."""

    x = 1


class Color(IntEnum):
    RED = 1


class Name(StrEnum):
    ANN = "ann"


WITHOUT_A_FORM: list[Any] = [
    Point(),
    (1, 2),
    {1: 2},
    {"a": Point()},
    [np.nan, (1, 2)],
    np.array([Point()], object),
    np.array(["text"]),
    np.zeros(2, [("a", "<i4")]),
    np.ma.array([1, 2], mask=[False, True]),
    np.datetime64(1, "s"),
    [Color.RED],
    {"counts": defaultdict(int, a=1)},
    OrderedDict(a=1),
    [np.float64(1.5)],
    [np.str_("a")],
    {Name.ANN: 1},
]


@pytest.mark.parametrize("value", WITHOUT_A_FORM)
@pytest.mark.parametrize("codec", [JSON, JournalCodec(JSON)])
def test_a_value_without_a_form_is_named(value: object, codec: Codec) -> None:
    is_nested = isinstance(value, np.ndarray) and value.dtype == object and isinstance(codec, JournalCodec)
    name = "element 0" if is_nested else "state 'last'"
    with pytest.raises(ax.errors.InvalidArgumentError, match=f"{name}: a value of type"):
        to_bytes(Record({}, {"state 'last'": value}), codec)


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("nan")], {"scores": [float("nan"), None]}])
def test_a_nan_in_an_object_is_stored(value: object) -> None:
    assert repr(from_bytes(to_bytes(Record({}, {"x": value}), JSON), JSON).values["x"]) == repr(value)


class PointCodec:
    """Knows points alone."""

    def encode(self, value: Any) -> bytes:
        return b"" if isinstance(value, Point) else value.missing

    def decode(self, content: bytes) -> Any:
        return Point()


def test_the_codec_of_the_user_stores_its_objects() -> None:
    read = from_bytes(to_bytes(Record({}, {"point": Point()}), PointCodec()), PointCodec())
    assert isinstance(read.values["point"], Point)


async def test_the_last_checkpoints_are_kept() -> None:
    store = ax.checkpoint.MemoryStore()
    log = CheckpointLog(store, "orders", JSON)
    assert await log.load() is None
    for number in range(5):
        await log.append(log.entry(Record({"number": number}, {})))
    assert await store.list() == ["orders/0", "orders/1", "orders/owner"]
    loaded = await CheckpointLog(store, "orders", JSON).load()
    assert loaded is not None
    assert loaded.record.about == {"number": 4, "log": 5}


@pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda _: b"", lambda _: b"a text", newer])
async def test_the_one_before_is_used(spoil: Any) -> None:
    store = ax.checkpoint.MemoryStore()
    log = CheckpointLog(store, "orders", JSON)
    for number in range(2):
        await log.append(log.entry(Record({"number": number}, {})))
    first, last = "orders/0", "orders/1"
    await store.put(last, spoil(await store.get(last)))
    with pytest.warns(ax.checkpoint.CheckpointWarning, match=f"'{last}'.*'{first}' is used instead"):
        loaded = await log.load()
    assert loaded is not None
    assert loaded.record.about == {"number": 0, "log": 1}
    await log.append(log.entry(Record({"number": 2}, {})))  # numbered behind the one that cannot be read
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = await CheckpointLog(store, "orders", JSON).load()
    assert loaded is not None
    assert loaded.record.about == {"number": 2, "log": 2}
    await store.put(first, b"")
    for key in (first, last):
        await store.put(key, spoil(await store.get(key)))
    with pytest.raises(BAD, match="checkpoint"):
        await log.load()


class Ledger(ax.checkpoint.MemoryStore):
    """A store that commits results with what is put."""

    commits_outputs = True


async def filled(store: Store) -> CheckpointLog:
    """A log with checkpoints behind 10 and 20 items, in turn at the keys 0 and 1."""
    log = CheckpointLog(store, "orders", JSON)
    for number in (10, 20):
        await log.append(log.entry(Record({"number": number}, {})))
    return log


@pytest.mark.parametrize("spoil", [lambda content: content[:-1], lambda _: b"a text", newer])
async def test_results_that_were_committed_with_the_last_one_do_not_come_twice(spoil: Any) -> None:
    store = Ledger()
    await filled(store)
    await store.put("orders/1", spoil(await store.get("orders/1")))
    log = CheckpointLog(store, "orders", JSON)
    told = r"'orders/1'.*results behind 'orders/0' were committed with it.*\n.*"
    hint = "delete the results behind the first 10 items and the key 'orders/1'.*resume=False"
    with pytest.raises(BAD, match=told + hint):
        await log.load()
    await store.delete("orders/1")  # as the error says
    loaded = await log.load()
    assert loaded is not None
    assert loaded.record.about["number"] == 10


async def test_beginning_anew_replaces_a_checkpoint_that_was_refused() -> None:
    store = Ledger()
    await filled(store)
    await store.put("orders/1", b"a text")
    log = CheckpointLog(store, "orders", JSON)
    with pytest.raises(BAD):
        await log.load()
    await log.own()
    log.begin_anew()
    await log.append(log.entry(Record({"number": 0}, {})))
    assert await store.list() == ["orders/1", "orders/owner"]  # the one before stays until this one is there
    loaded = await CheckpointLog(store, "orders", JSON).load()
    assert loaded is not None
    assert loaded.record.about["number"] == 0


async def test_an_older_checkpoint_that_is_damaged_is_passed_over() -> None:
    """Its number can be read; its values cannot."""
    store = Ledger()
    log = CheckpointLog(store, "orders", JSON)
    for number in (10, 20):
        await log.append(log.entry(Record({"number": number}, {"total": np.float64(number)})))
    content = await store.get("orders/0")
    await store.put("orders/0", content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.warns(ax.checkpoint.CheckpointWarning, match="'orders/0'.*'orders/1' is used instead"):
        loaded = await CheckpointLog(store, "orders", JSON).load()
    assert loaded is not None
    assert loaded.record.about["number"] == 20


async def test_where_none_can_be_read_both_are_named_and_what_to_do() -> None:
    store = ax.checkpoint.MemoryStore()
    log = await filled(store)
    await store.put("orders/0", b"a text")
    await store.put("orders/1", newer(await store.get("orders/1")))
    with pytest.raises(ax.errors.FailedPreconditionError, match=r"'orders/0': .*'orders/1': .*\n.*a newer asyncexec"):
        await log.load()
    await store.put("orders/1", b"")
    told = r"no checkpoint can be read: .*'orders/0': .*'orders/1': .*\n.*a copy of the store.*resume=False"
    with pytest.raises(ax.errors.DataLossError, match=told):
        await log.load()


def test_a_stream_has_a_name_that_every_store_can_have() -> None:
    names = {name_of(["total:0"]), name_of(["mean:0", "total:0"]), name_of(["gr\xf6\xdfe/über:0"]), name_of([])}
    assert len(names) == 4
    assert [checked_key(name) for name in names] == list(names)
