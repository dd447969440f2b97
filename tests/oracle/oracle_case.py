"""Graphs that real TensorFlow made, with what it gave for them (``tests/golden/tf``; its README tells the format)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.framework.errors import Code, error_class
from asyncexec.framework.graph_def import GraphDef

FOLDER = Path(__file__).parents[1] / "golden" / "tf"
LONG = 5_000  # nodes that a run runs: sweeps leave it to the deep suite


@dataclass(frozen=True)
class OracleCase:
    """One folder of the oracle set."""

    name: str

    @cached_property
    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = json.loads((FOLDER / self.name / "meta.json").read_text())
        return meta

    @property
    def family(self) -> str:
        return str(self.meta["family"])

    @property
    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.meta["runs"]
        return found

    @property
    def short_runs(self) -> list[dict[str, Any]]:
        """The runs but a loop of a thousand iterations, which takes as long as all others together."""
        return [run for run in self.runs if sum(run.get("traced_nodes", {}).values()) < LONG]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        with np.load(FOLDER / self.name / "data.npz", allow_pickle=False) as data:
            return dict(data)

    def array(self, spec: dict[str, Any]) -> Any:
        """A fed or fetched array; strings, kept as fixed-width bytes, become objects."""
        array = self.arrays[spec["array"]]
        if spec["dtype"] == "string":
            return array.astype(object)
        return array.reshape(spec["shape"])

    def config(self, **settings: Any) -> ax.SessionConfig:
        """The session's settings that the case asks for, and *settings*."""
        return ax.SessionConfig(**(self.meta["session_config"] | settings))

    def load(self, change: Callable[[GraphDef], GraphDef] = lambda graph_def: graph_def) -> ax.Graph:
        """The graph, after *change* of its GraphDef."""
        graph_def = ax.load_graph_def(FOLDER / self.name / "graph.pb")
        with ax.Graph() as graph:
            ax.import_graph_def(change(graph_def))
        return graph


ALL_CASES = [OracleCase(path.name) for path in sorted(FOLDER.iterdir()) if path.is_dir()]


def expected_error(error: dict[str, Any]) -> type[BaseException] | tuple[type[BaseException], ...]:
    """The class that an oracle error asks for: a status class for the runtime's, Python's own for the client's."""
    if error.get("code") is not None:
        return error_class(Code(error["code"]))
    return {"ValueError": ValueError, "TypeError": TypeError}[error["class"]]


def node_counts(metadata: ax.RunMetadata, graph: ax.Graph) -> dict[str, int]:
    """How often each node of *graph* ran, by its entries in StepStats."""
    counts: dict[str, int] = {}
    for device in metadata.step_stats.dev_stats:
        for stats in device.node_stats:
            if graph.find_operation(stats.node_name) is not None:
                counts[stats.node_name] = counts.get(stats.node_name, 0) + 1
    return counts


def node_devices(metadata: ax.RunMetadata, graph: ax.Graph) -> dict[str, str]:
    """Where each node of *graph* ran, as ``CPU:1``."""
    return {
        stats.node_name: device.device.rpartition("device:")[2]
        for device in metadata.step_stats.dev_stats
        for stats in device.node_stats
        if graph.find_operation(stats.node_name) is not None
    }


def assert_same(got: Any, expected: Any, dtype: str, rtol: float, atol: float) -> None:
    """Equal, or close where floating point is meant; the same dtype and shape in any case."""
    if dtype == "string":
        assert np.shape(got) == expected.shape
        assert np.asarray(got, object).tolist() == expected.tolist()
        return
    got = np.asarray(got)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.dtype.kind in "fcV":
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, expected)
