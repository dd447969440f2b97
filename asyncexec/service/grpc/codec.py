"""Messages of the Open Inference Protocol, as gRPC carries them, to requests of models; and answers to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.datatypes import described, from_raw, to_raw
from asyncexec.service.requests import (
    NO_PARAMETERS,
    InferRequest,
    InferResponse,
    InferTensor,
    OutputOptions,
    SharedInput,
)
from asyncexec.service.tensor_parameters import output_options, parameters_of_part, shared_part

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

# The field of InferTensorContents that has the elements of a datatype, and the dtype of that field.
_FIELDS: Final = {
    "BOOL": ("bool_contents", np.bool_),
    "INT8": ("int_contents", np.int32),
    "INT16": ("int_contents", np.int32),
    "INT32": ("int_contents", np.int32),
    "INT64": ("int64_contents", np.int64),
    "UINT8": ("uint_contents", np.uint32),
    "UINT16": ("uint_contents", np.uint32),
    "UINT32": ("uint_contents", np.uint32),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
    "BYTES": ("bytes_contents", np.object_),
}
_INT64: Final = np.iinfo(np.int64)
_MOST_TENSORS: Final = 1000  # inputs of a request, and outputs
_MOST_PARAMETERS: Final = 10_000
_MOST_SIZES: Final = 100  # of a shape that are looked at; any shape has fewer
_PIECE: Final = 2**14  # strings taken at once: nothing else runs in Python meanwhile


def request_of(message: Any) -> InferRequest:
    """What *message*, a ModelInferRequest, asks for.

    Raises:
        InvalidArgumentError: the data of an input does not fit its datatype and shape; an input is there twice; there
            are too many inputs, outputs or parameters, or one of a tensor is wrong.
    """
    check_number("inputs", message.inputs)
    check_number("outputs", message.outputs)
    tensors, wanted, raw = list(message.inputs), list(message.outputs), message.raw_input_contents
    shared = _shared_inputs(tensors)
    if raw and len(raw) != len(tensors) - len(shared):
        raise InvalidArgumentError(
            f"raw_input_contents has {len(raw)} elements for {len(tensors) - len(shared)} inputs: "
            "give the data of all inputs there, or of none"
        )
    inputs: dict[str, InferTensor] = {}
    for tensor in tensors:
        name, datatype = tensor.name, tensor.datatype
        if name in shared:
            continue
        if name in inputs:
            raise InvalidArgumentError(f"input '{name}' is given twice")
        if not raw:
            array = from_contents(tensor)
        elif tensor.HasField("contents"):
            raise InvalidArgumentError(
                f"contents field must not be specified when using raw_input_contents for '{name}'"
            )
        else:
            array = from_raw(name, datatype, _shape_of(tensor), raw[len(inputs)])
        inputs[name] = InferTensor(datatype, array)
    return InferRequest(
        message.model_name,
        inputs,
        [tensor.name for tensor in wanted] if wanted else None,
        message.model_version,
        message.id,
        parameters_of(message.parameters) if message.parameters else NO_PARAMETERS,
        shared or None,
        (_options(wanted) or None) if wanted else None,
    )


def _shared_inputs(tensors: Sequence[Any]) -> dict[str, SharedInput]:
    """Those of *tensors*, inputs, that are in shared memory."""
    shared: dict[str, SharedInput] = {}
    for tensor in tensors:
        if not tensor.parameters or (part := shared_part(tensor.name, parameters_of(tensor.parameters))) is None:
            continue
        if tensor.HasField("contents"):
            raise InvalidArgumentError(f"input '{tensor.name}' has contents, and names shared memory")
        shared[tensor.name] = SharedInput(tensor.datatype, _shape_of(tensor), part)
    if shared and len({tensor.name for tensor in tensors}) < len(tensors):
        raise InvalidArgumentError("an input is given twice")
    return shared


def _options(outputs: Any) -> dict[str, OutputOptions]:
    """How those of *outputs* are wanted that are not wanted as they are."""
    options: dict[str, OutputOptions] = {}
    for tensor in outputs:
        if tensor.parameters and (found := output_options(tensor.name, parameters_of(tensor.parameters))) is not None:
            options[tensor.name] = found
    return options


def check_number(field: str, tensors: Sized) -> None:
    """InvalidArgumentError where *field* of a request has too many *tensors*."""
    if len(tensors) > _MOST_TENSORS:
        raise InvalidArgumentError(f"the request has {len(tensors)} {field}: at most {_MOST_TENSORS} are taken")


def fill_response(message: Any, response: InferResponse) -> None:
    """Put *response* into *message*, an empty ModelInferResponse."""
    message.model_name = response.model_name
    message.model_version = response.model_version
    message.id = response.id
    if response.parameters:
        set_parameters(message.parameters, response.parameters)
    for name, value in response.outputs.items():
        output = message.outputs.add(name=name, datatype=value.datatype, shape=value.array.shape)
        if value.part is not None:
            set_parameters(output.parameters, parameters_of_part(value.part))
        message.raw_output_contents.append(b"" if value.part is not None else to_raw(value.array))


def parameters_of(parameters: Mapping[str, object]) -> dict[str, Any]:
    """The plain values of *parameters*, a map of InferParameter or of ModelRepositoryParameter."""
    if len(parameters) > _MOST_PARAMETERS:
        raise InvalidArgumentError(f"there are {len(parameters)} parameters: at most {_MOST_PARAMETERS} are taken")
    return {name: _plain(name, parameter) for name, parameter in parameters.items()}


def set_parameters(parameters: Any, values: Mapping[str, bool | int | float | str]) -> None:
    """Put *values* into *parameters*, a map of InferParameter."""
    for name, value in values.items():
        parameter = parameters[name]
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, str):
            parameter.string_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        elif value > _INT64.max:
            parameter.uint64_param = value
        else:
            parameter.int64_param = value


def _plain(name: str, parameter: Any) -> object:
    choice = parameter.WhichOneof("parameter_choice")
    if choice is None:
        raise InvalidArgumentError(f"parameter '{name}' has no value")
    return getattr(parameter, choice)


def _shape_of(tensor: Any) -> list[int]:
    return list(tensor.shape[:_MOST_SIZES])


def from_contents(tensor: Any) -> Array:
    """The array of *tensor*, an InferInputTensor or InferOutputTensor, whose elements are in its contents."""
    name, datatype, shape = tensor.name, tensor.datatype, _shape_of(tensor)
    dtype, count = described(datatype, shape, name)
    if datatype not in _FIELDS:
        raise InvalidArgumentError(f"input '{name}' is {datatype}, which is sent in raw_input_contents")
    field, np_dtype = _FIELDS[datatype]
    others = [each.name for each, _ in tensor.contents.ListFields() if each.name != field]
    if others:
        raise InvalidArgumentError(f"input '{name}' is {datatype}: its data belongs into {field}, not into {others[0]}")
    elements = getattr(tensor.contents, field)
    if len(elements) != count:
        raise InvalidArgumentError(f"input '{name}' got {len(elements)} elements, expected {count} for {shape}")
    if dtype is types.string:
        array = np.empty(count, np.object_)
        for begin in range(0, count, _PIECE):
            array[begin : begin + _PIECE] = elements[begin : begin + _PIECE]
        return array.reshape(shape)
    array = np.array(elements, np_dtype)
    narrow = dtype.as_numpy_dtype
    if narrow.itemsize < array.dtype.itemsize:
        limits = np.iinfo(narrow)
        if array.min(initial=0) < limits.min or array.max(initial=0) > limits.max:
            raise InvalidArgumentError(f"input '{name}' has elements that {datatype} cannot hold")
    return array.astype(narrow, copy=False).reshape(shape)
