"""TensorFlow Serving's gRPC services as handlers for a server of ``grpc.aio``: PredictionService and ModelService."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.tensor_proto import VALUE_FIELDS, ByteBudget, decode_tensor, dtype_of_enum
from asyncexec.service.datatypes import as_bytes, datatype_of, dtype_of, num_elements
from asyncexec.service.grpc.calls import unary
from asyncexec.service.grpc.codec import check_number
from asyncexec.service.http.body import off_loop
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor
from asyncexec.service.tf_serving.calls import (
    CLASSIFY,
    REGRESS,
    check_signature,
    classify,
    find_model,
    regress,
    signature_def_map,
    version_statuses,
)
from asyncexec.service.tf_serving.messages import MODEL_SERVICE, PREDICTION_SERVICE, message
from asyncexec.service.tf_serving.reload import Reloader

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

_SIGNATURE_DEF: Final = "signature_def"
_SIGNATURE_DEF_URL: Final = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
_SPREAD_BYTES: Final = 64 * 2**20  # what tensors of a request may take beyond what is sent
_UNKNOWN: Final = 2  # of google.rpc.Code


def serving_grpc_handlers(repository: ModelRepository) -> tuple[grpc.GenericRpcHandler, ...]:
    """What answers the calls of both services, from the models of *repository*."""
    calls = _Calls(repository)
    predictions = {
        "Predict": unary(message("PredictRequest"), calls.predict, _with_tensors),
        "Classify": unary(message("ClassificationRequest"), calls.classify),
        "Regress": unary(message("RegressionRequest"), calls.regress),
        "MultiInference": unary(message("MultiInferenceRequest"), calls.multi_inference),
        "GetModelMetadata": unary(message("GetModelMetadataRequest"), calls.get_model_metadata),
    }
    models = {
        "GetModelStatus": unary(message("GetModelStatusRequest"), calls.get_model_status),
        "HandleReloadConfigRequest": unary(message("ReloadConfigRequest"), calls.handle_reload_config),
    }
    return (
        grpc.method_handlers_generic_handler(PREDICTION_SERVICE, predictions),
        grpc.method_handlers_generic_handler(MODEL_SERVICE, models),
    )


class _Calls:
    """The calls of the services: a message to a message."""

    def __init__(self, repository: ModelRepository) -> None:
        self._repository = repository
        self._reloader = Reloader(repository)

    async def predict(self, asked: tuple[Any, dict[str, InferTensor]]) -> bytes:
        request, inputs = asked
        model = self._model(request.model_spec)
        call = InferRequest(
            model.name, inputs, list(request.output_filter) or None, _asked(self._repository, request.model_spec)[1]
        )
        answer = await model.infer(call)
        return await off_loop(answer.num_bytes, _encoded, model, answer)

    async def classify(self, request: Any) -> object:
        model = self._model(request.model_spec)
        response = message("ClassificationResponse")()
        _tell(response.model_spec, model)
        await _classify(response.result, model, _examples(request.input))
        return response

    async def regress(self, request: Any) -> object:
        model = self._model(request.model_spec)
        response = message("RegressionResponse")()
        _tell(response.model_spec, model)
        await _regress(response.result, model, _examples(request.input))
        return response

    async def multi_inference(self, request: Any) -> object:
        if len({task.model_spec.name for task in request.tasks}) != 1:
            raise InvalidArgumentError("the tasks of a MultiInferenceRequest must name the same model")
        models = [self._model(task.model_spec) for task in request.tasks]
        if len(models) > 1:
            raise InvalidArgumentError(f"Duplicate evaluation of signature: {models[0].signature.name}")
        (task,), (model,) = request.tasks, models
        response = message("MultiInferenceResponse")()
        result = response.results.add()
        _tell(result.model_spec, model)
        if task.method_name == CLASSIFY:
            await _classify(result.classification_result, model, _examples(request.input))
        elif task.method_name == REGRESS:
            await _regress(result.regression_result, model, _examples(request.input))
        else:
            raise UnimplementedError(f"Unsupported signature method_name: {task.method_name}")
        return response

    async def get_model_metadata(self, request: Any) -> object:
        if not request.metadata_field:
            raise InvalidArgumentError("GetModelMetadataRequest must specify at least one metadata_field")
        for name in request.metadata_field:
            if name != _SIGNATURE_DEF:
                raise InvalidArgumentError(f"Metadata field {name} is not supported")
        model = find_model(self._repository, *_asked(self._repository, request.model_spec))
        response = message("GetModelMetadataResponse")()
        response.model_spec.name = model.name
        response.model_spec.version.value = int(model.version)
        metadata = response.metadata[_SIGNATURE_DEF]
        metadata.type_url = _SIGNATURE_DEF_URL
        metadata.value = signature_def_map(model).SerializeToString()
        return response

    async def get_model_status(self, request: Any) -> object:
        response = message("GetModelStatusResponse")()
        for each in version_statuses(self._repository, *_asked(self._repository, request.model_spec)):
            told = response.model_version_status.add(version=each.version, state=each.state)
            told.status.error_message = each.error
            told.status.error_code = _UNKNOWN if each.error else 0
        return response

    async def handle_reload_config(self, request: Any) -> object:
        await self._reloader.reload(request.config)
        return message("ReloadConfigResponse")()

    def _model(self, spec: Any) -> Model:
        """The model that *spec*, a ModelSpec, names, which has the signature that it names."""
        model = find_model(self._repository, *_asked(self._repository, spec))
        check_signature(model, spec.signature_name)
        return model


def _asked(repository: ModelRepository, spec: Any) -> tuple[str, str]:
    """The name and version of the model that *spec*, a ModelSpec, names."""
    choice = spec.WhichOneof("version_choice")
    if choice == "version_label":
        version = repository.labels.get(spec.name, {}).get(spec.version_label)
        if version is None:
            raise InvalidArgumentError(f"Unrecognized servable version label: {spec.version_label}")
        return spec.name, version
    return spec.name, "" if choice is None else str(spec.version.value)


def _tell(spec: Any, model: Model) -> None:
    """Say in *spec*, an empty ModelSpec, that *model* has answered."""
    spec.name = model.name
    spec.signature_name = model.signature.name
    spec.version.value = int(model.version)


def _with_tensors(request: Any) -> tuple[object, dict[str, InferTensor]]:
    """*request*, a PredictRequest, and its inputs."""
    check_number("inputs", request.inputs)
    check_number("outputs", request.output_filter)
    budget = ByteBudget(_SPREAD_BYTES)
    return request, {name: _tensor(name, proto, budget) for name, proto in request.inputs.items()}


def _tensor(name: str, proto: Any, budget: ByteBudget) -> InferTensor:
    """The tensor that *proto*, a TensorProto, is as the input *name*."""
    datatype = datatype_of(dtype_of_enum(proto.dtype))
    num_elements([dim.size for dim in proto.tensor_shape.dim], name)
    value = decode_tensor(proto, byte_budget=budget)  # it reads a message as it does a model of one
    if isinstance(value, bytes):
        value = np.array(value, object)
    return InferTensor(datatype, np.asarray(value))


def _encoded(model: Model, answer: InferResponse) -> bytes:
    """*answer*, which *model* gave, as a PredictResponse."""
    response = message("PredictResponse")()
    _tell(response.model_spec, model)
    _fill(response.outputs, answer)
    encoded: bytes = response.SerializeToString()
    return encoded


def _fill(outputs: Any, answer: InferResponse) -> None:
    """Put the outputs of *answer* into *outputs*, a map of TensorProto.

    The elements go into the fields of their types, and not into ``tensor_content``: clients read them there.
    """
    for name, tensor in answer.outputs.items():
        dtype, proto = dtype_of(tensor.datatype, name), outputs[name]
        proto.dtype = dtype.enum
        proto.tensor_shape.SetInParent()
        for size in tensor.array.shape:
            proto.tensor_shape.dim.add(size=size)
        field = VALUE_FIELDS[dtype]
        getattr(proto, field).extend(_elements(field, tensor.array))


def _elements(field: str, array: Array) -> list[object]:
    if field == "string_val":
        return [as_bytes(item) for item in array.flat]
    elements: list[object] = (array.view(np.uint16) if field == "half_val" else array).ravel().tolist()
    return elements


def _examples(given: Any) -> Sequence[bytes]:
    """The serialized Examples of *given*, an Input, each with its context before it, which it is merged with."""
    if given.WhichOneof("kind") == "example_list_with_context":
        listed = given.example_list_with_context
        return [listed.context + each for each in listed.examples]
    return list(given.example_list.examples)


async def _classify(result: Any, model: Model, examples: Sequence[bytes]) -> None:
    """Put the classes of *examples* into *result*, an empty ClassificationResult."""
    for classes in await classify(model, examples):
        told = result.classifications.add()
        for label, score in classes:
            told.classes.add(label=label, score=score)


async def _regress(result: Any, model: Model, examples: Sequence[bytes]) -> None:
    """Put the values of *examples* into *result*, an empty RegressionResult."""
    for value in await regress(model, examples):
        result.regressions.add(value=value)
