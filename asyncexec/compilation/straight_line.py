"""StraightLine: a graph without control flow, whose async nodes come one after the other, as a few functions.

What lies between two async nodes always runs together and in the same order, so it is made one Python function, a
*segment*: without a ready queue, pending counts or slots, and with each value in a local variable that is let go of at
its last use.  What outlives a segment travels in *cells*.  Kernels and constants have numbers in the generated source;
no text of the graph is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, TypeAlias

from asyncexec.compilation.graph_view import SINK, GraphView, NodeItem
from asyncexec.framework.errors import InternalError

MAX_ITEMS: Final = 64  # a segment is not left in the middle: with more, it might hold the loop for too long


OutputCheck: TypeAlias = Callable[[NodeItem, Any], Sequence[Any]]


class Value(NamedTuple):
    """What comes into a slot: output *number* of item *source*, feed *number* if that is None."""

    source: NodeItem | None
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """What runs in one go.

    Attributes:
        function: takes the cells; gives the inputs of *awaited*, or if that is None, the values of the fetches.
        items: what it runs, by the line of its source; inputs: of each, by the names that its source has for them.
        awaited: the async node that ends it; result_cells: where the outputs of that go.
    """

    function: FunctionType
    items: dict[int, NodeItem]
    inputs: dict[int, tuple[str, ...]]
    awaited: NodeItem | None
    result_cells: tuple[int, ...]

    def locate(self, raised: BaseException) -> tuple[NodeItem, list[Any]]:
        """The item whose kernel *raised*, and the inputs it had, as far as they can be told."""
        code = self.function.__code__
        trace = raised.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        if trace is None:
            raise InternalError("a segment was left by an error that none of its kernels raised") from raised
        names = {**self.function.__globals__, **trace.tb_frame.f_locals}
        line = trace.tb_lineno
        return self.items[line], [_value_of(name, names) for name in self.inputs[line]]


@dataclass(frozen=True, slots=True, eq=False)
class StraightLine:
    """The segments, one after the other, and how many cells they share; the first cells are those of the feeds."""

    segments: tuple[Segment, ...]
    num_cells: int


def straighten(view: GraphView, awaited: Collection[int], checked_outputs: OutputCheck) -> StraightLine | None:
    """*view* in segments, where the items with ids in *awaited* are async and all others run inline.

    None where that cannot be: two async nodes may overlap, or there are too many nodes.  What a kernel of several
    outputs gives goes through *checked_outputs*.
    """
    if view.has_control_flow or len(view.items) > MAX_ITEMS or any(item.transfer for item in view.items):
        return None
    levels = _levels(view, awaited)
    by_level = {levels[item_id]: view.items[item_id] for item_id in awaited}
    if len(by_level) != len(awaited):
        return None
    return _Builder(view, levels, by_level, checked_outputs).build()


def _levels(view: GraphView, awaited: Collection[int]) -> dict[int, int]:
    """For each item, in the order in which they run, how many async ones there are on the longest way to it."""
    pending = view.frames[0].initial_pending.copy()
    levels: dict[int, int] = {}
    for edges, controls in zip(view.feed_edges, view.feed_controls, strict=True):
        for consumer in (*[consumer for _, consumer in edges], *controls):
            pending[consumer] -= 1
    ready = [item.id for item in view.items if not pending[item.id]]
    reached = dict.fromkeys(ready, 0)
    for item_id in ready:
        level = levels[item_id] = reached[item_id]
        for consumer in _consumers(view.items[item_id]):
            if consumer == SINK:
                continue
            reached[consumer] = max(reached.get(consumer, 0), level + (item_id in awaited))
            pending[consumer] -= 1
            if not pending[consumer]:
                ready.append(consumer)
    return levels


def _consumers(item: NodeItem) -> Iterator[int]:
    for edges in item.output_edges:
        for _, consumer in edges:
            yield consumer
    yield from item.control_edges


def _value_of(name: str, names: dict[str, Any]) -> Any:
    """What a name, or a cell, of generated source stands for."""
    return names["s"][int(name[2:-1])] if name.startswith("s[") else names.get(name)


class _Builder:
    """Writes the functions."""

    def __init__(
        self, view: GraphView, levels: dict[int, int], by_level: dict[int, NodeItem], checked_outputs: OutputCheck
    ) -> None:
        self._view = view
        self._checked_outputs = checked_outputs
        self._levels = levels
        self._by_level = by_level
        self._constants = view.frames[0].initial_inputs
        self._values = _values_by_slot(view)
        self._last_uses = self._find_last_uses()
        self._cells: dict[Value, int] = {Value(None, i): i for i in range(len(view.feed_edges))}
        for value, last in self._last_uses.items():
            if value.source is not None and (self._is_awaited(value.source) or self._level_made(value) != last[0]):
                self._cells[value] = len(self._cells)

    def _is_awaited(self, item: NodeItem) -> bool:
        return self._by_level.get(self._levels[item.id]) is item

    def _level_made(self, value: Value) -> int:
        """The level of the segment that a value is there in."""
        return 0 if value.source is None else self._levels[value.source.id] + self._is_awaited(value.source)

    def _slots_of(self, item: NodeItem) -> range:
        return range(item.input_start, item.input_start + item.num_inputs)

    def _find_last_uses(self) -> dict[Value, tuple[int, int]]:
        """For each value that is used, the segment of its last use, and the item in it; -1 for what it ends with."""
        last: dict[Value, tuple[int, int]] = {}
        ends = {item.id for item in self._by_level.values()}
        for item_id, level in sorted(self._levels.items(), key=lambda pair: (pair[1], pair[0] in ends)):
            for slot in self._slots_of(self._view.items[item_id]):
                if slot in self._values:
                    last[self._values[slot]] = level, -1 if item_id in ends else item_id
        for slot in self._fetch_slots():
            if slot in self._values:
                last[self._values[slot]] = len(self._by_level), -1
        return last

    def _fetch_slots(self) -> range:
        slots = self._view.fetch_slots
        return range(slots.start, slots.stop)

    def build(self) -> StraightLine:
        segments = tuple(self._segment(level) for level in range(len(self._by_level) + 1))
        return StraightLine(segments, len(self._cells))

    def _segment(self, level: int) -> Segment:
        awaited = self._by_level.get(level)
        lines = ["def segment(s):"]
        names: dict[str, Any] = {}
        items: dict[int, NodeItem] = {}
        inputs: dict[int, tuple[str, ...]] = {}
        for item_id, item_level in self._levels.items():
            item = self._view.items[item_id]
            if item_level != level or item is awaited:
                continue
            arguments = tuple(self._name(slot, level, names) for slot in self._slots_of(item))
            items[len(lines) + 1], inputs[len(lines) + 1] = item, arguments
            lines += self._call(item, arguments, level, names)
        ends = self._fetch_slots() if awaited is None else self._slots_of(awaited)
        lines += self._end([self._name(slot, level, names) for slot in ends], level)
        function = _function("\n".join(lines), names)
        cells = () if awaited is None else tuple(self._cells.get(Value(awaited, i), -1) for i in _outputs(awaited))
        return Segment(function, items, inputs, awaited, cells)

    def _name(self, slot: int, level: int, names: dict[str, Any]) -> str:
        """What stands in the source for what comes into *slot*."""
        value = self._values.get(slot)
        if value is None:
            names[f"c{slot}"] = self._constants[slot]
            return f"c{slot}"
        source = value.source
        if source is None or self._levels[source.id] != level or self._is_awaited(source):
            return f"s[{self._cells[value]}]"
        return f"v{source.id}_{value.number}"

    def _call(self, item: NodeItem, arguments: Sequence[str], level: int, names: dict[str, Any]) -> Iterator[str]:
        """Lines that call *item*'s kernel, and let go of what is not used any more; the call itself is the first."""
        names[f"k{item.id}"] = item.kernel
        call = f"k{item.id}({', '.join(arguments)})"
        outputs = {f"v{item.id}_{i}": Value(item, i) for i in _outputs(item)}
        if item.returns_tuple:
            names["checked"], names[f"n{item.id}"] = self._checked_outputs, item
            yield f"  [{', '.join(outputs)}] = checked(n{item.id}, {call})"
        else:
            yield f"  {next(iter(outputs))} = {call}"
        for name, value in outputs.items():
            if value in self._cells:
                yield f"  s[{self._cells[value]}] = {name}"
            elif value not in self._last_uses:
                yield f"  del {name}"
        for value in dict.fromkeys(self._values[slot] for slot in self._slots_of(item) if slot in self._values):
            if self._last_uses[value] == (level, item.id):
                yield self._release(value)

    def _release(self, value: Value) -> str:
        if value in self._cells:
            return f"  s[{self._cells[value]}] = None"
        assert value.source is not None  # feeds have cells
        return f"  del v{value.source.id}_{value.number}"

    def _end(self, results: Sequence[str], level: int) -> Iterator[str]:
        yield f"  r = [{', '.join(results)}]"
        for value in self._cells:
            if self._last_uses.get(value, (0, -1)) == (level, -1):  # a feed may be used by nobody
                yield self._release(value)
        yield "  return r"


def _outputs(item: NodeItem) -> range:
    return range(len(item.output_edges))


def _values_by_slot(view: GraphView) -> dict[int, Value]:
    values: dict[int, Value] = {}
    for index, edges in enumerate(view.feed_edges):
        values.update({slot: Value(None, index) for slot, _ in edges})
    for item in view.items:
        for index, edges in enumerate(item.output_edges):
            values.update({slot: Value(item, index) for slot, _ in edges})
    return values


def _function(source: str, names: dict[str, Any]) -> FunctionType:
    """The function that *source*, which is all our own, defines."""
    code = next(each for each in compile(source, "<segment>", "exec").co_consts if isinstance(each, CodeType))
    return FunctionType(code, names)
