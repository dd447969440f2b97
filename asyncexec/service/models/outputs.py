"""What a graph has given, as tensors of the protocol."""

from __future__ import annotations

import numpy as np

from asyncexec.service.models.signature import TensorSpec
from asyncexec.service.requests import InferTensor


def as_output(spec: TensorSpec, value: object) -> InferTensor:
    """*value*, which a graph has given, as the output that *spec* describes."""
    if spec.inner_shape is None:
        return as_tensor(spec.datatype, value)
    return InferTensor(spec.datatype, spec.from_graph(as_tensor(spec.datatype, value).array))


def as_tensor(datatype: str, value: object) -> InferTensor:
    """*value*, which a graph has given, as a tensor of *datatype*."""
    if type(value) is np.ndarray:
        return InferTensor(datatype, value)
    if isinstance(value, (bytes, str)):
        array = np.empty((), object)
        array[()] = value
    else:
        array = np.asarray(value)
    return InferTensor(datatype, array)
