"""The frame of each node (``tensorflow/core/graph/control_flow.cc``).

A frame is what the Enters with one ``frame_name`` open under one parent frame: a while loop, mostly.  An Enter
belongs to the
frame it is entered from, an Exit to the frame it leaves; everything else belongs to the frame of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node, Tensor

ENTERS: Final = frozenset({"Enter", "RefEnter"})
EXITS: Final = frozenset({"Exit", "RefExit"})
MERGES: Final = frozenset({"Merge", "RefMerge"})
NEXT_ITERATIONS: Final = frozenset({"NextIteration", "RefNextIteration"})
SWITCHES: Final = frozenset({"Switch", "RefSwitch", "_SwitchN"})


@dataclass(slots=True, eq=False)
class Frame:
    """A frame as the graph tells it.

    Attributes:
        name: ``frame_name`` of its Enters; ``""`` for the root.
        parent: the frame it is entered from.
        enters: its Enters.
        loop_cond: its LoopCond, where there is one.
    """

    name: str
    parent: Frame | None = None
    enters: list[Node] = field(default_factory=list)
    loop_cond: Node | None = None
    depth: int = 0

    @property
    def parallel_iterations(self) -> int:
        return int(self.enters[0].get_attr("parallel_iterations")) if self.enters else 1


class ControlFlowInfo:
    """Which frame each node of a graph is in.

    Raises:
        InvalidArgumentError: a node has inputs from different frames, frames of one name have different parents, a
        frame
            has two LoopConds, or an Exit leaves the root.
    """

    def __init__(self, nodes: Iterable[Node], fed: frozenset[tuple[Node, int]] = frozenset()) -> None:
        self.root = Frame("")
        self.frames = [self.root]
        self._fed = fed
        self._frame_of: dict[Node, Frame] = {}
        self._by_name: dict[str, Frame] = {}
        self._place_all(nodes)

    @classmethod
    def stage(cls, nodes: Sequence[Node], fed: frozenset[tuple[Node, int]] = frozenset()) -> Stage[Self]:
        """The same as a stage, for large graphs."""
        info = cls((), fed)
        for start in range(0, len(nodes), STRIDE):
            info._place_all(nodes[start : start + STRIDE])
            yield
        return info

    def frame_of(self, node: Node) -> Frame:
        """The frame that *node* runs in: for an Enter the parent's, for an Exit that of the loop."""
        return self._frame_of[node]

    def output_frame(self, node: Node) -> Frame:
        """The frame that the outputs of *node* are in."""
        frame = self._frame_of[node]
        if node.op in ENTERS:
            return self._by_name[_frame_name(node)]
        if node.op in EXITS:
            assert frame.parent is not None
            return frame.parent
        return frame

    def _place_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:  # each after its inputs, but for back edges
            self._frame_of[node] = self._place(node)

    def _place(self, node: Node) -> Frame:
        frame = self._common_frame(node)
        if node.op in ENTERS:
            self._enter(node, frame)
        elif node.op in EXITS and frame.parent is None:
            raise InvalidArgumentError("an Exit is not inside a frame", node=node)
        elif node.op == "LoopCond":
            if frame.loop_cond is not None:
                raise InvalidArgumentError(
                    f"frame {frame.name!r} has two LoopConds: {frame.loop_cond.name!r} and {node.name!r}", node=node
                )
            frame.loop_cond = node
        return frame

    def _common_frame(self, node: Node) -> Frame:
        """The frame of the inputs of *node*, but for those that come round a loop, which are not known yet."""
        first: Node | None = None
        frame = self.root
        for source in self._sources(node):
            if source not in self._frame_of:
                continue
            of_source = self.output_frame(source)
            if first is None:
                first, frame = source, of_source
            elif of_source is not frame:
                raise InvalidArgumentError(
                    f"{{{{node {node.name}}}}} has inputs from different frames. "
                    f"The input {{{{node {source.name}}}}} is in frame {of_source.name!r}. "
                    f"The input {{{{node {first.name}}}}} is in frame {frame.name!r}.",
                    node=node,
                )
        return frame

    def _sources(self, node: Node) -> Iterable[Node]:
        for tensor in node.inputs:
            if not self._is_fed(tensor):
                yield tensor.op
        yield from node.control_inputs

    def _is_fed(self, tensor: Tensor) -> bool:
        return (tensor.op, tensor.index) in self._fed

    def _enter(self, node: Node, parent: Frame) -> None:
        name = _frame_name(node)
        frame = self._by_name.get(name)
        if frame is None:
            frame = self._by_name[name] = Frame(name, parent, depth=parent.depth + 1)
            self.frames.append(frame)
        elif frame.parent is not parent:
            assert frame.parent is not None
            raise InvalidArgumentError(
                f"frame {name!r} is entered from two parent frames, {frame.parent.name!r} and {parent.name!r}: "
                "mismatched parent frames for a while loop",
                node=node,
            )
        frame.enters.append(node)


def _frame_name(node: Node) -> str:
    name: bytes = node.get_attr("frame_name")
    return name.decode("utf-8", "replace")
