"""What a stranger wants to know of a graph: its ops, devices, inputs, outputs, loops and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from asyncexec.graph.graph_ends import PLACEHOLDERS
from asyncexec.page.graph_nodes import ShownNode

FUNCTIONAL_LOOPS: Final = frozenset({"While", "StatelessWhile"})

TableRows: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str | int]]]  # heads, and rows


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor at the border of a graph; dtype and shape are empty where they are not known."""

    name: str
    op: str
    dtype: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """A loop: a frame of Enter nodes, or a While node with functions."""

    name: str
    loop_variables: int
    parallel_iterations: int | None


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """A function of the graph's library."""

    name: str
    node_count: int


@dataclass(frozen=True, slots=True)
class PassSummary:
    """What a graph pass changes when all outputs are run; device is empty where it sees the whole graph.

    Examples are names of nodes: ``+`` were added, ``-`` removed, ``~`` changed.
    """

    name: str
    device: str
    nodes_before: int
    nodes_after: int
    added: int
    removed: int
    changed: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """What ``asyncexec inspect --json`` prints.

    Later versions of asyncexec may add fields; those that are here keep their meaning, or *version* goes up.

    Attributes:
        source: what was inspected, as it was named.
        node_count: nodes outside of functions.
        op_counts: nodes of each op, the most frequent first.
        device_counts: nodes of each device that they ask for; ``""`` where a node asks for none.
        inputs: what has to be fed.
        outputs: what no other node takes.
        without_kernel: ops that are known and cannot run.
        unknown_ops: ops that are neither registered nor functions of the graph: dtypes and shapes are then not known.
        problem: why the graph cannot be imported, if it cannot.
        passes: with ``--passes``, what each makes of the graph, in order.
    """

    version: Literal[1] = 1
    source: str
    node_count: int
    op_counts: Mapping[str, int]
    device_counts: Mapping[str, int]
    inputs: Sequence[TensorSummary]
    outputs: Sequence[TensorSummary]
    loops: Sequence[LoopSummary]
    functions: Sequence[FunctionSummary]
    unknown_ops: Sequence[str] = ()
    without_kernel: Sequence[str] = ()
    problem: str | None = None
    passes: Sequence[PassSummary] = ()


def summarize(
    source: str,
    nodes: Sequence[ShownNode],
    functions: Sequence[FunctionSummary],
    unknown_ops: Sequence[str] = (),
    without_kernel: Sequence[str] = (),
    problem: str | None = None,
    passes: Sequence[PassSummary] = (),
) -> GraphSummary:
    """The summary of a graph with these *nodes* and *functions*."""
    taken = {each.node for node in nodes for each in node.inputs}
    ends = [node for i, node in enumerate(nodes) if i not in taken and node.op not in PLACEHOLDERS]
    return GraphSummary(
        source=source,
        node_count=len(nodes),
        op_counts=dict(Counter(node.op for node in nodes).most_common()),
        device_counts=dict(Counter(node.device for node in nodes).most_common()),
        inputs=[each for node in nodes if node.op in PLACEHOLDERS for each in _tensors(node)],
        outputs=[each for node in ends for each in _tensors(node)],
        loops=[*_frames(nodes), *(_functional_loop(node) for node in nodes if node.op in FUNCTIONAL_LOOPS)],
        functions=functions,
        unknown_ops=unknown_ops,
        without_kernel=without_kernel,
        problem=problem,
        passes=passes,
    )


def table_rows(summary: GraphSummary) -> dict[str, TableRows]:
    """The tables of *summary* by their titles."""
    tensor_heads = ("tensor", "op", "dtype", "shape")
    return {
        "inputs": (tensor_heads, [(t.name, t.op, t.dtype, t.shape) for t in summary.inputs]),
        "outputs": (tensor_heads, [(t.name, t.op, t.dtype, t.shape) for t in summary.outputs]),
        "ops": (("op", "nodes"), list(summary.op_counts.items())),
        "unknown ops": (("op", "nodes"), [(op, summary.op_counts.get(op, 0)) for op in summary.unknown_ops]),
        "ops without a kernel": (
            ("op", "nodes"),
            [(op, summary.op_counts.get(op, 0)) for op in summary.without_kernel],
        ),
        "devices": (("device", "nodes"), [(name or "(any)", count) for name, count in summary.device_counts.items()]),
        "loops": (
            ("loop", "variables", "parallel iterations"),
            [(loop.name, loop.loop_variables, loop.parallel_iterations or "") for loop in summary.loops],
        ),
        "functions": (("function", "nodes"), [(each.name, each.node_count) for each in summary.functions]),
        "passes": (("pass", "nodes", "changes", "such as"), [_pass_row(each) for each in summary.passes]),
    }


def _pass_row(each: PassSummary) -> Sequence[str]:
    changes = (("+", each.added), ("-", each.removed), ("~", each.changed))
    return (
        f"{each.name} on {each.device[-5:]}" if each.device else each.name,
        f"{each.nodes_before:,} -> {each.nodes_after:,}",
        " ".join(f"{sign}{count:,}" for sign, count in changes if count),
        " ".join(each.examples),
    )


def _tensors(node: ShownNode) -> list[TensorSummary]:
    """The outputs of *node*; the node alone where it has none, or they are not known."""
    tensors = [TensorSummary(f"{node.name}:{i}", node.op, *output) for i, output in enumerate(node.outputs)]
    return tensors or [TensorSummary(node.name, node.op)]


def _frames(nodes: Iterable[ShownNode]) -> list[LoopSummary]:
    variables: Counter[str] = Counter()
    parallel: dict[str, int | None] = {}
    for node in nodes:
        if node.op in {"Enter", "RefEnter"}:
            name = _as_text(node.attrs.get("frame_name", ""))
            variables[name] += not node.attrs.get("is_constant")
            parallel[name] = _as_int(node.attrs.get("parallel_iterations"))
    return [LoopSummary(name, variables[name], parallel[name]) for name in parallel]


def _functional_loop(node: ShownNode) -> LoopSummary:
    num_variables = sum(source.slot >= 0 for source in node.inputs)
    return LoopSummary(node.name, num_variables, _as_int(node.attrs.get("parallel_iterations")))


def _as_text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) else None
