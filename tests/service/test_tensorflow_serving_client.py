"""TensorFlow Serving's own stubs, unchanged, against the service."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.models.files import ModelSource
from asyncexec.service.server import serving
from asyncexec.service.tf_serving.messages import message
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums

pytest.importorskip("tensorflow_serving")
pytestmark = [pytest.mark.clients, pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library")]


def ask(port: int | None) -> Any:
    """What the stubs get from the service on *port*."""
    command = [sys.executable, "-m", "tests.service.tensorflow_serving_client", str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def of_feature(*outputs: str) -> ModelSource:
    """A model of Examples: its scores are twice their feature x, and its classes are called "x"."""

    async def read(examples: Any) -> Any:
        parsed = [message("Example").FromString(each) for each in examples]
        return np.array([[each.features.feature["x"].float_list.value[0]] for each in parsed], np.float32)

    with ax.Graph() as graph:
        examples = ax.placeholder(ax.string, [None], name="examples")
        x = ax.op(outputs=[ax.float32])(read)(examples)
        found = {"scores": x * 2.0, "outputs": x * 2.0, "classes": ax.fill(ax.shape(x), b"x")}
    kind = "classify" if "classes" in outputs else "regress"
    named = {name: found[name] for name in outputs}
    return ModelSource(graph, {"inputs": examples}, named, method_name=f"tensorflow/serving/{kind}")


async def test_tensorflow_servings_stubs() -> None:
    models = {"sums": sums(), "classes": of_feature("classes", "scores"), "values": of_feature("outputs")}
    async with nothing_of_grpc_left(), serving(models, http_port=0, grpc_port=0) as ports:
        found = await asyncio.to_thread(ask, ports.grpc)
    assert found == {
        "predicted": {"sum": [[6.0] * 3] * 2, "diff": [[4.0] * 3] * 2},
        "classified": [[["x", 2.0]], [["x", 4.0]]],
        "regressed": [2.0, 4.0],
        "inferred": [6.0],
        "described": {"inputs": ["x", "y"], "state": "AVAILABLE"},
        "refused": ["NOT_FOUND", found["refused"][1]],
    }
    assert "none" in found["refused"][1]
