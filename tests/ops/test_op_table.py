"""The table of ops in the documentation is what the registries have."""

from __future__ import annotations

from asyncexec.ops.op_index import OPS
from tests.ops.make_op_table import FAMILIES, PAGE, table


def test_the_page_has_the_table_as_it_is_now() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m tests.ops.make_op_table writes it"


def test_every_family_of_ops_is_told_of() -> None:
    assert {module.partition(".")[0] for module in OPS} == {*FAMILIES, "onnx", "pnnx"}
