"""OpKernel: what an executor of a user's calls to run a node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.bind_kernel import BoundKernel, Transfer
from asyncexec.compilation.shared_inputs import is_user_function, protected
from asyncexec.executor.diagnostics.kernel_stats import LARGE_SIZE, SMALL_SIZE, num_bytes
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.kernel_outputs import checked_results
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.cooperative import let_others_go_on
from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.executor import ExecutorArgs, current_step
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.kernel import DEAD, Kernel, KernelKind
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS
from asyncexec.graph.node import Node

# The outputs of each node that has run; DEAD for a node that has not, because it is on a side that was not taken.
Results: TypeAlias = Mapping[Node, Any]

_FRAME_OPS: Final = ENTERS | EXITS | NEXT_ITERATIONS


class Pace:
    """Gives others the event loop whenever kernels have held it for *slice_ns*."""

    __slots__ = ("_end_ns", "_slice_ns", "holds")

    def __init__(self, slice_ns: int, holds: LoopHolds) -> None:
        self._slice_ns = slice_ns
        self._end_ns = 0
        self.holds: LoopHolds = holds

    async def keep(self) -> None:
        """Return when kernels may run."""
        now_ns = self.holds.clock.now_ns
        if now_ns() > self._end_ns:
            await let_others_go_on()
            self._end_ns = now_ns() + self._slice_ns


class OpKernel:
    """The kernel of one node: ``results[node] = await kernel(args, results)``.

    It takes the inputs of the node from *results*, calls what the node is, inline, awaited or on a worker thread, and
    gives the outputs of the node: a sequence, or DEAD when an input of the node is dead.  A ``_Send`` or ``_Recv`` uses
    the rendezvous of *args*, and the stats collector is told of the call.  The function of a user's op gets its arrays
    read-only.

    Attributes:
        node: the node.
    """

    __slots__ = ("_bound", "_call", "_pace", "_pool", "guarded", "kind", "node")
    returns_tuple: Final = True  # whatever the kernel of the node does

    def __init__(self, node: Node, bound: BoundKernel, pool: WorkerPool | None, pace: Pace) -> None:
        if node.op in _FRAME_OPS:
            raise UnimplementedError(
                "only the built-in executors run loops", node=node, hint='SessionConfig(executor_type="DEFAULT")'
            )
        self.node: Node = node
        self.kind: KernelKind = bound.kind
        self.guarded: tuple[()] = ()
        self._bound = bound
        self._call = partial(call_among_kernels, _protected(node, bound.kernel))
        self._pool = pool
        self._pace = pace

    async def __call__(self, args: ExecutorArgs, results: Results) -> object:
        """The outputs of the node in the step of *args*, after those in *results*, which it needs.

        Raises:
            OpError: the kernel failed, or the step was aborted; it names the node.
        """
        token = current_step.set(args)
        try:
            return await self._run(args, self._inputs(results))
        except asyncio.CancelledError as raised:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = as_op_error(raised, self.node)
            raise error from error.__cause__
        except Exception as raised:
            error = as_op_error(raised, self.node)
            raise error from error.__cause__
        finally:
            current_step.reset(token)

    def _inputs(self, results: Results) -> Sequence[object] | None:
        """The values of the inputs; None where the node is dead."""
        node = self.node
        found = [results[tensor.op] for tensor in node.inputs]
        values = [
            DEAD if outputs is DEAD else outputs[tensor.index]
            for outputs, tensor in zip(found, node.inputs, strict=True)
        ]
        if node.op in MERGES:
            live = [(value, np.int32(index)) for index, value in enumerate(values) if value is not DEAD]
            return live[:1] or None
        if node.op == "ControlTrigger":
            return values
        is_dead = any(value is DEAD for value in values) or any(results[each] is DEAD for each in node.control_inputs)
        return None if is_dead else values

    async def _run(self, args: ExecutorArgs, inputs: Sequence[object] | None) -> object:
        now_ns = self._pace.holds.clock.now_ns
        start = now_ns()
        if self._bound.transfer is not None:
            result = await self._transfer(args, self._bound.transfer, inputs)
        elif inputs is None:
            return DEAD
        else:
            result = await self._compute(args, inputs)
        if args.stats_collector is not None and result is not DEAD:
            args.stats_collector.record(self, start, start, now_ns(), outputs=result)
        return result

    async def _compute(self, args: ExecutorArgs, inputs: Sequence[object]) -> Sequence[object]:
        node, bound = self.node, self._bound
        pool = args.runner or self._pool
        if bound.kind is KernelKind.ASYNC:
            outputs = await self._call(*inputs)
            if bound.finish is not None:
                outputs = bound.finish(outputs)
        elif pool is not None and self._is_expensive(inputs):
            outputs = await WorkerCalls(pool).call(self._call, inputs, node.name)
        else:
            await self._pace.keep()
            holds = self._pace.holds
            start = holds.clock.now_ns()
            outputs = self._call(*inputs)
            elapsed = holds.clock.now_ns() - start
            if elapsed > holds.costs.expensive_ns:
                holds.note(node, elapsed)
        if node.op_def.returns_tuple:
            return checked_results(node, len(node.outputs), outputs)
        return (outputs,)

    def _is_expensive(self, inputs: Sequence[object]) -> bool:
        if self._bound.is_expensive is not None:
            return self._bound.is_expensive
        return num_bytes(inputs) > (SMALL_SIZE if self._bound.kind is KernelKind.EXPENSIVE else LARGE_SIZE)

    async def _transfer(self, args: ExecutorArgs, transfer: Transfer, inputs: Sequence[Any] | None) -> object:
        """Send, or receive: the one kind of node that runs when it is dead."""
        if transfer.is_send:
            value = None
            if inputs is not None:
                (value,) = inputs
                if transfer.reads:
                    value = value.read()
            args.rendezvous.send(transfer.root_key, value, inputs is None, transfer.args)
            return () if inputs is not None else DEAD
        value, is_dead, _ = await args.rendezvous.recv(transfer.root_key, transfer.args)
        if is_dead:
            return DEAD
        return (value if self._bound.finish is None else self._bound.finish(value),)


def _protected(node: Node, kernel: Kernel) -> Kernel:
    """*kernel*, which cannot write to arrays that others may see."""
    return protected(kernel, range(len(node.inputs))) if is_user_function(node) and node.inputs else kernel
