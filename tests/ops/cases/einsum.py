"""Cases of Einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case

RNG = np.random.default_rng(11)


def x(*shape: int, dtype: Any = np.float32) -> Any:
    values = RNG.normal(size=shape) * 3
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.normal(size=shape)
    return np.asarray(values).astype(dtype)


def eq(text: str, *shapes: tuple[int, ...], dtype: Any = np.float32, rtol: float = 1e-4) -> OpCase:
    name = f"{text} {' '.join('x'.join(map(str, shape)) or 'scalar' for shape in shapes)} {np.dtype(dtype).name}"
    inputs = [x(*shape, dtype=dtype) for shape in shapes]
    return case("Einsum", *inputs, id=name, equation=text.encode("latin-1"), rtol=rtol, atol=1e-4)


GOOD = [
    eq("ij,jk->ik", (2, 3), (3, 4)), eq("ij,jk->ki", (2, 3), (3, 4)), eq("ji,kj->ik", (3, 2), (4, 3)),
    eq("ij->ji", (2, 3)), eq("ij->i", (2, 3)), eq("ij->j", (2, 3)), eq("ij->", (2, 3)), eq("ij->ij", (2, 3)),
    eq("ii->", (3, 3)), eq("ii->i", (3, 3)), eq("i->ii", (3,)), eq("ii->ii", (3, 3)), eq("ij->iji", (3, 2)),
    eq("iij->j", (3, 3, 2)), eq("iijj->ij", (3, 3, 2, 2)), eq("iij,jkk->ik", (3, 3, 2), (2, 4, 4)),
    eq("i,j->ij", (2,), (3,)), eq("i,j->ji", (2,), (3,)), eq("i,i->", (3,), (3,)), eq("i,i->i", (3,), (3,)),
    eq("i,j->", (2,), (3,)), eq("i,->i", (3,), ()), eq(",i->i", (), (3,)), eq(",->", (), ()), eq("->", ()),
    eq("bij,bjk->bik", (2, 2, 3), (2, 3, 4)), eq("bij,bjk->ikb", (2, 2, 3), (2, 3, 4)),
    eq("bij,bkj->bik", (2, 2, 3), (2, 4, 3)), eq("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 3, 4)),
    eq("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 3, 2, 4)), eq("bhqk,bkhd->bqhd", (2, 2, 3, 3), (2, 3, 2, 4)),
    eq("abc,cd->abd", (2, 3, 4), (4, 5)), eq("abc,cde->abde", (2, 3, 4), (4, 2, 3)),
    eq("abcd,cdab->", (2, 3, 2, 2), (2, 2, 2, 3)), eq("abcd,cd->ab", (2, 3, 2, 2), (2, 2)),
    eq("ij,kl->lijk", (2, 3), (3, 2)), eq("ij,ij->ij", (2, 3), (2, 3)), eq("ij,ji->", (2, 3), (3, 2)),
    eq("ik,jk->ij", (2, 3), (2, 3)), eq("ijz,jk->ik", (2, 3, 2), (3, 4)), eq("ij,jkz->ik", (2, 3), (3, 4, 2)),
    eq("aB->Ba", (2, 3)), eq("i1,1 -> ", (2, 3), (3, 2)), eq("i1,1k->ik", (2, 3), (3, 2)),
    eq("...ij->...ji", (2, 3, 4)), eq("...ij->...ji", (3, 4)), eq("...ij->ji...", (2, 3, 4)),
    eq("...i,...j->...ij", (2, 3), (5, 1, 4)), eq("...ij,...jk->...ik", (2, 2, 3), (3, 4)),
    eq("...ij,jk->...ik", (2, 2, 3), (3, 4)), eq("ij,...jk->i...k", (2, 3), (2, 2, 3, 4)),
    eq("i...,i...->...", (3, 2), (3, 1, 2)), eq("i...j,j...->...i", (3, 2, 4), (4, 2)), eq("i...i->...", (3, 2, 3)),
    eq("i...->i...i", (3, 2)), eq("...->...", (2, 3)), eq("...i->...", (2, 3)), eq("...,...->...", (2, 1), (3,)),
    eq("ij->...ij", (2, 3)), eq("i,i->i...", (3,), (3,)), eq("...->", ()), eq("i...,j...->ij...", (2,), (3, 2)),
    eq("b...ij,b...jk->b...ik", (2, 1, 2, 3), (2, 4, 3, 2)), eq("...i,...i->...i", (2, 3), (1, 3)),
    eq("abc,cd->abd", (2, 3, 0), (0, 4)), eq("ij->i", (2, 0)), eq("ij,jk->ik", (0, 3), (3, 2)), eq("ii->i", (0, 0)),
    *[
        eq(text, *shapes, dtype=dtype)
        for dtype in (np.float64, np.int32, np.int64, np.complex64, np.complex128)
        for text, shapes in (
            ("bij,bjk->bik", ((2, 2, 3), (2, 3, 4))), ("ij->i", ((2, 3),)), ("ii->", ((3, 3),)), ("i->ii", ((3,),)),
            ("...i,...j->...ij", ((2, 3), (2, 4))),
        )
    ],
    eq("ij,jk->ik", (2, 3), (3, 4), dtype=np.float16, rtol=5e-3), eq("ij->i", (2, 3), dtype=np.float16, rtol=5e-3),
]  # fmt: skip

BAD = [
    eq("ij,jk", (2, 3), (3, 4)), eq("ij->ik->i", (2, 3)), eq("ij,jk-> ik", (2, 3), (3, 4)), eq("", ()),
    eq("ij,jk->ikz", (2, 3), (3, 4)), eq("ii->i", (3, 4)), eq("...ij->ji", (2, 3, 4)), eq("ij,kj->ik", (2, 1), (3, 4)),
    eq("...i,...j->...ij", (2, 3), (5, 3, 4)), eq("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), eq("ij->ij", (3,)),
    eq("......i->i", (3, 2, 3)), eq("i..->i", (3, 2)), eq("i.->i", (3,)), eq("a->a", (3, 2)), eq("a->a,", (3,)),
    eq("ab...->ba...", (3,)), eq("ij,jk->ik", (2, 3)), eq("..a..->a", (3,)), eq("ij, jk->ik", (2, 3), (3, 4)),
    eq("ij,jk->ik", (2, 3), (4, 4)),
]  # fmt: skip

CASES = [*GOOD, *BAD]
