"""What a journal tells of a run: its fetches as JSON has them, and whether a run is the one that was begun."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from asyncexec.durable.run_journal import RunJournal
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError
from asyncexec.frontend.create_op import TensorSource
from asyncexec.graph.control_flow_info import ENTERS
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.state.session_state import SESSION_HANDLES
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.session.fingerprint import check_fingerprint

_OF_A_SESSION: Final = SESSION_HANDLES | {"GetSessionTensor", "DeleteSessionTensor"}


def told_of_fetches(fetches: Any) -> Any:
    """*fetches* as JSON has them.

    Raises:
        InvalidArgumentError: they are in something else than lists, tuples and dicts.
    """
    if isinstance(fetches, TensorSource):
        fetches = fetches.fetched_tensor()
    if isinstance(fetches, (Tensor, Node)):
        return fetches.name
    kind = type(fetches)
    if kind is str:
        return fetches
    if kind in (list, tuple):
        return [kind.__name__, [told_of_fetches(each) for each in fetches]]
    if kind is dict and all(type(key) is str for key in fetches):
        return ["dict", [[key, told_of_fetches(each)] for key, each in fetches.items()]]
    raise InvalidArgumentError(
        f"fetches of the type {kind.__qualname__} cannot be stored in a journal",
        hint="fetch tensors, operations or names, and lists, tuples and dicts of them by name",
    )


def fetches_of(told: Any) -> Any:
    """The fetches, by name, that *told* is of."""
    if isinstance(told, str):
        return told
    kind, parts = told
    if kind == "dict":
        return {key: fetches_of(part) for key, part in parts}
    return (list if kind == "list" else tuple)(fetches_of(part) for part in parts)


async def check_run(journal: RunJournal, told: Mapping[str, Any], feeds: Mapping[str, object]) -> None:
    """Raise FailedPreconditionError unless the run of *journal* was begun with what is *told*, and *feeds*."""
    before = journal.told
    assert before is not None  # it has begun
    again = f"session.forget_run({journal.run_id!r}) lets it begin anew"
    for part in ("fetches", "targets"):
        if before[part] != told[part]:
            raise FailedPreconditionError(
                f"the run {journal.run_id!r} was begun with the {part} {before[part]!r}, not {told[part]!r}",
                hint=f"give another run_id; or {again}",
            )
    graphs = base64.b64decode(before["graph"]), base64.b64decode(told["graph"])
    hint = f"go on with the graph of the run; or {again}"
    check_fingerprint(*graphs, f"the journal of the run {journal.run_id!r}", hint)
    if not await journal.has_feeds(feeds):
        raise FailedPreconditionError(
            f"the run {journal.run_id!r} was begun with other feeds",
            hint=f"give another run_id, or the same feeds; or {again}",
        )


def check_nodes(nodes: Iterable[Node]) -> Stage[None]:
    """Raise InvalidArgumentError if a journal cannot have what *nodes* do, as a stage."""
    for number, node in enumerate(nodes):
        if any(dtype.is_ref for dtype in node.properties.input_dtypes):
            raise InvalidArgumentError(
                "a run with a journal cannot change a variable by reference", node=node, hint="use ax.Variable"
            )
        if node.op in _OF_A_SESSION:
            raise InvalidArgumentError(
                "a run with a journal keeps no tensors in its session", node=node, hint="fetch the value"
            )
        if not number % STRIDE:
            yield


def check_loops(partitions: Iterable[PartitionedGraph]) -> Stage[None]:
    """Raise InvalidArgumentError if a loop with a checkpoint is on several devices, as a stage.

    An iteration could end on one of them while it goes on on another.
    """
    found: dict[str, list[PartitionedGraph]] = {}  # by the names of frames
    boundaries: list[Node] = []
    for part in partitions:
        frames: set[str] = set()
        for number, node in enumerate(part.graph.nodes):
            if node.op in ENTERS:
                frames.add(str(node.get_attr("frame_name")))
            elif node.op == "LoopBoundary":
                boundaries.append(node)
            if not number % STRIDE:
                yield
        for frame in frames:
            found.setdefault(frame, []).append(part)
    for node in boundaries:
        merge = node.inputs[0].op
        entered = next((tensor.op for tensor in merge.inputs if tensor.op.op in ENTERS), None)
        if entered is not None and len(found[str(entered.get_attr("frame_name"))]) > 1:
            raise InvalidArgumentError(
                "a loop with a checkpoint is on several devices", node=node, hint="put its nodes on one: ax.device"
            )
