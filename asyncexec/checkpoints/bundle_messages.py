"""The messages in the index of a checkpoint (``tensor_bundle.proto``, ``tensor_slice.proto``)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from asyncexec.framework.message_pool import MessagePool, ProtoFile

_PACKAGE: Final = "asyncexec.checkpoints"
_BUNDLE: Final = """
BundleHeaderProto num_shards:int32=1 endianness:BundleHeaderProto.Endianness=2 version:VersionDef=3
BundleHeaderProto.Endianness LITTLE=0 BIG=1
VersionDef producer:int32=1 min_consumer:int32=2 bad_consumers:int32*=3
BundleEntryProto
    dtype:int32=1 shape:TensorShapeProto=2 shard_id:int32=3 offset:int64=4 size:int64=5 crc32c:fixed32=6
    slices:TensorSliceProto*=7
TensorShapeProto dim:TensorShapeProto.Dim*=2 unknown_rank:bool=3
TensorShapeProto.Dim size:int64=1 name:string=2
TensorSliceProto extent:TensorSliceProto.Extent*=1
TensorSliceProto.Extent start:int64=1 has_length.length:int64=2

TrackableObjectGraph nodes:TrackableObjectGraph.TrackableObject*=1
TrackableObjectGraph.TrackableObject
    children:TrackableObjectGraph.TrackableObject.ObjectReference*=1
    attributes:TrackableObjectGraph.TrackableObject.SerializedTensor*=2
TrackableObjectGraph.TrackableObject.ObjectReference node_id:int32=1 local_name:string=2
TrackableObjectGraph.TrackableObject.SerializedTensor name:string=1 full_name:string=2 checkpoint_key:string=3
"""


@cache
def _pool() -> MessagePool:
    return MessagePool(_PACKAGE, {"bundle": ProtoFile(_BUNDLE)}, extra="tf")


def bundle_message(name: str) -> Any:
    """The class of the messages called *name*; MissingExtraError where extra ``tf`` is not installed."""
    return _pool().message(name, "bundle")
