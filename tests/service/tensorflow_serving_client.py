"""TensorFlow Serving's own stubs against a service: ``python -m tests.service.tensorflow_serving_client PORT``.

It prints what they get, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)


def example(value: float) -> Any:
    """A ``tf.Example`` with a feature x."""
    return tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [value]})}))


def predicted(stub: Any) -> dict[str, Any]:
    """The answer to Predict."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "sums"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.full((2, 3), 5, np.float32)))
    request.inputs["y"].CopyFrom(tf.make_tensor_proto(np.ones((2, 3), np.float32)))
    outputs = stub.Predict(request, timeout=60).outputs
    return {name: tf.make_ndarray(tensor).tolist() for name, tensor in outputs.items()}


def classified(stub: Any) -> list[Any]:
    """The answer to Classify."""
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "classes"
    request.input.example_list.examples.extend([example(1.0), example(2.0)])
    found = stub.Classify(request, timeout=60).result.classifications
    return [[(each.label, each.score) for each in one.classes] for one in found]


def regressed(stub: Any) -> list[float]:
    """The answer to Regress."""
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "values"
    request.input.example_list.examples.extend([example(1.0), example(2.0)])
    return [each.value for each in stub.Regress(request, timeout=60).result.regressions]


def inferred(stub: Any) -> list[float]:
    """The answer to MultiInference."""
    request = inference_pb2.MultiInferenceRequest()
    task = request.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.name = "values"
    request.input.example_list.examples.append(example(3.0))
    (found,) = stub.MultiInference(request, timeout=60).results
    return [each.value for each in found.regression_result.regressions]


def described(stub: Any, models: Any) -> dict[str, Any]:
    """What the calls that describe a model tell."""
    asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "sums"
    signatures = get_model_metadata_pb2.SignatureDefMap()
    stub.GetModelMetadata(asked, timeout=60).metadata["signature_def"].Unpack(signatures)
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "sums"
    (version,) = models.GetModelStatus(status, timeout=60).model_version_status
    return {
        "inputs": sorted(signatures.signature_def["serving_default"].inputs),
        "state": get_model_status_pb2.ModelVersionStatus.State.Name(version.state),
    }


def refused(stub: Any) -> list[str]:
    """The status of a call of a model that is not there."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "none"
    try:
        stub.Predict(request, timeout=60)
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return ["OK", ""]


def main() -> None:
    """Print what the stubs get."""
    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = {
            "predicted": predicted(stub),
            "classified": classified(stub),
            "regressed": regressed(stub),
            "inferred": inferred(stub),
            "described": described(stub, model_service_pb2_grpc.ModelServiceStub(channel)),
            "refused": refused(stub),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
