"""ExecutorsAndKeys: what a session keeps for each signature of feeds, fetches and targets it has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.graph.node import Tensor
from asyncexec.pruning.prune import ClientGraph, path_to
from asyncexec.session.dead_fetches import why_dead
from asyncexec.session.fetch_mapper import Build
from asyncexec.session.function_call_frame import Converter
from asyncexec.session.graph_execution_state import AnyExecutor, PreparedGraph


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorsAndKeys:
    """One signature, ready to be run.

    Attributes:
        graph: what was made of it, stage by stage.
        feeds: the tensors fed, in the order of the values.
        converters: one for each feed.
        executor: runs the steps.
        references: positions of fetches that are references to variables.
        build: puts the values of the fetches together.
    """

    graph: PreparedGraph
    feeds: tuple[Tensor, ...]
    converters: tuple[Converter, ...]
    executor: AnyExecutor
    references: tuple[int, ...]
    build: Build

    @property
    def client_graph(self) -> ClientGraph:
        return self.graph.client_graph

    def result(self, values: list[Any]) -> Any:
        """The caller's nest, from the *values* that a step fetched."""
        for position, value in enumerate(values):
            if value is NOTHING:
                raise self.missing_fetch(position)
        for position in self.references:
            values[position] = self._read(position, values[position])
        return self.build(values)

    def missing_fetch(self, position: int) -> InvalidArgumentError:
        """The error that says why the fetch at *position* has no value."""
        tensor = self.client_graph.fetches[position]
        return InvalidArgumentError(
            f"fetch {tensor.name!r} does not have a value: {why_dead(tensor, self.client_graph)}",
            node=tensor.op,
            hint="fetch what cond or while_loop returns",
        )

    def read_references(self, positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """The *values* of the fetches at *positions*, where they are references what these refer to."""
        return [
            self._read(position, value) if position in self.references else value
            for position, value in zip(positions, values, strict=True)
        ]

    def _read(self, position: int, variable: Any) -> Any:
        tensor = self.client_graph.fetches[position]
        try:
            return variable.read()
        except OpError as error:
            raise error.locate(tensor.op) from None
        except AttributeError:
            raise InternalError(f"{tensor.name!r} gave no reference to a variable", node=tensor.op) from None

    def convert(self, values: Sequence[Any]) -> list[Any]:
        """The values fed, as they travel along edges."""
        return [convert(value) for convert, value in zip(self.converters, values, strict=True)]


def explained(error: OpError, prepared: ExecutorsAndKeys) -> OpError:
    """Where a placeholder was not fed, say which fetch or target needs it; name no nodes but the user's."""
    stand_in = prepared.graph.stand_ins.get(error.node or "")
    if stand_in is not None:
        return error.located(stand_in.name, stand_in.op, stand_in.user_line)
    if error.op in ("Placeholder", "PlaceholderV2") and error.hint is None:
        node = next((node for node in prepared.client_graph.nodes if node.name == error.node), None)
        if node is not None:
            path = [step.name for step in path_to(node, prepared.client_graph)]
            shown = path if len(path) <= 8 else [*path[:4], "...", *path[-3:]]
            error.hint = f"it is needed by way of {' -> '.join(shown)}"
            error.args = (str(error),)
    return error
