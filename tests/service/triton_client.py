"""What Triton's own client gets, as JSON: ``python -m tests.service.triton_client http|grpc[_aio] PORT``."""

from __future__ import annotations

import asyncio
import inspect
import json
import queue
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import numpy as np

X = np.full((2, 3), 5, np.float32)
Y = np.ones((2, 3), np.float32)
WORDS = np.array([b"a", b"", "ä".encode()], object)


async def value_of(found: Any) -> Any:
    """*found*, which an async client gives as something to be awaited."""
    return await found if inspect.isawaitable(found) else found


class Calls:
    """The calls of one of the four clients."""

    def __init__(self, kind: str, client: Any) -> None:
        self.kind = kind
        self.library = import_module(f"tritonclient.{kind.partition('_')[0]}")
        self.client = client

    def given(self, name: str, array: Any, datatype: str = "FP32") -> Any:
        """An input."""
        found = self.library.InferInput(name, list(array.shape), datatype)
        found.set_data_from_numpy(array)
        return found

    def sums(self) -> list[Any]:
        return [self.given("x", X), self.given("y", Y)]

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return await value_of(getattr(self.client, name)(*arguments, **options))

    async def refused(self, name: str, *arguments: Any, **options: Any) -> str:
        """The text of the error."""
        from tritonclient.utils import InferenceServerException

        try:
            await self.call(name, *arguments, **options)
        except InferenceServerException as error:
            return str(error.message())
        return "not refused"


async def what_it_gets(calls: Calls) -> dict[str, Any]:
    """The answers to one call of each kind."""
    found: dict[str, Any] = {
        "live": await calls.call("is_server_live"),
        "ready": await calls.call("is_server_ready"),
        "model_ready": [await calls.call("is_model_ready", name) for name in ("sums", "none")],
    }
    whole = await calls.call("infer", "sums", calls.sums(), request_id="7")
    found["whole"] = {name: whole.as_numpy(name).tolist() for name in ("sum", "diff")}
    output = calls.library.InferRequestedOutput("diff")
    one = await calls.call("infer", "sums", calls.sums(), outputs=[output], model_version="1")
    found["one"] = [one.as_numpy("diff").tolist(), one.as_numpy("sum") is None]
    words = await calls.call("infer", "words", [calls.given("x", WORDS, "BYTES")])
    found["words"] = [word.decode() for word in words.as_numpy("y")]
    found["refused"] = [
        await calls.refused("infer", "none", calls.sums()),
        await calls.refused("infer", "sums", calls.sums(), model_version="9"),
        await calls.refused("infer", "sums", calls.sums()[:1]),
        await calls.refused("infer", "sums", [calls.given("x", X), calls.given("y", WORDS, "BYTES")]),
        await calls.refused("infer", "slow", [calls.given("x", X[:1])], **_deadline(calls.kind)),
        await calls.refused("load_model", "none"),
    ]
    await calls.call("unload_model", "words")
    found["unloaded"] = await calls.call("is_model_ready", "words")
    await calls.call("load_model", "words")
    found["loaded"] = await calls.call("is_model_ready", "words")
    await calls.call("get_server_metadata")
    found["texts"] = {
        name: str(await calls.call(name, *arguments))
        for name, arguments in {
            "get_model_metadata": ["sums"],
            "get_model_config": ["sums"],
            "get_inference_statistics": ["sums"],
            "get_model_repository_index": [],
        }.items()
    }
    found["settings"] = [
        str(await calls.call("get_trace_settings", "sums")),
        str(await calls.call("update_trace_settings", "sums", {"trace_rate": "7", "trace_level": ["TIMESTAMPS"]})),
        str(await calls.call("update_trace_settings", "sums", {"trace_rate": None, "trace_level": None})),
        str(await calls.call("update_log_settings", {"log_verbose_level": 3, "log_info": False})),
        str(await calls.call("get_log_settings")),
        await calls.refused("update_trace_settings", None, {"trace_file": "other.json"}),
        await calls.refused("update_log_settings", {"log_file": "other.log"}),
    ]
    if calls.kind == "grpc":
        found["stream"] = stream(calls)
    if calls.kind == "grpc_aio":
        found["stream"] = await stream_async(calls)
    return found


def _deadline(kind: str) -> dict[str, Any]:
    return {"timeout": 50_000} if kind.startswith("http") else {"client_timeout": 0.05}


def stream(calls: Calls) -> list[float]:
    """The first elements of ten answers of a stream."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    calls.client.start_stream(lambda result, error: answers.put((result, error)))
    for i in range(10):
        calls.client.async_stream_infer("sums", [calls.given("x", X * i), calls.given("y", Y)])
    found = [float(answers.get(timeout=30)[0].as_numpy("sum")[0, 0]) for _ in range(10)]
    calls.client.stop_stream()
    return found


async def stream_async(calls: Calls) -> list[float]:
    """The same of the async client."""

    async def requests() -> Any:
        for i in range(10):
            yield {"model_name": "sums", "inputs": [calls.given("x", X * i), calls.given("y", Y)]}

    return [float(result.as_numpy("sum")[0, 0]) async for result, _ in calls.client.stream_infer(requests())]


async def main(kind: str, port: str) -> None:
    """Print what the client called *kind* gets."""
    module = import_module(f"tritonclient.{kind.replace('_', '.')}")
    client = module.InferenceServerClient(f"127.0.0.1:{port}")
    print(json.dumps(await what_it_gets(Calls(kind, client))))
    close: Callable[[], Awaitable[None] | None] = client.close
    await value_of(close())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
