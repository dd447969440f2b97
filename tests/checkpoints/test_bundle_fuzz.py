"""Checkpoints whose bytes were changed: each is read as it was, or refused with a typed error."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.bundle_writer import write_bundle
from asyncexec.checkpoints.table import read_table, write_table
from asyncexec.framework.errors import OpError
from tests.checkpoints.test_bundle import SHARD, tensors

pytestmark = pytest.mark.fuzz


def read_all(prefix: Path) -> None:
    try:
        reader = BundleReader(prefix)
    except OpError:
        return
    for name in reader.names:
        with suppress(OpError):
            reader.read(name)


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "c"
        write_bundle(prefix, tensors())
        path = prefix.with_name(data.draw(st.sampled_from([SHARD, "c.index"])))
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        read_all(prefix)


@settings(max_examples=500)
@given(st.data())
def test_changed_entries_with_right_checksums(data: st.DataObject) -> None:
    """The index says something else, and is a table that is right."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "c"
        write_bundle(prefix, tensors())
        table = read_table((prefix.with_name("c.index")).read_bytes(), "")
        key = data.draw(st.sampled_from(sorted(table)))
        value = bytearray(table[key])
        for _ in range(data.draw(st.integers(1, 3))):
            if value:
                value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        table[key] = bytes(value) + data.draw(st.binary(max_size=8))
        prefix.with_name("c.index").write_bytes(write_table(table))
        read_all(prefix)
