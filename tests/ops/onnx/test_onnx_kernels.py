"""Which kernel an ONNX node gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncexec.ops.onnx.onnx_kernels import OnnxNode, find_onnx_kernel, onnx_kernel


def _returning(value: int) -> Callable[[OnnxNode], Any]:
    return lambda node: lambda: (value,)


def test_the_newest_version_that_is_not_newer_than_the_operator_set_is_taken() -> None:
    onnx_kernel("Versioned", since=13, domain="test")(_returning(13))
    onnx_kernel("Versioned", since=7, domain="test")(_returning(7))
    node = OnnxNode("Versioned", "test")
    found = {opset: find_onnx_kernel("Versioned", opset, "test") for opset in (6, 7, 12, 13, 20)}
    given = {opset: one and one.factory(node)() for opset, one in found.items()}
    assert given == {6: None, 7: (7,), 12: (7,), 13: (13,), 20: (13,)}


def test_domains_are_apart() -> None:
    onnx_kernel("Apart", domain="test")(_returning(1))
    assert find_onnx_kernel("Apart", 1, "test") is not None
    assert find_onnx_kernel("Apart", 1) is None
