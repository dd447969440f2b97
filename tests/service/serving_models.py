"""Models for the tests of TensorFlow Serving's protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import json_format

import asyncexec as ax
from asyncexec.service.models.files import ModelSource, ReadModel
from asyncexec.service.models.model import Model
from asyncexec.service.protocol_messages import message as config_message
from asyncexec.service.tf_serving.messages import message


def model_of(name: str, source: ModelSource) -> Model:
    """The model called *name* of *source*."""
    read = ReadModel.of(name, "1", source, config_message("ModelConfig")())
    return Model(name, "1", read.graph, read.signature, read.config)


def of_examples(name: str, **outputs: Any) -> Model:
    """The model called *name* whose *outputs*, by name, are the same arrays for whatever Examples it gets."""
    with ax.Graph() as graph:
        inputs = ax.placeholder(ax.string, [None], name="examples")
        tensors = {key: ax.constant(value, name=key) for key, value in outputs.items()}
    return model_of(name, ModelSource(graph, {"inputs": inputs}, tensors))


def reading_examples() -> Model:
    """The model "read": it says of each Example what its features are, as a label."""

    async def read(examples: Any) -> Any:
        parsed = (message("Example").FromString(each) for each in examples)
        labels = [json_format.MessageToJson(each.features, indent=None, sort_keys=True) for each in parsed]
        return np.array([[label.encode()] for label in labels], object)

    with ax.Graph() as graph:
        inputs = ax.placeholder(ax.string, [None], name="examples")
        classes = ax.op(outputs=[ax.string])(read)(inputs)
    source = ModelSource(graph, {"inputs": inputs}, {"classes": classes}, method_name="tensorflow/serving/classify")
    return model_of("read", source)
