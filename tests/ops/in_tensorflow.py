"""Runs a graph of ours on an installed TensorFlow."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import asyncexec as ax


def run_in_tensorflow(graph: ax.Graph, fetches: list[ax.Tensor], folder: Path) -> list[Any]:
    """What TensorFlow gives for *fetches*; a file in *folder* takes the graph there."""
    tf: Any = import_module("tensorflow")
    path = folder / "graph.pb"
    ax.save_graph_def(graph.as_graph_def(), path)
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(path.read_bytes()), name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            found: list[Any] = session.run([tensor.name for tensor in fetches])
    return found
