"""What must hold of loops before anything runs.

TensorFlow finds some of these mistakes only when the graph runs (``executor.cc``, ``control_flow.cc``), and some never:
an Enter with ``parallel_iterations`` of -5 ends its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, ControlFlowInfo
from asyncexec.graph.node import Node

LOOP_OPS: Final = ENTERS | EXITS | NEXT_ITERATIONS | {"LoopCond"}


def check_loops(nodes: Sequence[Node]) -> Stage[None]:
    """A stage that raises InvalidArgumentError unless the frames that *nodes* spell can be run.

    That is: no frame without a name or with two parents, no node with inputs from two frames, no Exit or NextIteration
    outside of any frame, one LoopCond a frame at most, ``parallel_iterations`` not below zero.  Nodes come after their
    inputs, but for the back edges of loops.
    """
    for node in nodes:
        if node.op in ENTERS:
            _check_enter(node)
    info = yield from ControlFlowInfo.stage(nodes)
    for count, node in enumerate(nodes):
        if node.op in NEXT_ITERATIONS and info.frame_of(node) is info.root:
            raise InvalidArgumentError(
                "a NextIteration is not inside a frame", node=node, hint="an Enter leads into a frame"
            )
        if node.op in MERGES:
            _check_back_edges(node, info)
        if not count % STRIDE:
            yield


def _check_enter(node: Node) -> None:
    if not node.get_attr("frame_name"):
        raise InvalidArgumentError("the frame_name of an Enter is empty", node=node)
    iterations = node.get_attr("parallel_iterations")
    if iterations < 0:
        raise InvalidArgumentError(f"parallel_iterations is 1 or more, not {iterations}", node=node)


def _check_back_edges(merge: Node, info: ControlFlowInfo) -> None:
    own = info.frame_of(merge)
    for tensor in merge.inputs:
        frame = info.output_frame(tensor.op)
        if frame is not own:
            raise InvalidArgumentError(
                f"{{{{node {merge.name}}}}} has inputs from different frames. The input {{{{node {tensor.op.name}}}}} "
                f"is in frame {frame.name!r}. The others are in frame {own.name!r}.",
                node=merge,
            )
