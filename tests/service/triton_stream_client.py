"""What Triton's own client gets of sequences and decoupled models, as JSON: ``... http|grpc[_aio] PORT``."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import numpy as np

from tests.service.triton_client import Calls, value_of


def numbers(calls: Calls, name: str, *values: int, datatype: str = "INT32") -> Any:
    array = np.array(values, np.int32 if datatype == "INT32" else np.uint32)
    return calls.given(name, array, datatype)


async def of_sequences(calls: Calls) -> dict[str, Any]:
    """The sums of two sequences that are called by turns, and what is refused."""
    found: dict[str, Any] = {"sums": []}
    for i, sequence in [(1, 5), (10, "five"), (2, 5), (20, "five"), (3, 5), (30, "five")]:
        flags = {"sequence_start": i in (1, 10), "sequence_end": i in (3, 30)}
        result = await calls.call("infer", "sums", [numbers(calls, "INPUT", i)], sequence_id=sequence, **flags)
        found["sums"].append(int(result.as_numpy("OUTPUT")[0]))
    inputs = [numbers(calls, "INPUT", 1)]
    found["refused"] = [
        await calls.refused("infer", "sums", inputs),
        await calls.refused("infer", "sums", inputs, sequence_id=5),
        await calls.refused("infer", "square", [numbers(calls, "IN", 2)]),
    ]
    return found


def repeated(calls: Calls, *values: int) -> list[Any]:
    delays = numbers(calls, "DELAY", *([1] * len(values)), datatype="UINT32")
    return [numbers(calls, "IN", *values), delays]


def requests(calls: Calls) -> list[dict[str, Any]]:
    """Requests of one stream: of decoupled models, and of a sequence."""
    asked: list[dict[str, Any]] = [
        {"model_name": "repeat", "inputs": repeated(calls, 7, 8, 9), "request_id": "repeat"},
        {"model_name": "repeat", "inputs": repeated(calls), "request_id": "none"},
        {"model_name": "square", "inputs": [numbers(calls, "IN", 3)], "request_id": "square"},
    ]
    for i in (1, 2, 3):
        flags = {"sequence_id": 9, "sequence_start": i == 1, "sequence_end": i == 3}
        inputs = [numbers(calls, "INPUT", i)]
        asked.append({"model_name": "sums", "inputs": inputs, "request_id": f"sum {i}", **flags})
    return asked


def add(found: dict[str, list[int]], result: Any) -> bool:
    """Note the outputs of *result*; whether it is the last of its request."""
    response = result.get_response()
    output = {"square": "OUT", "repeat": "OUT"}.get(response.id, "OUTPUT")
    if response.outputs:
        found.setdefault(response.id, []).append(int(result.as_numpy(output)[0]))
    return bool(response.parameters["triton_final_response"].bool_param)


def stream(calls: Calls) -> dict[str, Any]:
    """What the callback of a stream gets: outputs by the ids of requests, and errors."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    found: dict[str, list[int]] = {}
    asked = requests(calls)
    calls.client.start_stream(lambda result, error: answers.put((result, error)))
    for each in asked:
        calls.client.async_stream_infer(**each, enable_empty_final_response=True)
    num_finals = 0
    while num_finals < len(asked):
        num_finals += add(found, answers.get(timeout=60)[0])
    calls.client.async_stream_infer("square", [], request_id="wrong")
    error = str(answers.get(timeout=60)[1])
    calls.client.stop_stream()
    calls.client.start_stream(lambda result, error: answers.put((result, error)))
    calls.client.async_stream_infer("endless", [numbers(calls, "IN", 1)])
    answers.get(timeout=60)
    calls.client.stop_stream(cancel_requests=True)
    while not answers.empty():
        answers.get()
    calls.client.start_stream(lambda result, error: answers.put((result, error)), stream_timeout=0.5)
    calls.client.async_stream_infer("silent", [numbers(calls, "IN", 2)])
    late = str(answers.get(timeout=60)[1])
    calls.client.stop_stream()
    return {"outputs": found, "error": error, "late": late}


async def stream_async(calls: Calls) -> dict[str, Any]:
    """The same of the async client."""
    found: dict[str, list[int]] = {}
    asked = requests(calls)

    async def given(*requests: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for each in requests:
            yield {**each, "enable_empty_final_response": True}

    async for result, _ in calls.client.stream_infer(given(*asked)):
        add(found, result)
    errors = [error async for _, error in calls.client.stream_infer(given({"model_name": "square", "inputs": []}))]
    endless = calls.client.stream_infer(given({"model_name": "endless", "inputs": [numbers(calls, "IN", 1)]}))
    await anext(endless)
    endless.cancel()
    silent = given({"model_name": "silent", "inputs": [numbers(calls, "IN", 2)]})
    try:
        await anext(calls.client.stream_infer(silent, stream_timeout=0.5))
        late = "not late"
    except Exception as error:
        late = str(error)
    return {"outputs": found, "error": str(errors[0]), "late": late}


async def main(kind: str, port: str) -> None:
    """Print what the client called *kind* gets."""
    module = import_module(f"tritonclient.{kind.replace('_', '.')}")
    calls = Calls(kind, module.InferenceServerClient(f"127.0.0.1:{port}"))
    found = await of_sequences(calls)
    if kind.startswith("grpc"):
        found |= await stream_async(calls) if kind == "grpc_aio" else stream(calls)
    print(json.dumps(found))
    await value_of(calls.client.close())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
