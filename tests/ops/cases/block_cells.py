"""LSTM and GRU cells, LSTM layers over time, and their gradients."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase

TIMES, BATCH, INPUT, CELL = 4, 2, 3, 5
SHAPES: Final = {
    "w": (INPUT + CELL, 4 * CELL),
    "wci": (CELL,),
    "wcf": (CELL,),
    "wco": (CELL,),
    "b": (4 * CELL,),
    "w_ru": (INPUT + CELL, 2 * CELL),
    "w_c": (INPUT + CELL, CELL),
    "b_ru": (2 * CELL,),
    "b_c": (CELL,),
}
LSTM: Final = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
STATES: Final = ("i", "cs", "f", "o", "ci", "co", "h")
GRU: Final = ("x", "h_prev", "w_ru", "w_c", "b_ru", "b_c")


def numbers(names: tuple[str, ...], dtype: Any, *, times: bool, **changed: Any) -> list[Any]:
    """An array for each input, of the shape that its name tells."""
    draw, found = np.random.default_rng(0), []
    for name in names:
        shape = SHAPES.get(name, (BATCH, INPUT if name == "x" else CELL))
        if times and name not in SHAPES and not name.endswith("prev"):
            shape = (TIMES, *shape)
        value = (draw.normal(size=shape) / 2).astype(dtype)
        found.append(changed.get(name, value))
    return found


def cell(
    op: str, id: str, names: tuple[str, ...], dtype: Any = np.float32, *, limit: Any = None, **given: Any
) -> OpCase:
    """A call of *op*; what is *given* and not an attr takes the place of an input."""
    attrs = {name: value for name, value in given.items() if name in ("use_peephole", "cell_clip", "forget_bias")}
    changed = {name: value for name, value in given.items() if name not in attrs}
    inputs = numbers(names, dtype, times="Block" in op[:6], **changed)
    if op.startswith("BlockLSTM"):
        inputs.insert(0, np.int64(TIMES) if limit is None else limit)
    tolerance = 2e-2 if dtype == np.float16 else 1e-5
    return OpCase(op, inputs, attrs, id, {}, tolerance, tolerance)


GRADS: Final = ("cs_grad", "h_grad")
CASES = [
    *(
        cell(op, f"{np.dtype(dtype).name} {peephole}", LSTM, dtype, use_peephole=peephole)
        for op in ("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2")
        for dtype in (np.float32, np.float16)
        for peephole in (False, True)
    ),
    *(
        cell(op, f"{np.dtype(dtype).name} {peephole}", (*LSTM, *states, *GRADS), dtype, use_peephole=peephole)
        for op, states in (
            ("LSTMBlockCellGrad", STATES[:-1]),
            ("BlockLSTMGrad", STATES),
            ("BlockLSTMGradV2", STATES),
        )
        for dtype in (np.float32, np.float16)
        for peephole in (False, True)
    ),
    cell("LSTMBlockCell", "clipped", LSTM, cell_clip=0.25, forget_bias=0.5),
    cell("LSTMBlockCell", "not clipped", LSTM, cell_clip=-1.0),
    cell("BlockLSTMV2", "clipped", LSTM, cell_clip=0.25),
    cell("BlockLSTM", "matrix", LSTM, x=np.zeros((2, 3), np.float32)),
    cell("BlockLSTMV2", "weights", LSTM, w=np.zeros((7, 20), np.float32)),
    cell("LSTMBlockCell", "bias", LSTM, b=np.zeros(19, np.float32)),
    cell("LSTMBlockCell", "batch", LSTM, h_prev=np.zeros((3, CELL), np.float32)),
    cell("BlockLSTMGradV2", "short", (*LSTM, *STATES, *GRADS), limit=np.int64(2), use_peephole=True),
    cell("GRUBlockCell", "plain", GRU),
    cell("GRUBlockCell", "weights", GRU, w_ru=np.zeros((8, 9), np.float32)),
    cell("GRUBlockCellGrad", "plain", (*GRU, "r", "u", "c", "d_h")),
    cell("GRUBlockCellGrad", "gate", (*GRU, "r", "u", "c", "d_h"), r=np.zeros((2, 4), np.float32)),
]
