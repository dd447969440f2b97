"""The frame of each node (``tensorflow/core/graph/control_flow.cc``).

A frame is what the Enters with one ``frame_name`` open under one parent frame: a while loop, mostly.  An Enter
belongs to the
frame it is entered from, an Exit to the frame it leaves; everything else belongs to the frame of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts
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


_Known: TypeAlias = tuple[Node, Frame]  # an input, and the frame that it comes from


class ControlFlowInfo:
    """Which frame each node of a graph is in.

    Raises:
        InvalidArgumentError: a node has inputs from different frames, frames of one name have different parents, a
        frame
            has two LoopConds, or an Exit leaves the root.
    """

    def __init__(self, nodes: Iterable[Node], fed: frozenset[tuple[Node, int]] = frozenset()) -> None:
        self.root: Frame = Frame("")
        self.frames: list[Frame] = [self.root]
        self._fed = fed
        self._frame_of: dict[Node, Frame] = {}
        self._by_name: dict[str, Frame] = {}
        self._place_all(nodes)

    @classmethod
    def stage(cls, nodes: Sequence[Node], fed: frozenset[tuple[Node, int]] = frozenset()) -> Stage[Self]:
        """The same as a stage, for large graphs."""
        info = cls((), fed)
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                if len(node.inputs) + len(node.control_inputs) > PART:
                    yield from info._place_large(node)
                else:
                    info._place(node, info._common_frame(node, info._sources(node)))
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
            self._place(node, self._common_frame(node, self._sources(node)))

    def _place_large(self, node: Node) -> Stage[None]:
        known: _Known | None = None
        for tensors in in_parts(node.inputs):
            known = self._common_frame(node, [tensor.op for tensor in tensors if not self._is_fed(tensor)], known)
            yield
        for controls in in_parts(node.control_inputs):
            known = self._common_frame(node, controls, known)
            yield
        self._place(node, known)

    def _place(self, node: Node, known: _Known | None) -> None:
        frame = self._frame_of[node] = self.root if known is None else known[1]
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

    def _common_frame(self, node: Node, sources: Iterable[Node], known: _Known | None = None) -> _Known | None:
        """The frame of *sources*, inputs of *node*, but for those that come round a loop, which are not known yet.

        *known* is what others of its inputs have given.
        """
        for source in sources:
            if source not in self._frame_of:
                continue
            of_source = self.output_frame(source)
            if known is None:
                known = source, of_source
            elif of_source is not known[1]:
                raise InvalidArgumentError(
                    f"{{{{node {node.name}}}}} has inputs from different frames. "
                    f"The input {{{{node {source.name}}}}} is in frame {of_source.name!r}. "
                    f"The input {{{{node {known[0].name}}}}} is in frame {known[1].name!r}.",
                    node=node,
                )
        return known

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
