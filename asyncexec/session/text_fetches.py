"""Which fetches are text: results of ops annotated ``str``, also by way of branches, loops, catches and functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.types import string
from asyncexec.graph.node import Node, Tensor

Output: TypeAlias = tuple[Node, int]

# Ops whose outputs are one of their inputs, and the functions of which the outputs of others are.
_PASSES_ON: Final = frozenset(
    ["Identity", "EnsureShape", "Switch", "_SwitchN", "Merge", "Enter", "Exit", "NextIteration"]
)
_FUNCTIONS: Final = {"Catch": ("f", "handler"), "PartitionedCall": ("f",), "StatefulPartitionedCall": ("f",)}


def text_fetches(fetches: Iterable[Tensor]) -> Stage[set[Output]]:
    """Outputs that are the text of an op that gives str, or may be; those of *fetches* among them.  A stage.

    It goes back from the fetches over all that passes strings on, and then forth from the ops that give str.
    """
    todo = list(dict.fromkeys((tensor.op, tensor.index) for tensor in fetches if tensor.dtype is string))
    takers: dict[Output, list[Output]] = {output: [] for output in todo}
    found: list[Output] = []
    count = 0
    while todo:
        output = todo.pop()
        node, index = output
        if index in node.properties.registration.text_outputs:
            found.append(output)
            continue
        for tensor in _sources(output):
            count += 1
            if not count % STRIDE:
                yield
            if tensor.dtype is string:
                source = tensor.op, tensor.index
                if source not in takers:
                    takers[source] = []
                    todo.append(source)
                takers[source].append(output)
    text: set[Output] = set()
    while found:
        output = found.pop()
        if output not in text:
            text.add(output)
            found += takers[output]
        count += 1
        if not count % STRIDE:
            yield
    return text


def _sources(output: Output) -> Iterator[Tensor]:
    """The tensors whose values *output* may be, as they are."""
    node, index = output
    if node.op in _PASSES_ON:
        yield from node.inputs
    for attr in _FUNCTIONS.get(node.op, ()):
        function = node.graph.traced.find(node.attrs[attr].name)
        if function is not None:  # else of a graph that was loaded
            yield function.returns[index]
