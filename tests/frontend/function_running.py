"""What the tests of ``@ax.function`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import asyncexec as ax


def plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def evaluated(fetches: Any) -> Any:
    first = fetches[0] if isinstance(fetches, list) else fetches
    with ax.BlockingSession(first.graph) as session:
        return session.run(fetches)


def in_tensorflow(graph: ax.Graph, folder: Path, fetches: Any, feeds: Any, first: str | None = None) -> Any:
    """What TensorFlow gives for *graph*, once operation *first* has run."""
    import tensorflow as tf

    ax.save_graph_def(graph.as_graph_def(), folder / "graph.pb")
    graph_def = tf.compat.v1.GraphDef.FromString((folder / "graph.pb").read_bytes())
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            if first is not None:
                session.run(first)
            return session.run(fetches, feeds)
