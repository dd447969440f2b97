"""The table of scripts is what TensorFlow says of each code point."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import asyncexec.ops.string
from asyncexec.ops.string.unicode_scripts import RANGES


def test_the_table_covers_every_code_point() -> None:
    counts = [int(part.partition(":")[0]) for part in RANGES.split()]
    assert min(counts) > 0
    assert sum(counts) == 0x110000


@pytest.mark.oracle
def test_the_table_is_tensorflows() -> None:
    pytest.importorskip("tensorflow")
    table = Path(asyncexec.ops.string.__file__).with_name("unicode_scripts.py")
    assert table.read_text(encoding="utf-8") == import_module("tests.ops.make_unicode_scripts").source()
