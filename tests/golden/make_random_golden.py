"""Asks real TensorFlow for the numbers of its stateful random ops: ``python -m tests.golden.make_random_golden``.

Needs tensorflow-cpu (group ``oracle``).  Writes ``tests/golden/random_stateful.json``: for each call of
``tests/ops/random_cases.py`` the outputs of several runs of one fresh session.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from asyncexec.framework.op_registry import registry as op_registry
from tests.golden.make_op_golden import _attr_value, encode, tf, tf_attr
from tests.ops.op_case import OpCase
from tests.ops.op_runner import infer_attrs
from tests.ops.random_cases import CASES, RUNS

FILE = Path(__file__).parent / "random_stateful.json"


def answer(case: OpCase) -> list[dict[str, Any]]:
    op_def = op_registry.lookup(case.op).op_def
    attrs = infer_attrs(op_def, case)
    with tf.Graph().as_default() as graph:
        dtypes = [tf.dtypes.as_dtype(dtype.name) for dtype in op_def.input_dtypes(attrs)]
        inputs = [
            tf.compat.v1.placeholder(dtype, np.shape(value)) for dtype, value in zip(dtypes, case.inputs, strict=True)
        ]
        node = graph.create_op(
            case.op,
            inputs,
            [tf.dtypes.as_dtype(dtype.name) for dtype in op_def.output_dtypes(attrs)],
            attrs={name: _attr_value(op_def.attrs[name].kind, tf_attr(value)) for name, value in attrs.items()},
        )
        with tf.compat.v1.Session() as session:
            feeds = dict(zip(inputs, case.inputs, strict=True))
            return [encode(session.run(node.outputs[0], feeds)) for _ in range(RUNS)]


def main() -> None:
    lines = ",\n".join(f"{json.dumps(case.label)}: {json.dumps(answer(case))}" for case in CASES)
    FILE.write_text("{\n" + lines + "\n}\n")
    print(f"{len(CASES)} answers")


if __name__ == "__main__":
    main()
