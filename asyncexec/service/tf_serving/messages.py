"""The messages of TensorFlow Serving's calls.

They are tables of :mod:`asyncexec.framework.message_pool`.  Source: ``tensorflow_serving/apis/*.proto``.  Fields that
nothing here reads are left out, and an Example is left as bytes, which look the same on the wire.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from asyncexec.framework.message_pool import MessagePool, ProtoFile
from asyncexec.importers import proto_tables
from asyncexec.importers.proto_messages import LARGE_ENUMS

PREDICTION_SERVICE: Final = "tensorflow.serving.PredictionService"
MODEL_SERVICE: Final = "tensorflow.serving.ModelService"

_APIS: Final = """ModelSpec
    name:string=1 version_choice.version:Int64Value=2 version_choice.version_label:string=4 signature_name:string=3
Int64Value value:int64=1

PredictRequest model_spec:ModelSpec=1 inputs:string>TensorProto=2 output_filter:string*=3
PredictResponse model_spec:ModelSpec=2 outputs:string>TensorProto=1

Input kind.example_list:ExampleList=1 kind.example_list_with_context:ExampleListWithContext=2
ExampleList examples:bytes*=1
ExampleListWithContext examples:bytes*=1 context:bytes=2
Example features:Features=1
Features feature:string>Feature=1
Feature kind.bytes_list:BytesList=1 kind.float_list:FloatList=2 kind.int64_list:Int64List=3
BytesList value:bytes*=1
FloatList value:float*=1
Int64List value:int64*=1

ClassificationRequest model_spec:ModelSpec=1 input:Input=2
ClassificationResponse model_spec:ModelSpec=2 result:ClassificationResult=1
ClassificationResult classifications:Classifications*=1
Classifications classes:Class*=1
Class label:string=1 score:float=2
RegressionRequest model_spec:ModelSpec=1 input:Input=2
RegressionResponse model_spec:ModelSpec=2 result:RegressionResult=1
RegressionResult regressions:Regression*=1
Regression value:float=1

MultiInferenceRequest tasks:InferenceTask*=1 input:Input=2
InferenceTask model_spec:ModelSpec=1 method_name:string=2
MultiInferenceResponse results:InferenceResult*=1
InferenceResult
    model_spec:ModelSpec=1 result.classification_result:ClassificationResult=2
    result.regression_result:RegressionResult=3

GetModelMetadataRequest model_spec:ModelSpec=1 metadata_field:string*=2
GetModelMetadataResponse model_spec:ModelSpec=1 metadata:string>Any=2
SignatureDefMap signature_def:string>SignatureDef=1

GetModelStatusRequest model_spec:ModelSpec=1
GetModelStatusResponse model_version_status:ModelVersionStatus*=1
ModelVersionStatus version:int64=1 state:ModelVersionStatus.State=2 status:StatusProto=3
ModelVersionStatus.State UNKNOWN=0 START=10 LOADING=20 AVAILABLE=30 UNLOADING=40 END=50
StatusProto error_code:int32=1 error_message:string=2

ReloadConfigRequest config:ModelServerConfig=1
ReloadConfigResponse status:StatusProto=1
ModelServerConfig config.model_config_list:ModelConfigList=1 config.custom_model_config:Any=2
ModelConfigList config:ModelConfig*=1
ModelConfig
    name:string=1 base_path:string=2 model_platform:string=4
    model_version_policy:FileSystemStoragePathSourceConfig.ServableVersionPolicy=7 version_labels:string>int64=8
FileSystemStoragePathSourceConfig
FileSystemStoragePathSourceConfig.ServableVersionPolicy
    policy_choice.latest:FileSystemStoragePathSourceConfig.ServableVersionPolicy.Latest=100
    policy_choice.all:FileSystemStoragePathSourceConfig.ServableVersionPolicy.All=101
    policy_choice.specific:FileSystemStoragePathSourceConfig.ServableVersionPolicy.Specific=102
FileSystemStoragePathSourceConfig.ServableVersionPolicy.Latest num_versions:uint32=1
FileSystemStoragePathSourceConfig.ServableVersionPolicy.All
FileSystemStoragePathSourceConfig.ServableVersionPolicy.Specific versions:int64*=1
"""
_FILES: Final = {
    "debug_info": ProtoFile(proto_tables.DEBUG_INFO, (), "proto2"),
    "graph": ProtoFile(proto_tables.GRAPH, ("debug_info",)),
    "saved_model": ProtoFile(proto_tables.SAVED_MODEL, ("graph",)),
    "apis": ProtoFile(_APIS, ("graph", "saved_model")),
}


@cache
def _pool() -> MessagePool:
    return MessagePool("tensorflow.serving", _FILES, enums=LARGE_ENUMS, extra="serve")


def message(name: str) -> Any:
    """The class of the messages called *name*; MissingExtraError where protobuf is not installed."""
    return _pool().message(name, "apis")


def file() -> Any:
    """The FileDescriptor of the file that declares them."""
    return _pool().file("apis")
