"""Architectures of torchvision with random weights, converted by pnnx: equal to torch."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of torch, while it traces
    pytest.mark.torch,
    pytest.mark.deep,
    pytest.mark.allow_blocking,
    pytest.mark.timeout(600),
]

ARCHITECTURES = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v2 "
    "mobilenet_v3_large mobilenet_v3_small regnet_y_400mf resnet18 resnet50 resnext50_32x4d shufflenet_v2_x1_0 "
    "squeezenet1_0 squeezenet1_1 swin_t vgg11_bn vit_b_16"
).split()
# Those whose rows meet, or that hold a row of their own, keep the batch that was traced.
KEEP_BATCH = {"maxvit_t", "swin_t", "vit_b_16"}


@pytest.fixture(scope="module")
def torchvision() -> Any:
    """torchvision's models, also where its library of compiled ops does not fit torch: no classifier needs them."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("pnnx")
    register = torch.library.register_fake
    torch.library.register_fake = lambda *_, **__: lambda function: function
    try:
        return pytest.importorskip("torchvision", exc_type=ImportError)
    finally:
        torch.library.register_fake = register


def converted(torchvision: Any, name: str, folder: Path) -> tuple[Any, Any]:
    """Have pnnx write the model *name*; gives an input, and torch's output."""
    import pnnx
    import torch

    torch.manual_seed(0)
    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, name)(weights=None, **options).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    if name == "vit_b_16":
        torch.nn.init.normal_(model.heads.head.weight)  # it begins with zeros
    size = 299 if name == "inception_v3" else 224
    x = torch.rand(1, 3, size, size)
    with torch.no_grad():
        y = model(x)
        torch.jit.trace(model, x, check_trace=False).save(str(folder / "m.pt"))
    command = [pnnx.EXEC_PATH, "m.pt", f"inputshape=[1,3,{size},{size}]", "fp16=0"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return x.numpy(), y.numpy()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_is_equal_to_torch(torchvision: Any, name: str, tmp_path: Path) -> None:
    x, y = converted(torchvision, name, tmp_path)
    model = ax.load_pnnx(tmp_path / "m.pnnx.param")
    with ax.Graph() as graph:
        ax.import_graph_def(model.graph_def)
    (given,) = model.signatures["serving_default"].inputs.values()
    assert given.shape.as_list() == [1 if name in KEEP_BATCH else None, *x.shape[1:]]
    config = ax.SessionConfig(slow_inline_ms=60_000)

    async def run(batch: Any, config: ax.SessionConfig = config) -> Any:
        async with ax.Session(graph, config) as session:
            return await session.run("pnnx_output_0:0", {given.name: batch})

    found = asyncio.run(run(x))
    assert np.max(np.abs(found - y)) < 1e-5 * np.max(np.abs(y))
    ordered = asyncio.run(run(x, ax.SessionConfig(executor_type="BREADTH_FIRST", slow_inline_ms=60_000)))
    np.testing.assert_array_equal(ordered, found)
    if name not in KEEP_BATCH:
        both = asyncio.run(run(np.concatenate([x, x])))
        assert np.max(np.abs(both - y)) < 1e-5 * np.max(np.abs(y))
