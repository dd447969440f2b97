"""Asks real TensorFlow for the answers of the op cases: ``python -m tests.golden.make_op_golden [family ...]``.

Needs tensorflow-cpu (group ``oracle``).  Writes ``tests/golden/ops/<family>.json``; an answer is a list of outputs or
an
error's status code, and is only ever made here, never by our own kernels.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import tests.ops.cases
from asyncexec.framework.op_registry import registry as op_registry
from tests.ops.op_case import OpCase
from tests.ops.op_runner import infer_attrs

FOLDER = Path(__file__).parent / "ops"


def encode(value: Any) -> dict[str, Any]:
    # numpy's own strings end before a zero byte
    array = np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
    if array.dtype.kind in "OS":
        data: Any = [base64.b64encode(item).decode() for item in array.astype(object).flat]
        return {"dtype": "string", "shape": list(array.shape), "data": data}
    if array.dtype.names:  # a quantized integer is a record of one
        array = array.view(array.dtype[0])
    raw = np.ascontiguousarray(array).tobytes()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": base64.b64encode(raw).decode()}


def tf_attr(value: Any) -> Any:
    if isinstance(value, tuple):
        return [tf_attr(item) for item in value]
    if type(value).__name__ == "DType":
        return tf.dtypes.as_dtype(value.name)
    if type(value).__name__ == "TensorShape":
        return tf.TensorShape(value.dims)
    return value


def answer(case: OpCase) -> dict[str, Any]:
    op_def = op_registry.lookup(case.op).op_def
    attrs = infer_attrs(op_def, case)
    graph = tf.Graph()
    try:
        with graph.as_default():
            placeholders, feeds, rest = [], {}, list(case.inputs)
            for arg in op_def.inputs:
                dtypes = arg.dtypes(attrs)
                mine = []
                for dtype in dtypes:
                    value = rest.pop(0)
                    tensor = tf.compat.v1.placeholder(tf.dtypes.as_dtype(dtype.name), np.shape(value))
                    feeds[tensor] = value
                    mine.append(tensor)
                placeholders += [mine] if arg.is_list else mine
            flat = [t for item in placeholders for t in (item if isinstance(item, list) else [item])]
            node = graph.create_op(
                case.op,
                flat,
                [tf.dtypes.as_dtype(d.name) for d in op_def.output_dtypes(attrs)],
                name=case.op.lstrip("_"),
                attrs={
                    name: _attr_value(op_def.attrs[name].kind, tf_attr(value))
                    for name, value in attrs.items()
                    if name in op_def.attrs
                },
            )
            config = tf.compat.v1.ConfigProto()
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            with tf.compat.v1.Session(config=config) as session:
                outputs = session.run(list(node.outputs), feeds) if node.outputs else session.run(node, feeds) or []
    except tf.errors.OpError as error:
        return {"error": error.error_code}
    except ValueError as error:
        return {"error": 3, "message": str(error)[:200]}
    return {"outputs": [encode(value) for value in outputs]}


def _attr_value(kind: str, value: Any) -> Any:
    message = tf.compat.v1.AttrValue()
    element = kind[5:-1] if kind.startswith("list(") else kind
    if kind.startswith("list("):
        message.list.SetInParent()
        for item in value:
            if element == "shape":
                message.list.shape.append(item.as_proto())
            elif element == "type":
                message.list.type.append(item.as_datatype_enum)
            else:
                getattr(message.list, {"int": "i", "float": "f", "bool": "b", "string": "s"}[element]).append(item)
        return message
    if element == "shape":
        message.shape.CopyFrom(value.as_proto())
    elif element == "type":
        message.type = value.as_datatype_enum
    elif element == "tensor":
        message.tensor.CopyFrom(tf.make_tensor_proto(value))
    elif element == "func":
        message.func.name = value.name
    else:
        setattr(message, {"int": "i", "float": "f", "bool": "b", "string": "s"}[element], value)
    return message


def main(families: list[str]) -> None:
    known = [module.name for module in pkgutil.iter_modules(tests.ops.cases.__path__)]
    for family in families or known:
        cases: list[OpCase] = importlib.import_module(f"tests.ops.cases.{family}").CASES
        labels = [case.label for case in cases]
        twice = {label for label in labels if labels.count(label) > 1}
        if twice:
            sys.exit(f"{family}: labels used twice: {sorted(twice)}")
        answers = {case.label: answer(case) for case in cases}
        for label, found in answers.items():
            if "error" in found:
                print(f"{family}: {label}: error {found['error']} {found.get('message', '')}")
        lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(found)}" for label, found in answers.items())
        (FOLDER / f"{family}.json").write_text("{\n" + lines + "\n}\n")
        print(f"{family}: {len(answers)} answers")


if __name__ == "__main__":
    main(sys.argv[1:])
