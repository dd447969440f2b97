"""Event files are read by TensorBoard's own code, and RunMetadata by the classes of its messages."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sysconfig
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import config_pb2, event_pb2, graph_pb2

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.framework.step_stats import DeviceStepStats, NodeExecStats
from asyncexec.importers.tf_graph_def import format_graph_def

X = np.ones([2, 3], np.float32)


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        with ax.name_scope("layer"):
            y = ax.matmul(x, ax.constant(np.ones([3, 4], np.float32), name="w"), name="product")
        ax.reduce_sum(y, name="total")
    return graph


def run_traced(graph: ax.Graph) -> ax.RunMetadata:
    metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True, output_partition_graphs=True)
    with ax.BlockingSession(graph) as session:
        session.run("total:0", {"x:0": X}, options=options, metadata=metadata)
    return metadata


@pytest.mark.allow_blocking
def test_run_metadata_has_tensorflows_fields(graph: ax.Graph) -> None:
    metadata = run_traced(graph)
    theirs = config_pb2.RunMetadata.FromString(ax.run_metadata_to_proto(metadata).SerializeToString())
    (device,), (ours,) = theirs.step_stats.dev_stats, metadata.step_stats.dev_stats
    assert device.device == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert dict(device.thread_names) == ours.thread_names
    assert not theirs.HasField("cost_graph")
    assert [{node.name for node in part.node} for part in theirs.partition_graphs] == [
        {node.name for node in part.node} for part in metadata.partition_graphs
    ]
    nodes = {node.node_name: node for node in device.node_stats}
    assert nodes.keys() == {"layer/w", "layer/product", "Sum/reduction_indices", "total"}
    for stats in ours.node_stats:
        node = nodes[stats.node_name]
        for field, value in node.ListFields():
            if field.name not in ("memory", "output"):
                assert value == getattr(stats, field.name)
        assert node.all_start_nanos == stats.all_start_nanos
        assert node.thread_id == stats.thread_id
    (output,), (memory,) = nodes["layer/product"].output, nodes["layer/product"].memory
    assert (output.slot, output.tensor_description.dtype) == (0, ax.float32.enum)
    assert [dim.size for dim in output.tensor_description.shape.dim] == [2, 4]
    assert output.tensor_description.allocation_description.allocated_bytes == 32
    assert (memory.total_bytes, memory.peak_bytes, memory.live_bytes) == (32, 32, 32)
    assert nodes["total"].output[0].tensor_description.HasField("shape")  # TensorBoard looks into it
    assert not nodes["layer/w"].memory


def test_thread_ids_that_are_too_large_keep_their_names() -> None:
    device = DeviceStepStats(device="d", thread_names={2**40 + 7: "t"})
    device.node_stats.append(NodeExecStats(node_name="n", all_start_micros=1, thread_id=2**40 + 7))
    metadata = ax.RunMetadata(step_stats=ax.StepStats(dev_stats=[device]))
    (found,) = ax.run_metadata_to_proto(metadata).step_stats.dev_stats
    assert found.thread_names[found.node_stats[0].thread_id] == "t"


@pytest.mark.oracle
@pytest.mark.allow_blocking
def test_tensorflow_reads_it(graph: ax.Graph) -> None:
    tf = pytest.importorskip("tensorflow")
    ours = ax.run_metadata_to_proto(run_traced(graph))
    theirs = tf.compat.v1.RunMetadata.FromString(ours.SerializeToString())
    assert text_format.MessageToString(theirs) == text_format.MessageToString(ours)


@pytest.mark.allow_blocking
def test_the_accumulator_finds_graph_and_run(graph: ax.Graph, tmp_path: Path) -> None:
    metadata = run_traced(graph)
    path = ax.save_events(metadata, tmp_path / "logs" / "a", graph=graph, tag="first", step=7)
    assert path.parent == tmp_path / "logs" / "a"
    found = EventAccumulator(str(path)).Reload()
    assert found.file_version == 2
    assert found.Graph() == graph_pb2.GraphDef.FromString(format_graph_def(graph.as_graph_def(), "pb"))
    assert found.Tags()["run_metadata"] == ["first"]
    expected = config_pb2.RunMetadata.FromString(ax.run_metadata_to_proto(metadata).SerializeToString())
    assert found.RunMetadata("first") == expected


@pytest.mark.allow_blocking
def test_more_runs_of_one_graph_in_files_of_their_own(graph: ax.Graph, tmp_path: Path) -> None:
    metadata = run_traced(graph)
    paths = [ax.save_events(metadata, tmp_path, graph=graph.as_graph_def(), tag="first")]
    paths += [ax.save_events(metadata, str(tmp_path), tag=tag, step=i) for i, tag in enumerate(["second", "third"])]
    assert len(set(paths)) == 3
    found = EventAccumulator(str(tmp_path)).Reload()
    assert set(found.Tags()["run_metadata"]) == {"first", "second", "third"}
    assert {node.name for node in found.Graph().node} == {node.name for node in graph.operations}


def test_each_record_is_an_event(tmp_path: Path) -> None:
    data = ax.save_events(ax.RunMetadata(), tmp_path, graph=GraphDef(), tag="t", step=3).read_bytes()
    events = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(event_pb2.Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    assert [event.WhichOneof("what") for event in events] == ["file_version", "graph_def", "tagged_run_metadata"]
    assert [event.step for event in events] == [0, 3, 3]
    assert events[0].source_metadata.writer == "asyncexec"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="tag is empty"):
        ax.save_events(ax.RunMetadata(), tmp_path, tag="")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidArgumentError, match=r"'.*file' is not"):
        ax.save_events(ax.RunMetadata(), tmp_path / "file")
    wrong = GraphDef(node=(NodeDef.model_construct(name="\ud800"),))
    with pytest.raises(InvalidArgumentError):
        ax.save_events(ax.RunMetadata(), tmp_path, graph=wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@contextmanager
def tensorboard(logdir: Path, *, load_fast: bool) -> Iterator[str]:
    """The address of a TensorBoard on *logdir*, on a port that it has chosen."""
    program = shutil.which("tensorboard", path=sysconfig.get_path("scripts")) or shutil.which("tensorboard")
    assert program is not None
    command = [program, "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    command += ["--load_fast", "true" if load_fast else "false", "--reload_interval", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = []
            for line in process.stderr:
                told.append(line)
                if " at http://" in line:
                    yield line.partition(" at ")[2].split()[0].rstrip("/")
                    break
            else:
                raise AssertionError("".join(told))
        finally:
            process.terminate()
            process.communicate()


def get(address: str, route: str, **query: str) -> bytes:
    url = f"{address}/data/plugin/graphs/{route}?{urllib.parse.urlencode(query)}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        data: bytes = response.read()
        return data


def runs_of(address: str, tag: str) -> dict[str, Any]:
    """What the graphs plugin has, once it has loaded the run called *tag*."""
    deadline = time.monotonic() + 90
    while True:
        found: dict[str, Any] = json.loads(get(address, "info"))
        if any(tag in run["tags"] for run in found.values()):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


@pytest.mark.deep
@pytest.mark.allow_blocking
@pytest.mark.parametrize("load_fast", [False, True], ids=["python", "data_server"])
def test_tensorboard_shows_graph_and_run(graph: ax.Graph, tmp_path: Path, load_fast: bool) -> None:
    metadata = run_traced(graph)
    ax.save_events(metadata, tmp_path / "a", graph=graph, tag="first")
    ax.save_events(metadata, tmp_path / "a", tag="second", step=1)
    with tensorboard(tmp_path, load_fast=load_fast) as address:
        found = runs_of(address, "second")["a"]
        assert found["run_graph"]
        assert {tag for tag, kinds in found["tags"].items() if kinds["profile"]} == {"first", "second"}
        shown = text_format.Parse(get(address, "graph", run="a").decode(), graph_pb2.GraphDef())
        assert {node.name for node in shown.node} == {node.name for node in graph.operations}
        told = text_format.Parse(get(address, "run_metadata", run="a", tag="second").decode(), config_pb2.RunMetadata())
    assert told == config_pb2.RunMetadata.FromString(ax.run_metadata_to_proto(metadata).SerializeToString())
    nodes = {node.node_name: node for device in told.step_stats.dev_stats for node in device.node_stats}
    assert nodes["layer/product"].memory[0].total_bytes == 32
    assert nodes["layer/product"].all_end_rel_nanos > 0
