"""Hashes of byte strings that TensorFlow's results depend on, in plain Python.

* ``fingerprint64``: FarmHash's Fingerprint64, which is its ``na::Hash64`` and fixed for all time
  (G. Pike, github.com/google/farmhash);
* ``hash64``: the 64-bit MurmurHash2 variant of ``tensorflow/core/platform/hash.cc``;
* ``siphash24``: SipHash-2-4 (J.-P. Aumasson and D. J. Bernstein).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import Final

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_MURMUR: Final = 0xC6A4A7935BD1E995
_MURMUR_SEED: Final = 0xDECAFCAFFE
_SIP_START: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def _u64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _u32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def _rotate(value: int, shift: int) -> int:
    """Right rotation of 64 bits."""
    return (value >> shift | value << (64 - shift)) & _MASK


def _shift_mix(value: int) -> int:
    return value ^ value >> 47


def _hash_16(u: int, v: int, mul: int) -> int:
    a = _shift_mix((u ^ v) * mul & _MASK)
    b = _shift_mix((v ^ a) * mul & _MASK)
    return b * mul & _MASK


def fingerprint64(data: bytes) -> int:
    """FarmHash's Fingerprint64."""
    size = len(data)
    if size <= 16:
        return _up_to_16(data, size)
    if size <= 32:
        return _17_to_32(data, size)
    if size <= 64:
        return _33_to_64(data, size)
    return _over_64(data, size)


def _up_to_16(data: bytes, size: int) -> int:
    mul = _K2 + size * 2
    if size >= 8:
        a, b = _u64(data, 0) + _K2, _u64(data, size - 8)
        c = (_rotate(b, 37) * mul + a) & _MASK
        d = (_rotate(a & _MASK, 25) + b) * mul & _MASK
        return _hash_16(c, d, mul)
    if size >= 4:
        return _hash_16(size + (_u32(data, 0) << 3), _u32(data, size - 4), mul)
    if size > 0:
        y = data[0] + (data[size >> 1] << 8)
        z = size + (data[size - 1] << 2)
        return _shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _17_to_32(data: bytes, size: int) -> int:
    mul = _K2 + size * 2
    a, b = _u64(data, 0) * _K1 & _MASK, _u64(data, 8)
    c, d = _u64(data, size - 8) * mul & _MASK, _u64(data, size - 16) * _K2 & _MASK
    u = (_rotate(a + b & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    return _hash_16(u, (a + _rotate(b + _K2 & _MASK, 18) + c) & _MASK, mul)


def _33_to_64(data: bytes, size: int) -> int:
    mul = _K2 + size * 2
    a, b = _u64(data, 0) * _K2 & _MASK, _u64(data, 8)
    c, d = _u64(data, size - 8) * mul & _MASK, _u64(data, size - 16) * _K2 & _MASK
    y = (_rotate(a + b & _MASK, 43) + _rotate(c, 30) + d) & _MASK
    z = _hash_16(y, (a + _rotate(b + _K2 & _MASK, 18) + c) & _MASK, mul)
    e, f = _u64(data, 16) * mul & _MASK, _u64(data, 24)
    g, h = (y + _u64(data, size - 32)) * mul & _MASK, (z + _u64(data, size - 24)) * mul & _MASK
    u = (_rotate(e + f & _MASK, 43) + _rotate(g, 30) + h) & _MASK
    return _hash_16(u, (e + _rotate(f + a & _MASK, 18) + g) & _MASK, mul)


def _weak_hash_32(data: bytes, offset: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = unpack_from("<4Q", data, offset)
    a = (a + w) & _MASK
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    b = (b + _rotate(a, 44)) & _MASK
    return (a + z) & _MASK, (b + c) & _MASK


def _over_64(data: bytes, size: int) -> int:
    x, y = 81, (81 * _K1 + 113) & _MASK
    z = _shift_mix((y * _K2 + 113) & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _u64(data, 0)) & _MASK
    last = size - 64
    for start in range(0, (size - 1) // 64 * 64, 64):
        x = _rotate((x + y + v[0] + _u64(data, start + 8)) & _MASK, 37) * _K1 & _MASK
        y = _rotate((y + v[1] + _u64(data, start + 48)) & _MASK, 42) * _K1 & _MASK
        x ^= w[1]
        y = (y + v[0] + _u64(data, start + 40)) & _MASK
        z = _rotate((z + w[0]) & _MASK, 33) * _K1 & _MASK
        v = _weak_hash_32(data, start, v[1] * _K1, x + w[0])
        w = _weak_hash_32(data, start + 32, z + w[1], y + _u64(data, start + 16))
        z, x = x, z
    mul = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w = (w[0] + ((size - 1) & 63)) & _MASK, w[1]
    v = (v[0] + w[0]) & _MASK, v[1]
    w = (w[0] + v[0]) & _MASK, w[1]
    x = _rotate((x + y + v[0] + _u64(data, last + 8)) & _MASK, 37) * mul & _MASK
    y = _rotate((y + v[1] + _u64(data, last + 48)) & _MASK, 42) * mul & _MASK
    x ^= w[1] * 9 & _MASK
    y = (y + v[0] * 9 + _u64(data, last + 40)) & _MASK
    z = _rotate((z + w[0]) & _MASK, 33) * mul & _MASK
    v = _weak_hash_32(data, last, v[1] * mul, x + w[0])
    w = _weak_hash_32(data, last + 32, z + w[1], y + _u64(data, last + 16))
    z, x = x, z
    u = (_hash_16(v[0], w[0], mul) + _shift_mix(y) * _K0 + z) & _MASK
    return _hash_16(u, (_hash_16(v[1], w[1], mul) + x) & _MASK, mul)


def hash64(data: bytes) -> int:
    """The hash of ``StringToHashBucket``."""
    size = len(data)
    h = _MURMUR_SEED ^ size * _MURMUR & _MASK
    whole = size & ~7
    for (k,) in zip(unpack_from(f"<{whole // 8}Q", data)):
        k = k * _MURMUR & _MASK
        h = (h ^ (k ^ k >> 47) * _MURMUR & _MASK) * _MURMUR & _MASK
    if size != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MURMUR & _MASK
    h = (h ^ h >> 47) * _MURMUR & _MASK
    return h ^ h >> 47


def siphash24(key0: int, key1: int) -> Callable[[bytes], int]:
    """SipHash-2-4 under that key."""
    start = tuple(word ^ key for word, key in zip(_SIP_START, (key0, key1, key0, key1), strict=True))

    def siphash(data: bytes) -> int:
        size = len(data)
        words = unpack_from(f"<{size // 8}Q", data)
        tail = int.from_bytes(data[size & ~7 :], "little") | (size & 0xFF) << 56
        v0, v1, v2, v3 = start
        for word in (*words, tail):
            v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, 2)
            v0 ^= word
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2 ^ 0xFF, v3, 4)
        return v0 ^ v1 ^ v2 ^ v3

    return siphash


def _sip_rounds(v0: int, v1: int, v2: int, v3: int, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        v0 = (v0 + v1) & _MASK
        v1 = _rotate(v1, 51) ^ v0
        v2 = (v2 + v3) & _MASK
        v3 = _rotate(v3, 48) ^ v2
        v0 = _rotate(v0, 32)
        v0 = (v0 + v3) & _MASK
        v3 = _rotate(v3, 43) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotate(v1, 47) ^ v2
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3
