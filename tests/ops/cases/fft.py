"""Cases of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, i32

RNG = np.random.default_rng(5)


def x(*shape: int, dtype: Any = np.complex64) -> Any:
    values = RNG.normal(size=shape)
    return (values + 1j * RNG.normal(size=shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def real_cases(op: str, dtype: Any, out: str, rank: int) -> list[OpCase]:
    def rfft(name: str, value: Any, *lengths: int, **attrs: Any) -> OpCase:
        return case(op, value, i32(*lengths), id=f"{np.dtype(dtype).name}_{name}", rtol=1e-4, atol=1e-5, **attrs)

    types = {"Tcomplex": out} if op[0] == "R" else {"Treal": out}
    shape = (6, 5, 6)[3 - rank :]
    return [
        rfft("even", x(2, *shape, dtype=dtype), *([4] * rank), **types),
        rfft("odd", x(*shape, dtype=dtype), *([5] * rank), **types),
        rfft("one", x(*shape, dtype=dtype), *([1] * rank), **types),
        rfft("too_long", x(*shape, dtype=dtype), *([16] * rank), **types),
        rfft("negative", x(*shape, dtype=dtype), *([-1] * rank), **types),
        rfft("empty", x(0, *shape, dtype=dtype), *([4] * rank), **types),
        rfft("length_size", x(*shape, dtype=dtype), *([4] * (rank + 1)), **types),
        rfft("low_rank", x(*shape[1:], dtype=dtype), *([4] * rank), **types),
    ]


CASES = [
    *[
        case(name + suffix, x(*shape, dtype=dtype), id=f"{np.dtype(dtype).name}_{len(shape)}_{shape[-1]}", rtol=1e-4,
             atol=1e-5)
        for name in ("FFT", "IFFT")
        for suffix, shapes in (
            ("", ((5,), (2, 8), (0,), (3, 0), ())), ("2D", ((3, 4), (2, 2, 5), (3, 0), (4,))),
            ("3D", ((2, 3, 4), (2, 2, 2, 2), (3, 4))),
        )
        for shape in [s for s in shapes if s]
        for dtype in (np.complex64, np.complex128)
    ],
    case("FFT", np.complex64(1), id="scalar"),
    *real_cases("RFFT", np.float32, "complex64", 1), *real_cases("RFFT", np.float64, "complex128", 1),
    *real_cases("IRFFT", np.complex64, "float32", 1), *real_cases("IRFFT", np.complex128, "float64", 1),
    *real_cases("RFFT2D", np.float32, "complex64", 2), *real_cases("IRFFT2D", np.complex64, "float32", 2),
    *real_cases("RFFT3D", np.float32, "complex64", 3), *real_cases("IRFFT3D", np.complex64, "float32", 3),
    case("RFFT", x(4, dtype=np.float32), i32(4), id="mixed", Tcomplex="complex128"),
]  # fmt: skip
