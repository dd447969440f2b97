"""Asks real TensorFlow what its optimizers do: ``python -m tests.golden.make_training_op_golden``.

Needs tensorflow-cpu (group ``oracle``).  Writes ``tests/golden/training_ops.json``: for each case of
``tests/ops/training_cases.py`` the values of the variables after its steps, or the code of the error.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tests.golden.make_op_golden import encode
from tests.ops.training_cases import CASES, STEPS, TrainingCase

FILE = Path(__file__).parent / "training_ops.json"


def answer(case: TrainingCase) -> dict[str, Any]:
    try:
        with tf.Graph().as_default():
            variables = [
                tf.compat.v1.Variable(value, use_resource=case.op.startswith("Resource"))
                for value in case.variables.values()
            ]
            handles = [v.handle if case.op.startswith("Resource") else v._ref() for v in variables]
            arguments = dict(zip(names_of(case.op), [*handles, *map(tf.constant, case.inputs.values())], strict=True))
            update = getattr(tf.raw_ops, case.op)(**arguments, **case.attrs)
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                for _ in range(STEPS):
                    session.run(getattr(update, "op", update))
                return {"outputs": [encode(value) for value in session.run(variables)]}
    except tf.errors.OpError as error:
        return {"error": error.error_code}
    except ValueError:
        return {"error": 3}


def names_of(op: str) -> list[str]:
    return [arg.name for arg in op_def_registry.get(op).input_arg]


def main() -> None:
    lines = ",\n".join(f"{json.dumps(case.label)}: {json.dumps(answer(case))}" for case in CASES)
    FILE.write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(f"{len(CASES)} answers")


if __name__ == "__main__":
    main()
