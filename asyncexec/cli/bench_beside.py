"""The same model in another runtime, where that is installed: what ``asyncexec bench --beside`` measures."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, MissingExtraError
from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from asyncexec.models.model import ModelSignature

_saved_models = LazyModule("asyncexec.importers.saved_model")

Runs: TypeAlias = Callable[[], Any]


class Beside(StrEnum):
    """The other runtimes."""

    ONNXRUNTIME = "onnxruntime"
    TENSORFLOW = "tensorflow"


def runner(other: Beside, path: Path, signature: ModelSignature) -> Callable[[Mapping[str, Any]], Runs]:
    """What makes a call of the model at *path*, in the other runtime at its defaults, of inputs.

    Raises:
        MissingExtraError: it is not installed.
        InvalidArgumentError: it cannot read such a file.
    """
    if other is Beside.ONNXRUNTIME:
        return _onnxruntime(path, signature)
    if _saved_models.is_saved_model(path):
        return _saved_model(path, signature)
    return _graph(path, signature)


def _installed(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not installed, so there is nothing to measure beside", hint=f"pip install {name}"
        ) from error


def _onnxruntime(path: Path, signature: ModelSignature) -> Callable[[Mapping[str, Any]], Runs]:
    if path.suffix.lower() != ".onnx":
        raise InvalidArgumentError(f"onnxruntime reads .onnx files, and {path.name!r} is none")
    session = _installed("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    outputs = [each.name for each in session.get_outputs()]
    del signature

    def make(inputs: Mapping[str, object]) -> Runs:
        if inputs.keys() - set(names):
            raise InvalidArgumentError(f"onnxruntime takes {', '.join(names)}, not {', '.join(inputs)}")
        return lambda: session.run(outputs, dict(inputs))

    return make


def _saved_model(path: Path, signature: ModelSignature) -> Callable[[Mapping[str, Any]], Runs]:
    tf: Any = _installed("tensorflow")
    loaded = tf.saved_model.load(str(path if path.is_dir() else path.parent))
    call = loaded.signatures[signature.name]

    def make(inputs: Mapping[str, object]) -> Runs:
        tensors = {
            name: tf.constant(value, tf.as_dtype(signature.inputs[name].dtype.name)) for name, value in inputs.items()
        }

        def run(model: object = loaded) -> Any:  # whose variables live as long as it does
            del model
            return {name: value.numpy() for name, value in call(**tensors).items()}

        return run

    return make


def _graph(path: Path, signature: ModelSignature) -> Callable[[Mapping[str, Any]], Runs]:
    if path.suffix.lower() != ".pb":
        raise InvalidArgumentError(f"TensorFlow is given SavedModels and .pb files here, and {path.name!r} is none")
    tf: Any = _installed("tensorflow")
    graph_def = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    session = tf.compat.v1.Session(graph=graph)
    fetches = [each.name for each in signature.outputs.values()]

    def make(inputs: Mapping[str, object]) -> Runs:
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return lambda: session.run(fetches, feeds)

    return make
