"""Our side: the case as a graph, run in a session."""

from __future__ import annotations

from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.framework.errors import OpError
from asyncexec.framework.op_registry import registry
from tests.ops.op_case import OpCase
from tests.ops.op_runner import as_input, infer_attrs


async def run(case: OpCase) -> list[Any] | OpError | Exception:
    """The arrays the case gives, or the error it ends with."""
    try:
        return await _outputs(case)
    except Exception as error:
        return error


async def _outputs(case: OpCase) -> list[Any]:
    op_def = registry.lookup(case.op).op_def
    attrs = infer_attrs(op_def, case)
    with ax.Graph() as graph:
        rest, feeds, inputs = list(case.inputs), {}, []
        for arg in op_def.inputs:
            mine = []
            for dtype in arg.dtypes(attrs):
                value = as_input(rest.pop(0))
                fed = ax.placeholder(dtype, np.shape(value))
                feeds[fed] = value
                mine.append(fed)
            inputs.append(mine if arg.is_list else mine[0])
        made = ax.create_op(case.op, inputs, {name: value for name, value in attrs.items() if name in op_def.attrs})
    fetches = made if isinstance(made, list) else [made]
    if not op_def.outputs:
        fetches = []
    async with ax.Session(graph) as session:
        found: list[Any] = await session.run(fetches, feeds, targets=[] if op_def.outputs else [made])
    return [np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value) for value in found]
