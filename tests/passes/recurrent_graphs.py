"""Recurrent layers of Keras as graphs of TensorFlow, and what comes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.importers.graph_formats import parse_graph_def

GOLDEN: Final = dict(np.load(Path(__file__).parents[1] / "golden" / "recurrent.npz"))
KINDS: Final = ("lowered", "functional")
LAYERS: Final = {
    "lstm": ["LSTM"],
    "lstm_states": ["LSTM"],
    "lstm_any_length": ["LSTM"],
    "lstm_backwards": ["LSTM"],
    "gru": ["GRU"],
    "gru_reset_first": ["GRU"],
    "simple_rnn": ["RNN"],
    "bidirectional": ["LSTM", "LSTM"],
    "stack": ["LSTM", "GRU"],
    "stack_any_length": ["LSTM", "GRU"],
    "standard_lstm": ["LSTM"],
    "dynamic_rnn": ["LSTM"],
}
CASES: Final = [(name, kind) for name in LAYERS for kind in KINDS if f"{name}/{kind}" in GOLDEN]


async def outputs_and_ops(
    graph: ax.Graph, fetches: Any, feeds: Any, config: ax.SessionConfig, *, optimizes: bool = False
) -> tuple[list[Any], Counter[str]]:
    """What comes of a run, and how many nodes of each op run."""
    async with ax.Session(graph, config) as session:
        session._state.optimizes = optimizes
        metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
        found = await session.run(fetches, feeds, metadata=metadata, options=options)
    last = [each.graph for each in metadata.passes if each.graph is not None][-1]
    return list(found), Counter(node.op for node in last.node)


def golden(name: str, kind: str) -> tuple[ax.Graph, list[str], list[Any]]:
    """A graph of TensorFlow, its outputs, and their values."""
    outputs = GOLDEN[f"{name}/{kind}/outputs"].tolist()
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_def(GOLDEN[f"{name}/{kind}"].tobytes(), "pb"))
    return graph, outputs, [GOLDEN[f"{name}/wanted/{i}"] for i in range(len(outputs))]


def assert_close(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
