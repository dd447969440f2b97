"""TensorFlow's ops that no module declares: known from a list, and named where they would have to run."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework import types
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.op_def import NameAttrList, OpDef
from asyncexec.framework.op_registry import OpRegistration, registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.import_checks import checked_registration
from asyncexec.ops.op_list import OP_LIST, TensorFlowOps
from tests.ops.test_op_index import modules_loaded_by

LISTED: Final = TensorFlowOps()
# Explicit pads are our own there: a Pad before becomes a part of the convolution.
OWN_ATTRS: Final = {"_FusedDepthwiseConv2dNative": {"padding", "explicit_paddings"}}
# Ops that have state here, where TensorFlow keeps it outside of its nodes.
STATEFUL_HERE: Final = {"Batch", "BatchFunction", "Unbatch", "UnbatchGrad"}


def listed(name: str) -> OpDef:
    found = LISTED.find(name)
    assert found is not None, name
    return found.op_def


def test_each_line_is_an_op() -> None:
    names = list(LISTED.names())
    assert len(names) >= 1900
    assert names == sorted(set(names))
    assert [listed(name).name for name in names] == names


def test_modules_declare_what_the_list_says() -> None:
    for name in LISTED.names():
        if not registry.is_implemented(name):
            continue
        ours, theirs = registry.lookup(name).op_def, listed(name)
        assert (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs), name
        assert ours.is_stateful == (theirs.is_stateful or name in STATEFUL_HERE), name
        assert ours.is_commutative == theirs.is_commutative, name
        assert ours.allows_uninitialized_input == theirs.allows_uninitialized_input, name
        assert ours.touches_outside == theirs.touches_outside, name
        own = OWN_ATTRS.get(name, set())
        keys = [{attr: key for attr, key in attr_keys(each).items() if attr not in own} for each in (ours, theirs)]
        assert keys[0] == keys[1], name


def attr_keys(op_def: OpDef) -> dict[str, Any]:
    """The attrs of an op, with defaults as they are in a file: float32, and arrays as what can be compared."""
    return {name: replace(attr, default=as_key(attr.default)) for name, attr in op_def.attrs.items()}


def as_key(default: Any) -> Any:
    if isinstance(default, np.ndarray):
        return default.dtype, default.tolist()
    return np.float32(default) if isinstance(default, float) else default


def test_notation_of_values_that_few_ops_have() -> None:
    attrs = listed("DefaultAttrs").attrs
    assert attrs["string_list_val"].default == (b"abc", b"")
    assert attrs["shape_list_val"].default == (TensorShape([]), TensorShape([1]))
    assert attrs["tensor_val"].default == 1
    assert attrs["tensor_val"].default.dtype == np.int32
    assert attrs["type_list_val"].default == (types.int32, types.float32)
    np.testing.assert_array_equal(
        listed("ImageSummary").attrs["bad_color"].default, np.array([255, 0, 0, 255], np.uint8)
    )
    assert listed("PrintV2").attrs["end"].default == b"\n"
    assert listed("DecodeCSV").attrs["field_delim"].default == b","
    assert listed("Iterator").is_stateful
    assert listed("ApplyFtrl").inputs[0].is_ref
    assert isinstance(listed("MapDataset").attrs["f"].kind, str)
    assert not isinstance(listed("MapDataset").attrs["f"].default, NameAttrList)


@pytest.mark.parametrize("name", ["", "Nope", "Abs|", "Abs\nAcos", "Python", "é", "\ud800", "abs"])
def test_what_is_not_in_the_list(name: str) -> None:
    assert LISTED.find(name) is None


def test_the_list_is_read_when_it_is_needed() -> None:
    asked = "registry.lookup('AddV2')\nassert '_text' not in vars(registry._listed)"
    assert "math.binary_math" in modules_loaded_by(asked)
    assert modules_loaded_by("assert 'CTCLoss' in registry or 'Fact' in registry") >= {"op_list"}


def test_a_users_op_may_have_the_name_of_a_listed_one() -> None:
    assert registry.lookup("Fact").op_def == listed("Fact")

    @ax.op(name="Fact", outputs=[ax.string])
    def fact() -> bytes:
        return b"own"

    try:
        assert registry.lookup("Fact") is fact.registration
    finally:
        del registry._parsed["Fact"]
    assert registry.lookup("Fact").op_def == listed("Fact")


OUTSIDE: Final = """
    ReadFile WriteFile MatchingFiles ImmutableConst RecordInput DumpTensor Save SaveV2 SaveSlices Restore
    RestoreV2 RestoreSlice LMDBReader IdentityReader ReaderReadUpTo ReaderRestoreState TFRecordDataset
    TextLineDataset FixedLengthRecordDatasetV2 CSVDataset SqlDataset LMDBDataset ExperimentalLMDBDataset
    MatchingFilesDataset DatasetToTFRecord SaveDataset LoadDataset SnapshotDatasetV2
    CreateSummaryFileWriter CreateSummaryDbWriter LoadAndRemapMatrix GenerateVocabRemapping
    FixedUnigramCandidateSampler DecodeProtoV2 EncodeProto FileSystemSetConfiguration PyFunc PyFuncStateless
    EagerPyFunc XlaCustomCall XlaCallModule DatasetFromGraph RpcClient RpcServer DataServiceDatasetV4
    RegisterDataset DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary
    WorkerHeartbeat ShutdownDistributedTPU DistributedSave MergeV2Checkpoints CalibrationStatisticsSaver
    InitializeTableFromTextFileV2
""".split()


@pytest.mark.parametrize("op", OUTSIDE)
def test_ops_that_reach_outside_are_refused(op: str) -> None:
    registration = checked_registration(registry.lookup(op), (), 0)
    assert registration.kernel is not None
    with pytest.raises(ax.errors.PermissionDeniedError, match=rf"{op} \('bad'\)"):
        registration.kernel.factory(OpKernelConstruction("bad", registration.op_def, {}, (), (), ResourceMgr()))


@pytest.mark.parametrize(
    "op", ["ScalarSummary", "CacheDataset", "IteratorV2", "ShardedFilename", "ParseExampleV2", "RangeDataset", "Copy"]
)
def test_ops_that_stay_inside_are_not(op: str) -> None:
    assert not listed(op).touches_outside


def graph_of_ops_without_kernels() -> ax.GraphDef:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        ax.add(x, 1.0, name="y")
        sign = ax.create_op("RiscSign", [x], name="sign")
        ax.create_op("RiscAbs", [x], name="abs_1")
        again = ax.create_op("RiscAbs", [x], name="abs_2")
        ax.create_op("RiscNeg", [sign], name="all")
        ax.create_op("RiscCos", [again], name="cos")
    return graph.as_graph_def()


async def test_what_nobody_fetches_needs_no_kernel() -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(graph_of_ops_without_kernels(), name="")
    async with ax.Session(graph) as session:
        assert await session.run("y:0", {"x:0": 2.0}) == 3.0


@pytest.mark.parametrize("executor_type", ["DEFAULT", "COMPILED"])
async def test_an_error_names_all_ops_without_a_kernel(executor_type: str) -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(graph_of_ops_without_kernels(), name="")
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        with pytest.raises(ax.errors.UnimplementedError) as missing:
            await session.run(["cos:0", "abs_1:0", "all:0"], {"x:0": 2.0})
        said = missing.value.message
        for part in (
            "4 ops",
            "RiscAbs ('abs_1', 'abs_2')",
            "RiscCos ('cos')",
            "RiscSign ('sign')",
            "RiscNeg",
        ):
            assert part in said
        assert await session.run("abs_1:0", {"abs_1:0": 2.0}) == 2.0


async def test_an_error_names_ops_in_functions() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")

        @ax.function
        def inner(value: ax.Tensor) -> Any:
            return ax.create_op("RiscCos", [ax.create_op("RiscAbs", [value])])

        y = inner(x)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.UnimplementedError, match="2 ops that have no kernel") as missing:
            await session.run(y, {x: 2.0})
    assert "RiscAbs" in missing.value.message
    assert "RiscCos" in missing.value.message


def test_raw_ops_has_ops_with_kernels() -> None:
    assert "RiscAbs" not in dir(ax.raw_ops)
    with pytest.raises(AttributeError, match="TensorFlow has the op 'RiscAbs', and asyncexec no kernel for it"):
        _ = ax.raw_ops.RiscAbs


def test_an_op_that_is_nowhere_gets_the_nearest_names() -> None:
    with pytest.raises(ax.errors.NotFoundError) as unknown:
        registry.lookup("MergeSumary")
    assert unknown.value.hint is not None
    assert unknown.value.hint.startswith("did you mean MergeSummary")
    with pytest.raises(ax.errors.NotFoundError) as other:
        registry.lookup("MyCompanysOwnOp")
    assert other.value.hint is None


def test_a_registry_without_a_list_knows_its_own_ops() -> None:
    own: OpRegistration = registry.lookup("AddV2")
    assert own.op_def.is_commutative == listed("AddV2").is_commutative


@pytest.mark.oracle
def test_the_list_is_what_tensorflow_registers() -> None:
    pytest.importorskip("tensorflow")
    source = import_module("tests.ops.make_op_list").source()
    assert OP_LIST.read_text(encoding="utf-8") == source, "run python -m tests.ops.make_op_list"
