"""ExecutorsAndKeys: what a session keeps for each signature of feeds, fetches and targets it has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.graph.node import Tensor
from asyncexec.pruning.prune import ClientGraph
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
                self._raise_missing(position)
        for position in self.references:
            values[position] = self._read(position, values[position])
        return self.build(values)

    def _raise_missing(self, position: int) -> None:
        tensor = self.client_graph.fetches[position]
        raise InvalidArgumentError(
            f"fetch {tensor.name!r} does not have a value: {why_dead(tensor, self.client_graph)}",
            node=tensor.op,
            hint="fetch what cond or while_loop returns",
        )

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
