"""The models that Triton's tests ask, as graphs; a version of one is a ``graph.py`` that calls a function of these."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.service.models.files import ModelSource

DTYPES = {
    "BOOL": ax.bool,
    "INT8": ax.int8,
    "INT16": ax.int16,
    "INT32": ax.int32,
    "INT64": ax.int64,
    "UINT8": ax.uint8,
    "UINT16": ax.uint16,
    "UINT32": ax.uint32,
    "UINT64": ax.uint64,
    "FP16": ax.float16,
    "BF16": ax.bfloat16,
    "FP32": ax.float32,
    "FP64": ax.float64,
    "STRING": ax.string,
}


def identity(kind: str, rank: int, names: Sequence[tuple[str, str]], delay_s: float = 0.0) -> ModelSource:
    """Inputs and outputs by their *names*, each the same as the other, after *delay_s*."""

    @ax.op(outputs=[DTYPES[kind]])
    async def late(value: Any) -> Any:
        await asyncio.sleep(delay_s)
        return value

    inputs, outputs = {}, {}
    with ax.Graph() as graph:
        for taken, given in names:
            value = ax.placeholder(DTYPES[kind], [None] * rank, name=taken)
            inputs[taken] = value
            outputs[given] = late(value) if delay_s else ax.identity(value, name=given)
    return ModelSource(graph, inputs, outputs)


def add_sub(taken: str, first: str, second: str, rank: int, *, is_swapped: bool = False) -> ModelSource:
    """Inputs INPUT0 and INPUT1; outputs OUTPUT0, their sum, and OUTPUT1, their difference, or the other way round."""

    @ax.op(outputs=[DTYPES[first], DTYPES[second]])
    def compute(a: Any, b: Any) -> tuple[Any, Any]:
        a, b = (_number(value) if taken == "STRING" else value for value in (a, b))
        found = [a + b, a - b][:: -1 if is_swapped else 1]
        return tuple(_as(kind, value) for kind, value in zip((first, second), found, strict=True))  # type: ignore[return-value]

    with ax.Graph() as graph:
        inputs = {f"INPUT{i}": ax.placeholder(DTYPES[taken], [None] * rank, name=f"INPUT{i}") for i in range(2)}
        results = compute(*inputs.values())
    return ModelSource(graph, inputs, {f"OUTPUT{i}": result for i, result in enumerate(results)})


def _as(kind: str, values: Any) -> Any:
    if kind == "STRING":
        return np.vectorize(lambda value: str(value).encode(), otypes=[object])(values)
    return values.astype(DTYPES[kind].as_numpy_dtype)


def constant(values: Sequence[float], num_inputs: int = 1, num_optional: int = 0) -> ModelSource:
    """Output OUTPUT0, the same *values* whatever the inputs are; the last inputs are optional."""
    with ax.Graph() as graph:
        inputs = {}
        for i in range(num_inputs):
            name = f"INPUT{i}"
            if i < num_inputs - num_optional:
                inputs[name] = ax.placeholder(ax.float32, [None], name=name)
            else:
                inputs[name] = ax.placeholder_with_default(np.zeros(1, np.float32), [None], name=name)
        output = ax.constant(np.array(values, np.float32), name="OUTPUT0")
    return ModelSource(graph, inputs, {"OUTPUT0": output})


def repeat(way: str = "plain") -> ModelSource:
    """A response for each element of IN, OUT, with its place, IDX, each after a DELAY.

    Args:
        way: "double", for twice the element; "square", for each element as often as it says.
    """

    async def items(IN: Any, DELAY: Any) -> AsyncIterator[Any]:
        if len(IN) != len(DELAY):
            told = f"expected IN and DELAY shape to match, got {list(IN.shape)} and {list(DELAY.shape)}"
            raise ax.errors.InvalidArgumentError(told)
        for place, (value, delay_ms) in enumerate(zip(IN.tolist(), DELAY.tolist(), strict=False)):
            await asyncio.sleep(delay_ms / 1000)
            for _ in range(value if way == "square" else 1):
                yield np.array([value * (2 if way == "double" else 1), place], np.int32)

    with ax.Graph() as graph:
        kinds = {"IN": ax.int32, "DELAY": ax.uint32, "WAIT": ax.uint32}
        inputs = {name: ax.placeholder(kind, [None], name=name) for name, kind in kinds.items()}
        value, place = ax.split(ax.source(items, ax.int32, [2]), 2)
    return ModelSource(graph, inputs, {"OUT": value, "IDX": ax.cast(place, ax.uint32)})


def sequence(corrid: str | None = None) -> ModelSource:
    """OUTPUT is INPUT, plus 1 at the start; where ids of sequences have the type *corrid*, plus the id at the end."""

    def controls(*names: str) -> list[Any]:
        return [ax.placeholder(ax.int32, [None, 1], name=name) for name in names]

    with ax.Graph() as graph:
        value, start, end, _ = controls("INPUT", "START", "END", "READY")
        result = ax.add(value, start)
        if corrid is not None:
            given = ax.placeholder(DTYPES[corrid], [None, 1], name="CORRID")
            number = ax.op(_number, outputs=[ax.int32])(given)
            result = ax.add(result, ax.multiply(end, number))
        output = ax.identity(result, name="OUTPUT")
    return ModelSource(graph, outputs={"OUTPUT": output})


def _number(values: Any) -> Any:
    return np.vectorize(int, otypes=[np.int32])(values)


def failing(message: str, kind: str = "UINT8") -> ModelSource:
    """Fails with *message*."""

    @ax.op(outputs=[DTYPES[kind], DTYPES[kind]])
    def fail(value: Any) -> Any:
        raise ax.errors.InvalidArgumentError(message)

    with ax.Graph() as graph:
        given = ax.placeholder(DTYPES[kind], [None], name="INPUT")
        first, second = fail(given)
    return ModelSource(graph, {"INPUT": given}, {"OUTPUT0": first, "OUTPUT1": second})
