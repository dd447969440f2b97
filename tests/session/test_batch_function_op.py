"""The op BatchFunction by itself, in imported graphs: its attrs mean, and are refused, as in TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import Code
from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.framework.op_registry import registry


@dataclass(frozen=True)
class Case:
    """Attrs of the node, the rows that it is fed with, and the result or the status."""

    rows: tuple[float, ...]
    expected: list[float] | Code
    attrs: dict[str, Any] = field(default_factory=dict)


# The function gives each row the sum of all rows of the batch.
CASES = {
    "sum": Case((1, 2), [3, 3]),
    "padded": Case((7, 8), [29, 29], {"allowed_batch_sizes": (1, 4)}),
    "not_padded": Case((7, 8), [15, 15], {"allowed_batch_sizes": (2, 4)}),
    "full": Case((1, 2, 3, 4), [10] * 4),
    "too_large": Case((1, 2, 3, 4, 5), Code.INVALID_ARGUMENT),
    "too_large_to_split": Case((1, 2, 3, 4, 5), Code.INVALID_ARGUMENT, {"enable_large_batch_splitting": True}),
    "split": Case(
        (1, 2, 3, 4, 6),
        [10, 10, 10, 10, 12],
        {"enable_large_batch_splitting": True, "max_batch_size": 10, "allowed_batch_sizes": (2, 4)},
    ),
    "no_rows": Case((), []),
    "a_size_of_zero": Case((1, 2), [5, 5], {"allowed_batch_sizes": (0, 4)}),
    "sizes_descend": Case((1,), Code.INVALID_ARGUMENT, {"allowed_batch_sizes": (3, 2, 4)}),
    "sizes_repeat": Case((1,), Code.INVALID_ARGUMENT, {"allowed_batch_sizes": (2, 2, 4)}),
    "last_size_is_not_the_largest": Case((1,), Code.INVALID_ARGUMENT, {"allowed_batch_sizes": (2, 3)}),
    "last_size_is_too_large": Case(
        (1,), Code.INVALID_ARGUMENT, {"allowed_batch_sizes": (2, 8), "enable_large_batch_splitting": True}
    ),
    "no_batch_threads": Case((1,), [1], {"num_batch_threads": 0}),
    "batches_of_no_rows": Case((1,), Code.INVALID_ARGUMENT, {"max_batch_size": 0}),
    "negative_timeout": Case((1,), Code.INVALID_ARGUMENT, {"batch_timeout_micros": -1}),
    "no_batches": Case((1,), [1], {"max_enqueued_batches": 0}),
    "no_batches_to_split": Case(
        (1,), Code.INVALID_ARGUMENT, {"max_enqueued_batches": 0, "enable_large_batch_splitting": True}
    ),
    "any_number_of_batches": Case((1,), [1], {"max_enqueued_batches": -1}),
}
DEFAULTS = {"max_batch_size": 4, "enable_large_batch_splitting": False, "batch_timeout_micros": 1000}


def graph_def(attrs: dict[str, Any]) -> GraphDef:
    """A graph with a BatchFunction "batch" of these attrs."""
    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float32, [None], name="fed")
        ax.batch(name="batch")(lambda rows: rows * 0.0 + ax.reduce_sum(rows))(fed)
    made = graph.as_graph_def()
    nodes = [_with_attrs(node, attrs) if node.op == "BatchFunction" else node for node in made.node]
    return GraphDef.from_fields(made.__dict__ | {"node": tuple(nodes)})


def _with_attrs(node: NodeDef, attrs: dict[str, Any]) -> NodeDef:
    kinds = registry.lookup("BatchFunction").op_def.attrs
    encoded = {name: encode_attr_value(value, kinds[name].kind) for name, value in attrs.items()}
    return NodeDef.from_fields(node.__dict__ | {"attr": {**node.attr, **encoded}})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_attrs_mean_what_they_do_in_tensorflow(case: Case) -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def(DEFAULTS | case.attrs))
    async with ax.Session(graph) as session:
        if isinstance(case.expected, Code):
            with pytest.raises(ax.errors.OpError) as caught:
                await session.run("batch:0", {"fed:0": list(case.rows)})
            assert (caught.value.code, caught.value.node) == (case.expected, "batch")
        else:
            assert (await session.run("batch:0", {"fed:0": list(case.rows)})).tolist() == case.expected


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tensorflow_says_the_same(case: Case, tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "graph.pb"
    ax.save_graph_def(graph_def(DEFAULTS | case.attrs), path)
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(path.read_bytes()), name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            if isinstance(case.expected, Code):
                with pytest.raises(tf.errors.OpError) as caught:
                    session.run("batch:0", {"fed:0": list(case.rows)})
                assert caught.value.error_code == case.expected
            else:
                assert session.run("batch:0", {"fed:0": list(case.rows)}).tolist() == case.expected


async def test_functions_of_one_name_in_two_queues_are_batched_apart() -> None:
    made = graph_def(DEFAULTS)
    with ax.Graph() as graph:
        ax.import_graph_def(made, name="one")
        ax.import_graph_def(made, name="other")
        fed = ax.placeholder(ax.float32, [None], name="also")
        ax.import_graph_def(graph_def(DEFAULTS | {"batching_queue": b"second"}), name="third", input_map={"fed:0": fed})
    async with ax.Session(graph) as session:
        feeds = {"one/fed:0": [1.0], "other/fed:0": [2.0], "also:0": [4.0]}
        results = await session.run(["one/batch:0", "other/batch:0", "third/batch:0"], feeds)
    assert [each.tolist() for each in results] == [[3.0], [3.0], [4.0]]
