"""Architectures of torchvision and transformers with random weights, exported by torch.onnx: equal to ONNX Runtime."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

pytestmark = [
    pytest.mark.torch,
    pytest.mark.deep,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]


def torch_() -> Any:
    """torch; it is imported when a test runs, for that takes seconds."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="module", autouse=True)
def exporter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Exports and runs once: what the exporter and ONNX Runtime keep open is open then.

    torchvision tells more of these ops when it is imported; where its library cannot be loaded they are not there, and
    where it can, it ends the process if they are there already.
    """
    torch = torch_()
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # its thread would stay
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    torch.onnx.export(torch.nn.Linear(1, 1), (torch.rand(1, 1),), path, dynamo=True, verbose=False)
    pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])


def vision(name: str, size: int = 64) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        models = pytest.importorskip("torchvision").models
        return models.get_model(name, weights=None, num_classes=10), (torch_().rand(2, 3, size, size),)

    return make


def text(model: str, **sizes: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        transformers = pytest.importorskip("transformers")
        config = getattr(transformers, f"{model}Config")(vocab_size=50, attn_implementation="eager", **sizes)
        whole = getattr(transformers, f"{model}Model")(config)

        keywords = {"use_cache": False} if model == "GPT2" else {}
        return first_of(whole, **keywords), (torch_().randint(0, 50, (2, 12)),)

    return make


def first_of(layer: Any, **keywords: Any) -> Any:
    """A module that gives the first output of *layer*."""

    class First(torch_().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x, **keywords)[0]

    return First()


def recurrent(kind: str, **options: Any) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        return first_of(getattr(torch_().nn, kind)(8, 16, 2, **options)), (torch_().rand(5, 2, 8),)

    return make


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ARCHITECTURES = {
    "resnet18": vision("resnet18"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "densenet121": vision("densenet121"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "shufflenet_v2_x0_5": vision("shufflenet_v2_x0_5"),
    "regnet_y_400mf": vision("regnet_y_400mf"),
    "convnext_tiny": vision("convnext_tiny"),
    "vit": lambda: (
        pytest.importorskip("torchvision").models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10),
        (torch_().rand(2, 3, 32, 32),),
    ),
    "swin_t": vision("swin_t"),
    "googlenet": lambda: (
        pytest.importorskip("torchvision").models.googlenet(
            weights=None, num_classes=10, aux_logits=False, init_weights=False
        ),
        (torch_().rand(1, 3, 64, 64),),
    ),
    "bert": text("Bert", **SMALL),
    "distilbert": text("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    "roberta": text("Roberta", **SMALL),
    "gpt2": text("GPT2", n_embd=32, n_layer=2, n_head=4),
    "lstm": recurrent("LSTM", bidirectional=True),
    "gru": recurrent("GRU"),
}
# What the exporters of torch refuse, with what they say.
UNEXPORTABLE = {("gpt2", False): "aten::diff"}


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "script"])
def test_an_export_gives_what_onnx_runtime_gives(name: str, dynamo: bool, tmp_path: Path) -> None:
    torch, onnxruntime = torch_(), pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    module, inputs = ARCHITECTURES[name]()
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module.eval(), inputs, path, dynamo=dynamo, verbose=False)
        except Exception as error:
            if UNEXPORTABLE.get((name, dynamo), "no such text") not in str(error):
                raise
            pytest.skip(f"torch cannot export it so: {str(error)[:80]}")
    arrays = [value.numpy() for value in inputs]
    runtime = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in runtime.get_inputs()]
    want = runtime.run(None, dict(zip(names, arrays, strict=True)))
    with ax.Graph() as graph:
        outputs = ax.import_onnx(path, dict(zip(names, arrays, strict=True)))

    with ax.BlockingSession(graph) as session:
        found = session.run(outputs)
    for got, wanted in zip(found, want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
