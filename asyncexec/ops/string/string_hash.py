"""Strings to numbers of a fixed range (``tensorflow/core/ops/string_ops.cc``), and Fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import is_installed, require
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import string
from asyncexec.ops.string.farmhash import fingerprint64, hash64, siphash24
from asyncexec.ops.string.string_elements import elementwise_to, flat_strings, scalar_string

register_op("StringToHashBucketFast", "input: string -> output: int64", "num_buckets: int >= 1", shape=unchanged)
register_op("StringToHashBucket", "string_tensor: string -> output: int64", "num_buckets: int >= 1", shape=unchanged)
register_op(
    "StringToHashBucketStrong",
    "input: string -> output: int64",
    "num_buckets: int >= 1; key: list(int)",
    shape=unchanged,
)


def best_fingerprint64() -> Callable[[bytes], int]:
    """FarmHash's Fingerprint64: that of the package cityhash, which is 200 times as fast as ours, where it is there."""
    if not is_installed("farmhash"):
        return fingerprint64
    found: Callable[[bytes], int] = require("farmhash", extra="ops").Fingerprint64
    return found


def _buckets(function: Callable[[bytes], int], count: int) -> Kernel:
    return elementwise_to(np.dtype(np.int64), lambda data: function(data) % count)


@register_kernel("StringToHashBucketFast")
def string_to_hash_bucket_fast(construction: OpKernelConstruction) -> Kernel:
    """The FarmHash fingerprint modulo the number of buckets."""
    return _buckets(best_fingerprint64(), construction.attr("num_buckets"))


@register_kernel("StringToHashBucket")
def string_to_hash_bucket(construction: OpKernelConstruction) -> Kernel:
    """TensorFlow's old hash modulo the number of buckets."""
    return _buckets(hash64, construction.attr("num_buckets"))


@register_kernel("StringToHashBucketStrong")
def string_to_hash_bucket_strong(construction: OpKernelConstruction) -> Kernel:
    """SipHash under the given key modulo the number of buckets."""
    key = construction.attr("key")
    if len(key) != 2:
        raise InvalidArgumentError(f"Key must have 2 elements, not {len(key)}", op=construction.op)
    first, second = (value & 0xFFFFFFFFFFFFFFFF for value in key)
    return _buckets(siphash24(first, second), construction.attr("num_buckets"))


def _fingerprint_shape(c: InferenceContext) -> Sequence[TensorShape]:
    data = c.input(0).with_rank_at_least(1)
    c.scalar(1)
    method = c.value(1)
    if method is not None and bytes(method) != b"farmhash64":
        raise InvalidArgumentError(f"unsupported method {bytes(method)!r}")
    return [TensorShape([data[0], 8])]


register_op("Fingerprint", "data: T, method: string -> fingerprint: uint8", "T: type", shape=_fingerprint_shape)


@register_kernel("Fingerprint")
def fingerprint(construction: OpKernelConstruction) -> Kernel:
    """The FarmHash fingerprint of each row, as 8 bytes."""
    is_string, hashed = construction.attr("T") is string, best_fingerprint64()

    def kernel(data: Array, method: bytes) -> Array:
        if scalar_string(method, "method") != b"farmhash64":
            raise InvalidArgumentError(f"unsupported method {method!r}")
        if np.ndim(data) == 0:
            raise InvalidArgumentError("Data must have at least one dimension")
        rows = data.reshape(len(data), -1 if data.size else 0)
        hashes = [hashed(_row_bytes(row, is_string, hashed)) for row in rows]
        return np.array(hashes, "<u8").view(np.uint8).reshape(len(data), 8)

    return kernel


def _row_bytes(row: object, is_string: bool, hashed: Callable[[bytes], int]) -> bytes:
    """What is hashed of a row: its memory, its only string, or the fingerprints of its strings."""
    if not is_string:
        return bytes(np.ascontiguousarray(row).tobytes())
    texts = flat_strings(row)
    if len(texts) == 1:
        return texts[0]
    return b"".join(hashed(text).to_bytes(8, "little") for text in texts)
