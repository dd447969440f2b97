"""An executor of a user's as a part of a session's steps.

The general executor runs a graph of one async node, which runs the other executor: so a step of it is started, halted
and awaited like any other, and ends by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncexec.executor.diagnostics.step_observer import StepObserver
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.part_of_step import PartOfStep
from asyncexec.executor.types.executor_params import ExecutorParams, general_executor
from asyncexec.framework import types
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.executor import Executor, ExecutorArgs
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import ArgDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import no_outputs
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, NodeProperties
from asyncexec.pruning.prune import ClientGraph

if TYPE_CHECKING:
    from asyncexec.durable.journal_scope import JournaledStep

ExecutorFactory: TypeAlias = Callable[[ExecutorParams], Executor]

_OP: Final = OpDef("_RunExecutor", (ArgDef("args", types.object),), (), {}, is_stateful=True)


class HostExecutor(GeneralExecutor):
    """Runs the one node, which takes what the executors of the step are given."""

    __slots__ = ()

    def start(
        self,
        feeds: Sequence[object] | None,
        observer: StepObserver | None = None,
        args: ExecutorArgs | None = None,
        context: Context | None = None,
        journaled: JournaledStep | None = None,
    ) -> PartOfStep:
        return super().start([args], None, args, context)


def is_host(node: Node) -> bool:
    """Whether *node* stands for a whole partition."""
    return node.op_def is _OP


def host_executor(name: str, factory: ExecutorFactory, params: ExecutorParams) -> Stage[HostExecutor]:
    """What runs the executor that *factory*, that of the type *name*, makes of *params*, as a stage.

    Raises:
        InvalidArgumentError: it makes something else.
        OpError: it refuses the graph.
    """

    async def run(args: ExecutorArgs) -> None:
        await executor.run(replace(args, runner=params.pool))

    kernel = KernelRegistration(lambda _: run, KernelKind.ASYNC)
    graph = Graph()
    args = graph.add_node("args", properties_of(op_registry.lookup("Placeholder"), {"dtype": types.object})).outputs[0]
    properties = NodeProperties(OpRegistration(_OP, no_outputs, kernel), {}, (types.object,), ())
    node = Node(graph, name, properties, (args,), device=params.device.name)
    executor = _made(factory, params, node)
    hosted = ClientGraph((node,), (args,), (), (node,))
    return (yield from general_executor(replace(params, graph=hosted, has_control_flow=False), HostExecutor))


def _made(factory: ExecutorFactory, params: ExecutorParams, node: Node) -> Executor:
    try:
        executor = factory(params)
    except Exception as raised:
        error = as_op_error(raised, node)
        raise error from error.__cause__
    if not isinstance(executor, Executor):
        raise InvalidArgumentError(
            f"the factory of executor type {node.name!r} gave {type(executor).__name__}, not an ax.Executor",
            hint="let the class inherit from ax.Executor",
        )
    return executor
