"""The messages of gRPC's own services, health and reflection, as tables of :mod:`asyncexec.framework.message_pool`.

Source: ``grpc/health/v1/health.proto``, ``grpc/reflection/v1/reflection.proto`` and the same of ``v1alpha``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from asyncexec.framework.message_pool import MessagePool, ProtoFile

HEALTH: Final = "grpc.health.v1"
REFLECTIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")

_HEALTH: Final = """HealthCheckRequest service:string=1
HealthCheckResponse status:HealthCheckResponse.ServingStatus=1
HealthCheckResponse.ServingStatus UNKNOWN=0 SERVING=1 NOT_SERVING=2 SERVICE_UNKNOWN=3
"""
_REFLECTION: Final = """ServerReflectionRequest
    host:string=1 message_request.file_by_filename:string=3 message_request.file_containing_symbol:string=4
    message_request.file_containing_extension:ExtensionRequest=5
    message_request.all_extension_numbers_of_type:string=6 message_request.list_services:string=7
ExtensionRequest containing_type:string=1 extension_number:int32=2
ServerReflectionResponse
    valid_host:string=1 original_request:ServerReflectionRequest=2
    message_response.file_descriptor_response:FileDescriptorResponse=4
    message_response.all_extension_numbers_response:ExtensionNumberResponse=5
    message_response.list_services_response:ListServiceResponse=6 message_response.error_response:ErrorResponse=7
FileDescriptorResponse file_descriptor_proto:bytes*=1
ExtensionNumberResponse base_type_name:string=1 extension_number:int32*=2
ListServiceResponse service:ServiceResponse*=1
ServiceResponse name:string=1
ErrorResponse error_code:int32=1 error_message:string=2
"""


@cache
def _pool(package: str) -> MessagePool:
    return MessagePool(package, {_file_of(package): ProtoFile(_tables()[package])}, extra="serve")


def _tables() -> dict[str, str]:
    return {HEALTH: _HEALTH, **dict.fromkeys(REFLECTIONS, _REFLECTION)}


def _file_of(package: str) -> str:
    return package.split(".")[1]


def message(package: str, name: str) -> Any:
    """The class of the messages of *package* called *name*."""
    return _pool(package).message(name, _file_of(package))


def file(package: str) -> Any:
    """The FileDescriptor of the file that declares those of *package*."""
    return _pool(package).file(_file_of(package))
