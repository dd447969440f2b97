"""TensorFlow Serving's gRPC services: each call, tensors both ways, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.tensor_proto import VALUE_FIELDS
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.server import serving as serving_ports
from asyncexec.service.tf_serving.grpc import serving_grpc_handlers
from asyncexec.service.tf_serving.messages import MODEL_SERVICE, PREDICTION_SERVICE, message
from tests.service.conftest import nothing_of_grpc_left
from tests.service.http_models import FakeRepository, made, unary
from tests.service.models import sums
from tests.service.serving_models import of_examples, reading_examples

pytestmark = [pytest.mark.usefixtures("grpc_library"), pytest.mark.one_of("loop")]

SAVED = Path(__file__).parents[1] / "golden" / "saved_model" / "saved_model.pbtxt"
SPEC = {"name": "m"}
DTYPES: dict[ax.DType, list[Any]] = {
    ax.bool: [True, False],
    ax.int8: [-128, 127],
    ax.int16: [-(2**15), 2**15 - 1],
    ax.int32: [-(2**31), 2**31 - 1],
    ax.int64: [-(2**63), 2**63 - 1],
    ax.uint8: [0, 255],
    ax.uint16: [0, 2**16 - 1],
    ax.uint32: [0, 2**32 - 1],
    ax.uint64: [0, 2**64 - 1],
    ax.float32: [1.5, -np.inf],
    ax.float64: [0.1, -np.inf],
    ax.string: [b"", b"\xff\0a"],
    ax.float16: [0x3E00, 0xC000],
    ax.bfloat16: [0x3FC0, 0xC000],
}
CALLS = {
    "Predict": (PREDICTION_SERVICE, "PredictRequest", "PredictResponse"),
    "Classify": (PREDICTION_SERVICE, "ClassificationRequest", "ClassificationResponse"),
    "Regress": (PREDICTION_SERVICE, "RegressionRequest", "RegressionResponse"),
    "MultiInference": (PREDICTION_SERVICE, "MultiInferenceRequest", "MultiInferenceResponse"),
    "GetModelMetadata": (PREDICTION_SERVICE, "GetModelMetadataRequest", "GetModelMetadataResponse"),
    "GetModelStatus": (MODEL_SERVICE, "GetModelStatusRequest", "GetModelStatusResponse"),
    "HandleReloadConfigRequest": (MODEL_SERVICE, "ReloadConfigRequest", "ReloadConfigResponse"),
}


class Client:
    """Calls of a server by their names."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    async def __call__(self, name: str, /, **fields: Any) -> Any:
        service, request, response = CALLS[name]
        call = self.channel.unary_unary(f"/{service}/{name}", None, message(response).FromString)
        return await call(message(request)(**fields).SerializeToString(), timeout=60)

    async def refused(self, name: str, /, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """How the call fails."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self(name, **fields)
        return raised.value.code(), raised.value.details()


@asynccontextmanager
async def serving(repository: ModelRepository) -> AsyncIterator[Client]:
    """A client of a server of *repository*, whose models are closed at the end."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(serving_grpc_handlers(repository))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with nothing_of_grpc_left():
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Client(channel)
        finally:
            await server.stop(None)
            await repository.close()
            del server, channel


def shaped(*sizes: int) -> dict[str, Any]:
    return {"dim": [{"size": size} for size in sizes]}


def floats(*values: float, shape: tuple[int, ...] = (1, 3)) -> dict[str, Any]:
    return {"dtype": "DT_FLOAT", "tensor_shape": shaped(*shape), "float_val": values}


def echo(dtype: ax.DType) -> FakeRepository:
    return FakeRepository(made("m", unary(dtype, None, ax.identity)))


async def test_predict() -> None:
    async with serving(FakeRepository(made("m", sums(), "1"), made("m", sums(), "2"))) as client:
        inputs = {"x": floats(1, 2, 3), "y": floats(1)}
        response = await client("Predict", model_spec=SPEC, inputs=inputs)
        spec = message("ModelSpec")(name="m", version={"value": 2}, signature_name="serving_default")
        assert response.model_spec == spec
        assert {name: list(proto.float_val) for name, proto in response.outputs.items()} == {
            "sum": [2, 3, 4],
            "diff": [0, 1, 2],
        }
        assert response.outputs["sum"] == message("PredictResponse")(outputs={"a": floats(2, 3, 4)}).outputs["a"]
        asked = {**SPEC, "version": {"value": 1}, "signature_name": "serving_default"}
        response = await client("Predict", model_spec=asked, inputs=inputs, output_filter=["diff"])
        assert (response.model_spec.version.value, [*response.outputs]) == (1, ["diff"])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
async def test_values_of_every_dtype(dtype: ax.DType) -> None:
    field = VALUE_FIELDS[dtype]
    async with serving(echo(dtype)) as client:
        for values, shape in ((DTYPES[dtype], (2, 1)), (DTYPES[dtype][:1], ()), ([], (0,))):
            given = {"dtype": dtype.enum, "tensor_shape": shaped(*shape), field: values}
            response = await client("Predict", model_spec=SPEC, inputs={"x": given})
            assert response.outputs["y"] == message("PredictRequest")(inputs={"x": given}).inputs["x"]


async def test_content_and_repeated_values() -> None:
    async with serving(echo(ax.float32)) as client:
        packed = np.arange(3, dtype=np.float32).tobytes()
        given = {"dtype": "DT_FLOAT", "tensor_shape": shaped(3), "tensor_content": packed}
        response = await client("Predict", model_spec=SPEC, inputs={"x": given})
        assert list(response.outputs["y"].float_val) == [0, 1, 2]
        response = await client("Predict", model_spec=SPEC, inputs={"x": floats(5, shape=(2, 2))})
        assert list(response.outputs["y"].float_val) == [5] * 4


@pytest.mark.parametrize(
    ("given", "code", "details"),
    [
        (floats(1, 2, shape=(1,)), "INVALID_ARGUMENT", "has 1 elements, not 2"),
        (floats(shape=(2**30,)), "UNAVAILABLE", "more than the byte budget"),
        (floats(shape=(0, 2**62)), "INVALID_ARGUMENT", "the shape of input 'x' is too large"),
        (floats(shape=(-1,)), "INVALID_ARGUMENT", "sizes, which are integers from 0"),
        ({"dtype": "DT_FLOAT", "tensor_shape": {"unknown_rank": True}}, "INVALID_ARGUMENT", "a shape of unknown rank"),
        ({"dtype": "DT_INT32"}, "INVALID_ARGUMENT", "data-type is 'INT32', but model 'm' expects 'FP32'"),
        ({"dtype": "DT_INVALID"}, "INVALID_ARGUMENT", "DT_INVALID is not supported"),
        ({"dtype": "DT_COMPLEX64"}, "UNIMPLEMENTED", "values of complex64 cannot be sent"),
    ],
)
async def test_tensors_that_are_refused(given: Any, code: str, details: str) -> None:
    async with serving(echo(ax.float32)) as client:
        status, told = await client.refused("Predict", model_spec=SPEC, inputs={"x": given})
        assert (status.name, details in told) == (code, True), told


@pytest.mark.parametrize(
    ("fields", "code", "details"),
    [
        ({}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ({"name": "n"}, "NOT_FOUND", "Servable not found for request: Latest(n)"),
        ({"version": {"value": 7}}, "NOT_FOUND", "Servable not found for request: Specific(m, 7)"),
        ({"version": {"value": 0}}, "NOT_FOUND", "Servable not found for request: Specific(m, 0)"),
        ({"version_label": "l"}, "INVALID_ARGUMENT", "Unrecognized servable version label: l"),
        ({"signature_name": "z"}, "INVALID_ARGUMENT", 'Serving signature name: "z" not found in signature def'),
    ],
)
async def test_models_that_are_not_there(fields: dict[str, Any], code: str, details: str) -> None:
    async with serving(echo(ax.float32)) as client:
        spec = {**SPEC, **fields} if fields else {}
        for call in ("Predict", "Classify", "Regress"):
            status, told = await client.refused(call, model_spec=spec)
            assert (status.name, told.partition(";")[0]) == (code, details)


async def test_what_is_no_message() -> None:
    async with serving(echo(ax.float32)) as client:
        call = client.channel.unary_unary(f"/{PREDICTION_SERVICE}/Predict")
        with pytest.raises(grpc.aio.AioRpcError, match="the request is no PredictRequest"):
            await call(b"\xff", timeout=60)


async def test_outputs_that_are_not_there() -> None:
    async with serving(echo(ax.float32)) as client:
        inputs = {"x": floats(1, shape=())}
        status, told = await client.refused("Predict", model_spec=SPEC, inputs=inputs, output_filter=["z"])
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert "unexpected inference output 'z'" in told


async def test_examples() -> None:
    classes = of_examples("both", classes=np.array([[b"a", b"b"]], object), scores=np.array([[0.25, 1]], np.float32))
    values = of_examples("valued", outputs=np.array([[0.5], [1.5]], np.float32))
    async with serving(FakeRepository(classes, values, reading_examples())) as client:
        one = {"example_list": {"examples": [b""]}}
        two = {"example_list": {"examples": [b"", b""]}}
        response = await client("Classify", model_spec={"name": "both"}, input=one)
        assert (response.model_spec.name, response.model_spec.version.value) == ("both", 1)
        (found,) = response.result.classifications
        assert [(each.label, each.score) for each in found.classes] == [("a", 0.25), ("b", 1)]
        response = await client("Regress", model_spec={"name": "valued"}, input=two)
        assert [each.value for each in response.result.regressions] == [0.5, 1.5]
        feature = {"int64_list": {"value": [1]}}
        context = message("Example")(features={"feature": {"a": feature}}).SerializeToString()
        example = message("Example")(features={"feature": {"b": feature}}).SerializeToString()
        given = {"example_list_with_context": {"examples": [example], "context": context}}
        response = await client("Classify", model_spec={"name": "read"}, input=given)
        (label,) = (each.label for each in response.result.classifications[0].classes)
        told = '{"feature": {"a": {"int64List": {"value": ["1"]}}, "b": {"int64List": {"value": ["1"]}}}}'
        assert label == told
        for call, name in (("Regress", "both"), ("Classify", "valued")):
            status, details = await client.refused(call, model_spec={"name": name}, input=two)
            assert (status, "call Predict" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        refused = await client.refused("Regress", model_spec={"name": "valued"})
        assert refused == (grpc.StatusCode.INVALID_ARGUMENT, "Input is empty.")


async def test_multi_inference() -> None:
    classes = of_examples("both", classes=np.array([[b"a"]], object))
    values = of_examples("valued", outputs=np.array([0.5], np.float32))
    async with serving(FakeRepository(classes, values)) as client:

        def task(name: str, method: str) -> dict[str, Any]:
            return {"model_spec": {"name": name}, "method_name": f"tensorflow/serving/{method}"}

        one = {"example_list": {"examples": [b""]}}
        response = await client("MultiInference", tasks=[task("both", "classify")], input=one)
        (result,) = response.results
        assert (result.model_spec.name, result.WhichOneof("result")) == ("both", "classification_result")
        assert result.classification_result.classifications[0].classes[0].label == "a"
        response = await client("MultiInference", tasks=[task("valued", "regress")], input=one)
        assert response.results[0].regression_result.regressions[0].value == 0.5
        for tasks, code, details in (
            ([], "INVALID_ARGUMENT", "must name the same model"),
            ([task("both", "classify"), task("valued", "regress")], "INVALID_ARGUMENT", "must name the same model"),
            ([task("both", "classify")] * 2, "INVALID_ARGUMENT", "Duplicate evaluation of signature: serving_default"),
            ([task("both", "predict")], "UNIMPLEMENTED", "method_name: tensorflow/serving/predict"),
        ):
            status, told = await client.refused("MultiInference", tasks=tasks, input=one)
            assert (status.name, details in told) == (code, True), told


async def test_status() -> None:
    repository = FakeRepository(made("m", sums(), "1"), made("m", sums(), "2"), made("n", sums()))
    async with serving(repository) as client:
        state = message("ModelVersionStatus").State.Value
        found = (await client("GetModelStatus", model_spec=SPEC)).model_version_status
        assert [(each.version, each.state, each.status.error_code) for each in found] == [
            (2, state("AVAILABLE"), 0),
            (1, state("AVAILABLE"), 0),
        ]
        repository.unready.add("n")
        (failed,) = (
            await client("GetModelStatus", model_spec={"name": "n", "version": {"value": 1}})
        ).model_version_status
        assert (failed.state, failed.status.error_code, failed.status.error_message) == (state("END"), 2, "it broke")
        refused = await client.refused("GetModelStatus", model_spec={"name": "z"})
        assert refused == (grpc.StatusCode.NOT_FOUND, "Could not find any versions of model z")
        status, _ = await client.refused("HandleReloadConfigRequest", config={"model_config_list": {}})
        assert status is grpc.StatusCode.UNIMPLEMENTED


async def test_metadata() -> None:
    async with serving(echo(ax.float32)) as client:
        response = await client("GetModelMetadata", model_spec=SPEC, metadata_field=["signature_def"])
        assert (response.model_spec.name, response.model_spec.version.value) == ("m", 1)
        metadata = response.metadata["signature_def"]
        assert metadata.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        found = message("SignatureDefMap").FromString(metadata.value).signature_def["serving_default"]
        assert (found.inputs["x"].name, found.outputs["y"].name) == ("x:0", "y:0")
        assert found.inputs["x"].tensor_shape.unknown_rank
        for fields, details in (
            ([], "must specify at least one metadata_field"),
            (["z"], "Metadata field z is not supported"),
        ):
            status, told = await client.refused("GetModelMetadata", model_spec=SPEC, metadata_field=fields)
            assert (status, details in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.fixture
def saved_models(tmp_path: Path) -> Path:
    """A folder with the models "default" and "other", whose first signature is called "scores"."""
    text = SAVED.read_text(encoding="utf-8")
    for name, signature in (("default", "serving_default"), ("other", "scores")):
        folder = tmp_path / name / "3" / "model.savedmodel"
        folder.mkdir(parents=True)
        named = text.replace('key: "serving_default"', f'key: "{signature}"')
        (folder / "saved_model.pbtxt").write_text(named, encoding="utf-8")
    (tmp_path / "broken").mkdir()
    return tmp_path


async def test_saved_models_have_one_of_their_signatures(saved_models: Path) -> None:
    repository = ModelRepository(saved_models)
    await repository.start()
    async with serving(repository) as client:
        for name, signature in (("default", "serving_default"), ("other", "scores")):
            inputs = {"x": floats(1, 2, shape=(1, 2))}
            for asked in ("", signature):
                spec = {"name": name, "signature_name": asked, "version": {"value": 3}}
                response = await client("Predict", model_spec=spec, inputs=inputs)
                assert (response.model_spec.signature_name, list(response.outputs["y"].float_val)) == (signature, [5])
            refused = await client.refused("Predict", model_spec={**spec, "signature_name": "words"}, inputs=inputs)
            assert refused[1].startswith('Serving signature name: "words" not found')
        (broken,) = (await client("GetModelStatus", model_spec={"name": "broken"})).model_version_status
        assert (broken.version, broken.status.error_code) == (0, 2)
        assert "at least one version must be available" in broken.status.error_message


@pytest.mark.allow_blocking  # uvicorn closes its sockets in the loop
async def test_both_ports_serve_them_to_those_who_have_a_token() -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tokens": ["secret"]}
    metadata = (("authorization", "Bearer secret"),)
    async with (
        nothing_of_grpc_left(),
        serving_ports({"m": unary(ax.float32, None, ax.identity)}, **options) as ports,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports.http}/v1/models") as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel,
    ):
        body = {"instances": [1, 2]}
        assert (await client.post("/m:predict", json=body)).status_code == 401
        answer = await client.post("/m:predict", json=body, headers=dict(metadata))
        assert answer.json() == {"predictions": [1.0, 2.0]}
        for service, name in ((PREDICTION_SERVICE, "Predict"), (MODEL_SERVICE, "GetModelStatus")):
            call = channel.unary_unary(f"/{service}/{name}")
            request = message(f"{name}Request")(model_spec=SPEC)
            if name == "Predict":
                request.inputs["x"].dtype = ax.float32.enum
            with pytest.raises(grpc.aio.AioRpcError, match="unauthorized"):
                await call(request.SerializeToString(), timeout=60)
            assert await call(request.SerializeToString(), timeout=60, metadata=metadata)
