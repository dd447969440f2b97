"""CTCLoss, CTCGreedyDecoder and CTCBeamSearchDecoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, i32, i64


def scores(times: int, batch: int, classes: int, dtype: Any = np.float32, *, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).normal(size=(times, batch, classes)) * 2).astype(dtype)


INDICES, VALUES = i64([0, 0], [0, 1], [0, 2], [1, 0], [1, 1]), i32(0, 1, 1, 2, 0)
NO_LABELS = np.zeros((0, 2), np.int64)


def loss(
    id: str, *, inputs: Any = None, indices: Any = INDICES, values: Any = VALUES, lengths: Any = (6, 4), **attrs: bool
) -> OpCase:
    inputs = scores(6, 2, 4) if inputs is None else inputs
    return case("CTCLoss", inputs, indices, values, np.array(lengths, np.int32), id=id, rtol=1e-4, atol=1e-5, **attrs)


def greedy(id: str, inputs: Any, lengths: Any, **attrs: Any) -> OpCase:
    return case("CTCGreedyDecoder", inputs, np.array(lengths, np.int32), id=id, **attrs)


def beam(id: str, inputs: Any, lengths: Any, width: int = 4, paths: int = 2, **attrs: Any) -> OpCase:
    attrs = {"beam_width": width, "top_paths": paths} | attrs
    return case("CTCBeamSearchDecoder", inputs, np.array(lengths, np.int32), id=id, rtol=1e-4, atol=1e-5, **attrs)


# What a sharp scorer would give: each of the classes in turn, and again.
SHARP = np.log(np.array([[[8, 1, 1]], [[8, 1, 1]], [[1, 1, 8]], [[8, 1, 1]], [[1, 8, 1]], [[1, 8, 1]]], np.float32))
IMPOSSIBLE = np.where(np.arange(4) == 1, -np.inf, np.zeros((3, 1, 4))).astype(np.float32)

CASES = [
    loss("float32"),
    loss("float64", inputs=scores(6, 2, 4, np.float64)),
    loss("repeated collapsed", preprocess_collapse_repeated=True),
    loss("not merged", ctc_merge_repeated=False),
    loss("collapsed, not merged", preprocess_collapse_repeated=True, ctc_merge_repeated=False),
    loss("too long", lengths=[2, 4]),
    loss("too long ignored", lengths=[2, 4], ignore_longer_outputs_than_inputs=True),
    loss("just fits", lengths=[3, 2]),
    loss("of no length", lengths=[0, 4], ignore_longer_outputs_than_inputs=True),
    loss("null label after", values=i32(0, 1, 3, 2, 0)),
    loss("null label between", values=i32(0, 3, 1, 2, 0)),
    loss("negative label", values=i32(0, -1, 1, 2, 0)),
    loss("label beyond", values=i32(0, 9, 9, 2, 0)),
    loss("labels with holes", indices=i64([0, 0], [0, 3], [0, 5], [1, 1], [1, 2])),
    loss("a batch without labels", indices=INDICES[:3], values=VALUES[:3]),
    loss("no labels", indices=NO_LABELS, values=np.zeros(0, np.int32)),
    loss("out of order", indices=INDICES[[1, 0, 2, 3, 4]]),
    loss("batch beyond", indices=i64([0, 0], [0, 1], [0, 2], [2, 0], [2, 1])),
    loss("other count", values=VALUES[:4]),
    loss("other batch", lengths=[6, 4, 2]),
    loss("length beyond", lengths=[7, 4]),
    loss("negative length", lengths=[-1, 4], ignore_longer_outputs_than_inputs=True),
    loss("matrix", inputs=scores(6, 2, 4)[0]),
    loss("impossible", inputs=IMPOSSIBLE, indices=i64([0, 0]), values=i32(1), lengths=[3]),
    loss("long", inputs=scores(40, 2, 12, seed=3), lengths=[40, 30]),
    greedy("float32", scores(6, 3, 4), [6, 4, 0]),
    greedy("float64", scores(6, 3, 4, np.float64), [6, 4, 1]),
    greedy("repeated", SHARP, [6]),
    greedy("merged", SHARP, [6], merge_repeated=True),
    greedy("merged noise", scores(30, 3, 3, seed=1), [30, 20, 10], merge_repeated=True),
    greedy("blank first", scores(6, 3, 4), [6, 4, 0], blank_index=0),
    greedy("blank last but one", scores(6, 3, 4), [6, 4, 0], blank_index=-2),
    greedy("blank beyond", scores(6, 3, 4), [6, 4, 0], blank_index=4),
    greedy("length beyond", scores(6, 1, 4), [7]),
    greedy("negative length", scores(6, 1, 4), [-1]),
    greedy("other batch", scores(6, 2, 4), [6]),
    greedy("matrix", scores(6, 2, 4)[0], [6]),
    greedy("empty", scores(0, 2, 4), [0, 0]),
    beam("float32", scores(6, 3, 4), [6, 4, 2]),
    beam("float64", scores(6, 3, 4, np.float64), [6, 4, 2]),
    beam("not merged", scores(8, 2, 3, seed=5), [8, 8], merge_repeated=False),
    beam("wide", scores(12, 2, 6, seed=6), [12, 9], width=30, paths=5, merge_repeated=False),
    beam("narrow", scores(20, 2, 6, seed=7), [20, 9], width=3, paths=3, merge_repeated=False),
    beam("one", scores(20, 2, 6, seed=8), [20, 9], width=1, paths=1, merge_repeated=False),
    beam("sharp", SHARP, [6], merge_repeated=True),
    beam("too many paths", scores(6, 1, 4), [6], width=2, paths=3),
    beam("too few leaves", scores(6, 1, 4), [0]),
    beam("length beyond", scores(6, 1, 4), [7]),
]
