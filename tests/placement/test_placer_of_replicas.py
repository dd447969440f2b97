"""Nodes that prefer one process: a preferred device brings the other devices of its process before those of others."""

from __future__ import annotations

from asyncexec.framework.device import Device, DeviceAttributes
from asyncexec.placement.device_set import DeviceSet
from tests.placement.fake_devices import FACTORIES, fake_device, lines, placed

CLIENT = "/job:localhost/replica:0/task:0/device:"
WORKERS = "/job:worker/replica:0/task:"


def remote(name: str) -> Device:
    return Device(DeviceAttributes(name, name.rpartition("/device:")[2].partition(":")[0]), is_remote=True)


def devices() -> DeviceSet:
    """A client with both types, a worker with both, and one with a FakeCPU alone."""
    own = [fake_device(f"{CLIENT}{kind}:0") for kind in ("FakeCPU", "FakeGPU")]
    theirs = [remote(f"{WORKERS}{name}") for name in ("0/device:FakeCPU:0", "0/device:FakeGPU:0", "1/device:FakeCPU:0")]
    return DeviceSet([*own, *theirs], FACTORIES)


GRAPH = """
    in: FakeInput
    any: FakeRelu(in)
    cpu: ReluCPU(in)
    gpu: ReluGPU(in)
    type: FakeRelu(in) @ /device:FakeGPU:0
    here: FakeRelu(in) @ /job:localhost
    there: FakeRelu(in) @ /job:worker/task:1
"""


def on(device: str) -> str:
    known = devices()
    found = placed(GRAPH, known, soft=False, default_local_device=known.by_name(device))
    return found.replace(CLIENT, "client ").replace(WORKERS, "worker ").replace("/device:", " ")


def test_nodes_that_ask_for_no_process_go_to_the_worker() -> None:
    assert on(f"{WORKERS}0/device:FakeGPU:0") == lines(
        """
        in @ worker 0 FakeCPU:0
        any @ worker 0 FakeGPU:0
        cpu @ worker 0 FakeCPU:0
        gpu @ worker 0 FakeGPU:0
        type @ worker 0 FakeGPU:0
        here @ client FakeGPU:0
        there @ worker 1 FakeCPU:0
        """
    )


def test_what_the_worker_does_not_have_is_found_where_it_is_without_it() -> None:
    assert on(f"{WORKERS}1/device:FakeCPU:0") == lines(
        """
        in @ worker 1 FakeCPU:0
        any @ worker 1 FakeCPU:0
        cpu @ worker 1 FakeCPU:0
        gpu @ client FakeGPU:0
        type @ client FakeGPU:0
        here @ client FakeGPU:0
        there @ worker 1 FakeCPU:0
        """
    )
