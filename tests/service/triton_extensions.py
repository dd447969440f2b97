"""What Triton's own client gets of its extensions: ``python -m tests.service.triton_extensions http|grpc PORT``."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

import numpy as np

X = np.full((2, 3), 5, np.float32)
Y = np.array([[1, 3, 2], [9, 7, 8]], np.float32)


def in_shared_memory(library: Any, client: Any) -> dict[str, Any]:
    """The sum of inputs in shared memory, put there too, and what is told of the regions."""
    shared = import_module("tritonclient.utils.shared_memory")
    size, key = X.nbytes, f"/asyncexec_test_{os.getpid()}"
    inputs = shared.create_shared_memory_region("in", f"{key}_in", 2 * size)
    outputs = shared.create_shared_memory_region("out", f"{key}_out", 2 * size)
    try:
        shared.set_shared_memory_region(inputs, [X, Y])
        client.register_system_shared_memory("in", f"{key}_in", 2 * size)
        client.register_system_shared_memory("out", f"{key}_out", 2 * size)
        status = client.get_system_shared_memory_status()
        x = library.InferInput("x", [2, 3], "FP32")
        x.set_shared_memory("in", size)
        y = library.InferInput("y", [2, 3], "FP32")
        y.set_shared_memory("in", size, offset=size)
        wanted = library.InferRequestedOutput("sum")
        wanted.set_shared_memory("out", size, offset=size)
        result = client.infer("sums", [x, y], outputs=[wanted, library.InferRequestedOutput("diff")])
        found = shared.get_contents_as_numpy(outputs, np.float32, [2, 3], offset=size)
        told = {"sum": found.tolist(), "diff": result.as_numpy("diff").tolist(), "status": str(status)}
        client.unregister_system_shared_memory("in")
        client.unregister_system_shared_memory()
        return {**told, "after": str(client.get_system_shared_memory_status())}
    finally:
        shared.destroy_shared_memory_region(inputs)
        shared.destroy_shared_memory_region(outputs)


def as_classes(library: Any, client: Any) -> list[list[str]]:
    """The two largest of each row of a sum."""
    inputs = [library.InferInput(name, [2, 3], "FP32") for name in "xy"]
    for each, array in zip(inputs, (X, Y), strict=True):
        each.set_data_from_numpy(array)
    wanted = library.InferRequestedOutput("sum", class_count=2)
    result = client.infer("sums", inputs, outputs=[wanted]).as_numpy("sum")
    return [[item.decode() for item in row] for row in result]


def main(kind: str, port: str) -> None:
    """Print what the client called *kind* gets."""
    library = import_module(f"tritonclient.{kind}")
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        print(json.dumps({"shared": in_shared_memory(library, client), "classes": as_classes(library, client)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
