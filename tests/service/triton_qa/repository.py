"""Folders of models for Triton's tests: a configuration, and for each version the call that makes its graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tensors = dict[str, tuple[str, list[int]]]
DEFAULTS = {"max_batch_size": 0}


@dataclass
class ModelFolder:
    """A model as it stands in a repository.

    Attributes:
        calls: what makes the graph of each version, a call of a function of ``models``.
        config: the fields of its ModelConfig, but for its inputs and outputs.
        optional: the inputs that may be left out.
        has_labels: whether the elements of its outputs have names.
    """

    name: str
    calls: dict[int, str]
    inputs: Tensors
    outputs: Tensors
    config: dict[str, Any] = field(default_factory=dict)
    optional: Sequence[str] = ()
    has_labels: bool = False

    def write(self, repository: Path) -> None:
        folder = repository / self.name
        for version, call in self.calls.items():
            (folder / str(version)).mkdir(parents=True)
            text = f"from tests.service.triton_qa import models\n\nmodel = models.{call}\n"
            (folder / str(version) / "graph.py").write_text(text)
        config = {"name": self.name} | DEFAULTS | self.config
        config["input"] = [self._spec(name, *each) for name, each in self.inputs.items()]
        config["output"] = [self._spec(name, *each) for name, each in self.outputs.items()]
        for i, spec in enumerate(config["output"] if self.has_labels else ()):
            spec["label_filename"] = f"output{i}_labels.txt"
        for spec in config["output"]:
            if "label_filename" in spec:
                (folder / spec["label_filename"]).write_text("".join(f"label{i}\n" for i in range(16)))
        (folder / "config.json").write_text(json.dumps(config, indent=1))

    def _spec(self, name: str, kind: str, dims: list[int]) -> dict[str, Any]:
        spec = {"name": name, "data_type": f"TYPE_{kind}", "dims": dims}
        return spec | ({"optional": True} if name in self.optional else {})


def identity(
    name: str,
    kind: str,
    dims: list[int],
    *,
    count: int = 1,
    batch: int = 8,
    delay_s: float = 0.0,
    **config: Any,
) -> ModelFolder:
    """Inputs INPUT0... and outputs OUTPUT0..., the same."""
    names = [(f"INPUT{i}", f"OUTPUT{i}") for i in range(count)]
    call = f"identity({kind!r}, {len(dims) + (batch > 0)}, {names!r}, {delay_s})"
    inputs, outputs = ({pair[i]: (kind, dims) for pair in names} for i in range(2))
    return ModelFolder(name, {1: call}, inputs, outputs, {"max_batch_size": batch} | config)


def add_sub(
    name: str,
    kinds: tuple[str, str, str],
    dims: list[int],
    *,
    batch: int = 8,
    versions: Sequence[int] = (1,),
) -> ModelFolder:
    """The sum and the difference of two inputs; versions after the first give them the other way round."""
    rank = len(dims) + (batch > 0)
    calls = {
        version: f"add_sub({', '.join(map(repr, kinds))}, {rank}, is_swapped={version > 1})" for version in versions
    }
    inputs = {f"INPUT{i}": (kinds[0], dims) for i in range(2)}
    outputs = {f"OUTPUT{i}": (kinds[i + 1], dims) for i in range(2)}
    config: dict[str, Any] = {"max_batch_size": batch, "version_policy": {"all": {}}}
    return ModelFolder(name, calls, inputs, outputs, config, has_labels=dims == [16])


def constant(
    name: str,
    values: Sequence[str],
    inputs: Tensors,
    size: int,
    optional: Sequence[str] = (),
) -> ModelFolder:
    """The same *values*, written as Python, whatever the inputs."""
    call = f"constant([{', '.join(values)}], {len(inputs)}, {len(optional)})"
    return ModelFolder(name, {1: call}, inputs, {"OUTPUT0": ("FP32", [size])}, {}, optional)


def repeat(name: str, way: str = "plain") -> ModelFolder:
    """A decoupled model, which repeats its input."""
    inputs = {"IN": ("INT32", [-1]), "DELAY": ("UINT32", [-1]), "WAIT": ("UINT32", [1])}
    outputs = {"OUT": ("INT32", [1])} | ({"IDX": ("UINT32", [1])} if way == "plain" else {})
    config = {"model_transaction_policy": {"decoupled": True}}
    return ModelFolder(name, {1: f"repeat({way!r})"}, inputs, outputs, config)


def sequence(name: str, corrid: str | None = None) -> ModelFolder:
    """A model of sequences of calls; *corrid* is the type of their ids, where it is told them."""
    kinds = {"START": "CONTROL_SEQUENCE_START", "END": "CONTROL_SEQUENCE_END", "READY": "CONTROL_SEQUENCE_READY"}
    controls: list[dict[str, Any]] = [
        {"name": each, "control": [{"kind": kind, "int32_false_true": [0, 1]}]} for each, kind in kinds.items()
    ]
    if corrid is not None:
        control = {"kind": "CONTROL_SEQUENCE_CORRID", "data_type": f"TYPE_{corrid}"}
        controls.append({"name": "CORRID", "control": [control]})
    batching = {"max_sequence_idle_microseconds": 5000000, "control_input": controls}
    config = {"max_batch_size": 8, "sequence_batching": batching}
    spec = {"INPUT": ("INT32", [1])}, {"OUTPUT": ("INT32", [1])}
    return ModelFolder(name, {1: f"sequence({corrid!r})"}, *spec, config)
