"""The messages of ``tensorflow.MasterService``, as tables of :mod:`asyncexec.framework.message_pool`.

Source: ``master.proto``, ``config.proto`` and ``device_attributes.proto`` of tensorflow/core; of the settings, those
that have an effect here.  Graphs, tensors and RunMetadata are declared as bytes: on the wire that is the same, and what
is large can be read outside of the event loop.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from asyncexec.framework.message_pool import MessagePool, ProtoFile

SERVICE: Final = "tensorflow.MasterService"

_FILE: Final = "master"
_MASTER: Final = """
CreateSessionRequest graph_def:bytes=1 config:ConfigProto=2 target:string=3
CreateSessionResponse session_handle:string=1 graph_version:int64=2
ExtendSessionRequest session_handle:string=1 graph_def:bytes=2 current_graph_version:int64=3
ExtendSessionResponse new_graph_version:int64=4
RunStepRequest
    session_handle:string=1 feed:NamedTensorProto*=2 fetch:string*=3 target:string*=4 options:RunOptions=5
    partial_run_handle:string=6 store_errors_in_response_body:bool=7 request_id:int64=8
RunStepResponse tensor:NamedTensorProto*=1 metadata:bytes=2 status_code:int32=3 status_error_message:string=4
PartialRunSetupRequest session_handle:string=1 feed:string*=2 fetch:string*=3 target:string*=4 request_id:int64=5
PartialRunSetupResponse partial_run_handle:string=1
CloseSessionRequest session_handle:string=1
CloseSessionResponse
ResetRequest container:string*=1 device_filters:string*=2
ResetResponse
ListDevicesRequest session_handle:string=1
ListDevicesResponse local_device:DeviceAttributes*=1 remote_device:DeviceAttributes*=2
MakeCallableRequest session_handle:string=1 options:CallableOptions=2 request_id:int64=3
MakeCallableResponse handle:int64=1
RunCallableRequest session_handle:string=1 handle:int64=2 feed:bytes*=3 request_id:int64=4
RunCallableResponse fetch:bytes*=1 metadata:bytes=2
ReleaseCallableRequest session_handle:string=1 handle:int64=2
ReleaseCallableResponse

NamedTensorProto name:string=1 tensor:bytes=2
DeviceAttributes name:string=1 device_type:string=2 memory_limit:int64=4 incarnation:fixed64=6
ConfigProto
    device_count:string>int32=1 allow_soft_placement:bool=7 graph_options:GraphOptions=10
    operation_timeout_in_ms:int64=11 isolate_session_state:bool=15
GraphOptions optimizer_options:OptimizerOptions=3 place_pruned_graph:bool=6
OptimizerOptions opt_level:int32=3
RunOptions trace_level:int32=1 timeout_in_ms:int64=2 output_partition_graphs:bool=5
CallableOptions
    feed:string*=1 fetch:string*=2 target:string*=3 run_options:RunOptions=4 tensor_connection:TensorConnection*=5
TensorConnection from_tensor:string=1 to_tensor:string=2
"""


@cache
def _pool() -> MessagePool:
    return MessagePool("tensorflow_master", {_FILE: ProtoFile(_MASTER)}, extra="serve")


def message(name: str) -> Any:
    """The class of the messages called *name*; MissingExtraError where protobuf is not installed."""
    return _pool().message(name, _FILE)


def file() -> Any:
    """The FileDescriptor of the file that declares them."""
    return _pool().file(_FILE)
