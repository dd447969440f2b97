"""What TensorFlow's messages are on the wire, as tables of :mod:`asyncexec.framework.message_pool`.

The values of DataType and FullTypeId are in :mod:`asyncexec.framework.wire_types`.
"""

from __future__ import annotations

from typing import Final

# Of proto2: the fields have presence, and text is not looked at whether it is UTF-8.
DEBUG_INFO: Final = """
GraphDebugInfo
    files:string*=1 traces:string>GraphDebugInfo.StackTrace=2 frames_by_id:fixed64>GraphDebugInfo.FileLineCol=4
    name_to_trace_id:string>fixed64=5 traces_by_id:fixed64>GraphDebugInfo.StackTrace=6
GraphDebugInfo.FileLineCol file_index:int32=1 line:int32=2 col:int32=3 func:string=4 code:string=5
GraphDebugInfo.StackTrace file_line_cols:GraphDebugInfo.FileLineCol*=1 frame_id:fixed64*=2
"""

GRAPH: Final = """
GraphDef
    node:NodeDef*=1 library:FunctionDefLibrary=2 version:int32=3 versions:VersionDef=4 debug_info:GraphDebugInfo=5
VersionDef producer:int32=1 min_consumer:int32=2 bad_consumers:int32*=3
NodeDef
    name:string=1 op:string=2 input:string*=3 device:string=4 attr:string>AttrValue=5
    experimental_debug_info:NodeDef.ExperimentalDebugInfo=6 experimental_type:FullTypeDef=7
NodeDef.ExperimentalDebugInfo original_node_names:string*=1 original_func_names:string*=2

AttrValue
    value.list:AttrValue.ListValue=1 value.s:bytes=2 value.i:int64=3 value.f:float=4 value.b:bool=5
    value.type:DataType=6 value.shape:TensorShapeProto=7 value.tensor:TensorProto=8 value.placeholder:string=9
    value.func:NameAttrList=10
AttrValue.ListValue
    s:bytes*=2 i:int64*=3 f:float*=4 b:bool*=5 type:DataType*=6 shape:TensorShapeProto*=7 tensor:TensorProto*=8
    func:NameAttrList*=9
NameAttrList name:string=1 attr:string>AttrValue=2
AttrEntry key:string=1 value:AttrValue=2

TensorShapeProto dim:TensorShapeProto.Dim*=2 unknown_rank:bool=3
TensorShapeProto.Dim size:int64=1 name:string=2
TensorProto
    dtype:DataType=1 tensor_shape:TensorShapeProto=2 version_number:int32=3 tensor_content:bytes=4 float_val:float*=5
    double_val:double*=6 int_val:int32*=7 string_val:bytes*=8 scomplex_val:float*=9 int64_val:int64*=10
    bool_val:bool*=11 dcomplex_val:double*=12 half_val:int32*=13 resource_handle_val:ResourceHandleProto*=14
    variant_val:VariantTensorDataProto*=15 uint32_val:uint32*=16 uint64_val:uint64*=17 float8_val:bytes=18
VariantTensorDataProto type_name:string=1 metadata:bytes=2 tensors:TensorProto*=3
ResourceHandleProto
    device:string=1 container:string=2 name:string=3 hash_code:uint64=4 maybe_type_name:string=5
    dtypes_and_shapes:ResourceHandleProto.DtypeAndShape*=6
ResourceHandleProto.DtypeAndShape dtype:DataType=1 shape:TensorShapeProto=2
DataType
FullTypeId
FullTypeDef type_id:FullTypeId=1 args:FullTypeDef*=2 attr.s:string=3 attr.i:int64=4

FunctionDefLibrary function:FunctionDef*=1 gradient:GradientDef*=2 registered_gradients:RegisteredGradient*=3
FunctionDef
    signature:OpDef=1 node_def:NodeDef*=3 ret:string>string=4 attr:string>AttrValue=5 control_ret:string>string=6
    arg_attr:uint32>FunctionDef.ArgAttrs=7 resource_arg_unique_id:uint32>uint32=8
FunctionDef.ArgAttrs attr:string>AttrValue=1
GradientDef function_name:string=1 gradient_func:string=2
RegisteredGradient gradient_func:string=1 registered_op_type:string=2
OpDef
    name:string=1 input_arg:OpDef.ArgDef*=2 output_arg:OpDef.ArgDef*=3 attr:OpDef.AttrDef*=4 summary:string=5
    description:string=6 deprecation:OpDeprecation=8 is_aggregate:bool=16 is_stateful:bool=17 is_commutative:bool=18
    allows_uninitialized_input:bool=19 control_output:string*=20 is_distributed_communication:bool=21
OpDef.ArgDef
    name:string=1 description:string=2 type:DataType=3 type_attr:string=4 number_attr:string=5 type_list_attr:string=6
    handle_data:ResourceHandleProto.DtypeAndShape*=7 is_ref:bool=16 experimental_full_type:FullTypeDef=17
OpDef.AttrDef
    name:string=1 type:string=2 default_value:AttrValue=3 description:string=4 has_minimum:bool=5 minimum:int64=6
    allowed_values:AttrValue=7
OpDeprecation version:int32=1 explanation:string=2
"""

# Most of it is for files of text, in which a field that is not declared is an error.
SAVED_MODEL: Final = """
SavedModel saved_model_schema_version:int64=1 meta_graphs:MetaGraphDef*=2
MetaGraphDef
    meta_info_def:MetaGraphDef.MetaInfoDef=1 graph_def:GraphDef=2 saver_def:SaverDef=3
    collection_def:string>CollectionDef=4 signature_def:string>SignatureDef=5 asset_file_def:AssetFileDef*=6
    object_graph_def:SavedObjectGraph=7
MetaGraphDef.MetaInfoDef
    meta_graph_version:string=1 stripped_op_list:OpList=2 any_info:Any=3 tags:string*=4 tensorflow_version:string=5
    tensorflow_git_version:string=6 stripped_default_attrs:bool=7 function_aliases:string>string=8
SignatureDef
    inputs:string>TensorInfo=1 outputs:string>TensorInfo=2 method_name:string=3 defaults:string>TensorProto=4
TensorInfo
    encoding.name:string=1 dtype:DataType=2 tensor_shape:TensorShapeProto=3 encoding.coo_sparse:TensorInfo.CooSparse=4
    encoding.composite_tensor:TensorInfo.CompositeTensor=5
TensorInfo.CooSparse values_tensor_name:string=1 indices_tensor_name:string=2 dense_shape_tensor_name:string=3
TensorInfo.CompositeTensor type_spec:TypeSpecProto=1 components:TensorInfo*=2
AssetFileDef tensor_info:TensorInfo=1 filename:string=2
OpList op:OpDef*=1
Any type_url:string=1 value:bytes=2

CollectionDef
    kind.node_list:CollectionDef.NodeList=1 kind.bytes_list:CollectionDef.BytesList=2
    kind.int64_list:CollectionDef.Int64List=3 kind.float_list:CollectionDef.FloatList=4
    kind.any_list:CollectionDef.AnyList=5
CollectionDef.NodeList value:string*=1
CollectionDef.BytesList value:bytes*=1
CollectionDef.Int64List value:int64*=1
CollectionDef.FloatList value:float*=1
CollectionDef.AnyList value:Any*=1
SaverDef
    filename_tensor_name:string=1 save_tensor_name:string=2 restore_op_name:string=3 max_to_keep:int32=4 sharded:bool=5
    keep_checkpoint_every_n_hours:float=6 version:SaverDef.CheckpointFormatVersion=7
SaverDef.CheckpointFormatVersion LEGACY=0 V1=1 V2=2

SavedObjectGraph nodes:SavedObject*=1 concrete_functions:string>SavedConcreteFunction=2
SavedObject
    children:TrackableObjectGraph.TrackableObject.ObjectReference*=1
    slot_variables:TrackableObjectGraph.TrackableObject.SlotVariableReference*=3
    kind.user_object:SavedUserObject=4 kind.asset:SavedAsset=5 kind.function:SavedFunction=6
    kind.variable:SavedVariable=7 kind.bare_concrete_function:SavedBareConcreteFunction=8 kind.constant:SavedConstant=9
    kind.resource:SavedResource=10 saveable_objects:string>SaveableObject=11 kind.captured_tensor:CapturedTensor=12
    registered_name:string=13 serialized_user_proto:Any=14
    dependencies:TrackableObjectGraph.TrackableObject.ObjectReference*=15 registered_saver:string=16
SavedUserObject identifier:string=1 version:VersionDef=2 metadata:string=3
SavedAsset asset_file_def_index:int32=1
SavedFunction concrete_functions:string*=1 function_spec:FunctionSpec=2
SavedVariable
    dtype:DataType=1 shape:TensorShapeProto=2 trainable:bool=3 synchronization:VariableSynchronization=4
    aggregation:VariableAggregation=5 name:string=6 device:string=7
    experimental_distributed_variable_components:SavedVariable*=8
VariableSynchronization
    VARIABLE_SYNCHRONIZATION_AUTO=0 VARIABLE_SYNCHRONIZATION_NONE=1 VARIABLE_SYNCHRONIZATION_ON_WRITE=2
    VARIABLE_SYNCHRONIZATION_ON_READ=3
VariableAggregation
    VARIABLE_AGGREGATION_NONE=0 VARIABLE_AGGREGATION_SUM=1 VARIABLE_AGGREGATION_MEAN=2
    VARIABLE_AGGREGATION_ONLY_FIRST_REPLICA=3
SavedBareConcreteFunction
    concrete_function_name:string=1 argument_keywords:string*=2 allowed_positional_arguments:int64=3
    function_spec:FunctionSpec=4
SavedConcreteFunction
    bound_inputs:int32*=2 canonicalized_input_signature:StructuredValue=3 output_signature:StructuredValue=4
SavedConstant operation:string=1
SavedResource device:string=1
SaveableObject save_function:int32=2 restore_function:int32=3
CapturedTensor name:string=1 concrete_function:string=2
FunctionSpec
    fullargspec:StructuredValue=1 is_method:bool=2 input_signature:StructuredValue=5
    jit_compile:FunctionSpec.JitCompile=6
FunctionSpec.JitCompile DEFAULT=0 ON=1 OFF=2
TrackableObjectGraph
TrackableObjectGraph.TrackableObject
TrackableObjectGraph.TrackableObject.ObjectReference node_id:int32=1 local_name:string=2
TrackableObjectGraph.TrackableObject.SlotVariableReference
    original_variable_node_id:int32=1 slot_name:string=2 slot_variable_node_id:int32=3

StructuredValue
    kind.none_value:NoneValue=1 kind.float64_value:double=11 kind.int64_value:sint64=12 kind.string_value:string=13
    kind.bool_value:bool=14 kind.tensor_shape_value:TensorShapeProto=31 kind.tensor_dtype_value:DataType=32
    kind.tensor_spec_value:TensorSpecProto=33 kind.type_spec_value:TypeSpecProto=34
    kind.bounded_tensor_spec_value:BoundedTensorSpecProto=35 kind.list_value:ListValue=51 kind.tuple_value:TupleValue=52
    kind.dict_value:DictValue=53 kind.named_tuple_value:NamedTupleValue=54 kind.tensor_value:TensorProto=55
    kind.numpy_value:TensorProto=56
NoneValue
ListValue values:StructuredValue*=1
TupleValue values:StructuredValue*=1
DictValue fields:string>StructuredValue=1
NamedTupleValue name:string=1 values:PairValue*=2
PairValue key:string=1 value:StructuredValue=2
TensorSpecProto name:string=1 shape:TensorShapeProto=2 dtype:DataType=3
BoundedTensorSpecProto
    name:string=1 shape:TensorShapeProto=2 dtype:DataType=3 minimum:TensorProto=4 maximum:TensorProto=5
TypeSpecProto
    type_spec_class:TypeSpecProto.TypeSpecClass=1 type_state:StructuredValue=2 type_spec_class_name:string=3
    num_flat_components:int32=4
TypeSpecProto.TypeSpecClass
    UNKNOWN=0 SPARSE_TENSOR_SPEC=1 INDEXED_SLICES_SPEC=2 RAGGED_TENSOR_SPEC=3 TENSOR_ARRAY_SPEC=4 DATA_DATASET_SPEC=5
    DATA_ITERATOR_SPEC=6 OPTIONAL_SPEC=7 PER_REPLICA_SPEC=8 VARIABLE_SPEC=9 ROW_PARTITION_SPEC=10
    REGISTERED_TYPE_SPEC=12 EXTENSION_TYPE_SPEC=13
"""

# The parts that are written.
EVENTS: Final = """
RunMetadata step_stats:StepStats=1 partition_graphs:GraphDef*=3
StepStats dev_stats:DeviceStepStats*=1
DeviceStepStats device:string=1 node_stats:NodeExecStats*=2 thread_names:uint32>string=3
NodeExecStats
    node_name:string=1 all_start_micros:int64=2 op_start_rel_micros:int64=3 op_end_rel_micros:int64=4
    all_end_rel_micros:int64=5 memory:AllocatorMemoryUsed*=6 output:NodeOutput*=7 timeline_label:string=8
    scheduled_micros:int64=9 thread_id:uint32=10 all_start_nanos:int64=13 op_start_rel_nanos:int64=14
    op_end_rel_nanos:int64=15 all_end_rel_nanos:int64=16 scheduled_nanos:int64=17
AllocatorMemoryUsed allocator_name:string=1 total_bytes:int64=2 peak_bytes:int64=3 live_bytes:int64=4
NodeOutput slot:int32=1 tensor_description:TensorDescription=3
TensorDescription dtype:DataType=1 shape:TensorShapeProto=2 allocation_description:AllocationDescription=4
AllocationDescription requested_bytes:int64=1 allocated_bytes:int64=2 allocator_name:string=3

Event
    wall_time:double=1 step:int64=2 what.file_version:string=3 what.graph_def:bytes=4
    what.tagged_run_metadata:TaggedRunMetadata=8 source_metadata:SourceMetadata=10
TaggedRunMetadata tag:string=1 run_metadata:bytes=2
SourceMetadata writer:string=1
"""
