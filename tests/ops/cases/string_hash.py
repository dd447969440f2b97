"""Cases of hashes of strings: every length class, and bytes of any value."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import case, f32, i32, text

RNG = np.random.default_rng(9)


def every_length() -> Any:
    lengths = [*range(70), 95, 96, 127, 128, 129, 191, 192, 193, 300, 1000]
    return text(*(RNG.integers(0, 256, size, np.uint8).tobytes() for size in lengths))


MANY = every_length()
HUGE = 2**62

CASES = [
    *[
        case(op, MANY, id=f"every_length_{buckets}", num_buckets=buckets)
        for op in ("StringToHashBucketFast", "StringToHashBucket")
        for buckets in (HUGE, 7)
    ],
    case("StringToHashBucketFast", b"scalar", id="scalar", num_buckets=1000),
    case("StringToHashBucketFast", text(), id="empty", num_buckets=1000),
    case("StringToHashBucketFast", text(b"a", b"b", b"c", b"d").reshape(2, 2), id="matrix", num_buckets=1),
    case("StringToHashBucketStrong", MANY, id="every_length", num_buckets=HUGE, key=(2**60 + 5, -3)),
    case("StringToHashBucketStrong", MANY, id="few_buckets", num_buckets=3, key=(0, 0)),
    case("StringToHashBucketStrong", b"scalar", id="scalar", num_buckets=30, key=(1, 2)),
    case("StringToHashBucketStrong", b"scalar", id="short_key", num_buckets=30, key=(1,)),
    case("Fingerprint", MANY, b"farmhash64", id="strings"),
    case("Fingerprint", f32([1, 2, 3], [4, 5, 6]), b"farmhash64", id="floats"),
    case("Fingerprint", i32(1, 2, 3), b"farmhash64", id="ints"),
    case("Fingerprint", np.array([True, False]), b"farmhash64", id="bools"),
    case("Fingerprint", text(b"a", b"b", b"c", b"d").reshape(2, 2), b"farmhash64", id="rows_of_strings"),
    case("Fingerprint", np.zeros((0, 3), np.float32), b"farmhash64", id="no_rows"),
    case("Fingerprint", np.zeros((2, 0), np.float32), b"farmhash64", id="empty_rows"),
    case("Fingerprint", np.float32(3), b"farmhash64", id="scalar"),
    case("Fingerprint", i32(1, 2, 3), b"md5", id="other_method"),
    case("Fingerprint", i32(1, 2, 3), text(b"farmhash64"), id="vector_method"),
]
