"""TensorFlow places the same random graphs on three devices as we do, or refuses them with the same status.

Graphs with variables of both kinds, colocation, control edges, partial names and, in some, devices that do not exist.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.graph.graph_text import parse_graph_text
from asyncexec.importers.graph_formats import format_graph_def
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import PlacementRules
from asyncexec.placement.placer import Placer
from benchmarks import tensorflow_session
from tests.running import import_all_names

import_all_names()
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

# What is made: what it takes of (f)loats, (h)andles and (r)eferences, and gives.
OPS: Final = {
    "Const[1.0]": ("", "f"),
    "Placeholder[float32, []]": ("", "f"),
    "VarHandleOp[dtype=float32, shape=[]]": ("", "h"),
    "VariableV2[dtype=float32, shape=[]]": ("", "r"),
    "Neg": ("f", "f"),
    "AddV2": ("ff", "f"),
    "Abs": ("r", "f"),
    "ReadVariableOp[dtype=float32]": ("h", "f"),
    "AssignVariableOp": ("hf", ""),
    "Assign": ("rf", "r"),
    "Shape": ("f", ""),
    "Size": ("r", ""),
    "NoOp": ("", ""),
}
DEVICES: Final = [*(f"/device:CPU:{i}" for i in (0, 1, 2, "*")), "/job:localhost", "/task:0", "/replica:0/device:CPU:1"]
MISSING: Final = ["/device:CPU:7", "/device:GPU:0", "/job:worker"]


def random_graph(rng: random.Random) -> str:
    """A graph as text; its last node is there to be run."""
    devices = DEVICES + (MISSING if rng.random() < 0.15 else [])
    share_placed, share_colocated = rng.choice([0.1, 0.4, 0.8]), rng.choice([0, 0.1, 0.4])
    made: dict[str, list[str]] = {"f": [], "h": [], "r": []}
    lines: list[str] = []
    for _ in range(rng.randint(3, 16)):
        op, (takes, gives) = rng.choice(list(OPS.items()))
        if any(not made[kind] for kind in takes):
            continue
        name, earlier = f"n{len(lines)}", [line.partition(":")[0] for line in lines]
        inputs = [rng.choice(made[kind]) for kind in takes]
        if earlier and rng.random() < 0.2:
            inputs.append(f"^{rng.choice(earlier)}")
        if earlier and rng.random() < share_colocated:
            with_nodes = ", ".join(
                f'"loc:@{other}"' for other in rng.sample(earlier, min(len(earlier), rng.choice([1, 2])))
            )
            op = f"{op.removesuffix(']')}{', ' if op.endswith(']') else '['}_class=[{with_nodes}]]"
        device = f" @ {rng.choice(devices)}" if rng.random() < share_placed else ""
        lines.append(f"{name}: {op}{'(' + ', '.join(inputs) + ')' if inputs else ''}{device}")
        if gives:
            made[gives].append(name)
    return "\n".join([*lines, "go: NoOp"])


def in_tensorflow(text: str, soft: bool, capfd: pytest.CaptureFixture[str]) -> dict[str, str] | int:
    """Where TensorFlow places the nodes, or the status it refuses them with."""
    tf = tensorflow_session.tensorflow()
    config = tf.compat.v1.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=soft, log_device_placement=True)
    graph_def = tensorflow_session.read(format_graph_def(parse_graph_text(text), "pb"))
    capfd.readouterr()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        try:
            with tf.compat.v1.Session(graph=graph, config=config) as session:
                session.run("go")
        except tf.errors.OpError as error:
            return int(error.error_code)
        finally:
            ctypes.CDLL(None).fflush(None)
    rows = [line.split(": ") for line in capfd.readouterr().out.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3}


def here(text: str, soft: bool, needs_kernels: bool) -> dict[str, str] | int:
    """Where we place the nodes, or the status we refuse them with."""
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(text))
    devices = DeviceSet(create_devices(DeviceOptions({"CPU": 3})))
    placer = Placer(graph, PlacementRules(devices, allow_soft_placement=soft, needs_kernels=needs_kernels))
    try:
        run_at_once(placer.place())
    except ax.errors.OpError as error:
        return int(error.code)
    return {node.name: placer.device_of(node).name for node in graph}


@pytest.mark.parametrize("seed", range(20))
def test_tensorflow_places_alike(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        text, soft = random_graph(rng), rng.random() < 0.4
        expected = in_tensorflow(text, soft, capfd)
        for needs_kernels in (False, True):
            found: Any = here(text, soft, needs_kernels)
            assert (found, soft) == (expected, soft), text
