"""What a graph has given, as tensors of the protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import InferTensor


def as_output(spec: TensorSpec, value: Any) -> InferTensor:
    """*value*, which a graph has given, as the output that *spec* describes."""
    found = as_tensor(spec.datatype, value)
    return found if spec.inner_shape is None else InferTensor(spec.datatype, spec.from_graph(found.array))


def as_tensor(datatype: str, value: Any) -> InferTensor:
    """*value*, which a graph has given, as a tensor of *datatype*."""
    if isinstance(value, (bytes, str)):
        array = np.empty((), object)
        array[()] = value
    else:
        array = np.asarray(value)
    return InferTensor(datatype, array)
