"""What KServe's own clients get, as JSON: ``python -m tests.service.kserve_client HTTP_PORT GRPC_PORT``.

It is a program of its own, for its messages have the names that those of Triton's client have.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

X = np.full((2, 3), 5, np.float32)
Y = np.ones((2, 3), np.float32)


def request(model: str, *, is_binary: bool) -> InferRequest:
    """A request of both inputs."""
    inputs = []
    for name, array in (("x", X), ("y", Y)):
        inputs.append(InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(array, binary_data=is_binary)
    return InferRequest(model_name=model, infer_inputs=inputs)


def outputs(response: Any) -> dict[str, Any]:
    """The outputs of *response* by name."""
    return {output.name: output.as_numpy().tolist() for output in response.outputs}


async def over_rest(port: str) -> dict[str, Any]:
    """What the client of REST finds."""
    url = f"http://127.0.0.1:{port}"
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    try:
        return {
            "health": [await client.is_server_live(url), await client.is_server_ready(url)],
            "ready": [await client.is_model_ready(url, name) for name in ("sums", "none")],
            "json": outputs(await client.infer(url, request("sums", is_binary=False), model_name="sums")),
            "binary": outputs(await client.infer(url, request("sums", is_binary=True), model_name="sums")),
            "refused": await refused(client.infer(url, request("none", is_binary=False), model_name="none")),
        }
    finally:
        await client.close()


async def over_grpc(port: str) -> dict[str, Any]:
    """What the client of gRPC finds."""
    client = InferenceGRPCClient(f"127.0.0.1:{port}")
    try:
        return {
            "health": [await client.is_server_live(), await client.is_server_ready()],
            "ready": [await client.is_model_ready("sums")],
            "json": outputs(await client.infer(request("sums", is_binary=False))),
            "binary": outputs(await client.infer(request("sums", is_binary=True))),
            "refused": await refused(client.infer(request("none", is_binary=False))),
        }
    finally:
        await client.close()


async def refused(call: Any) -> str:
    """The error of *call*."""
    try:
        return f"answered: {await call}"
    except Exception as error:
        return str(error)


async def main() -> None:
    """Print what both find."""
    print(json.dumps({"rest": await over_rest(sys.argv[1]), "grpc": await over_grpc(sys.argv[2])}))


if __name__ == "__main__":
    asyncio.run(main())
