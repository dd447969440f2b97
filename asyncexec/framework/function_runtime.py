"""What kernels ask of a session that is to run functions of the graph's library for them.

After ``FunctionLibraryRuntime`` in ``tensorflow/core/framework/function.h``: a function is instantiated once, and then
run any number of times, each time as a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from asyncexec.framework.loop_turns import LoopTurns
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.types import DType

if TYPE_CHECKING:
    from asyncexec.durable.journal_scope import JournaledStep
    from asyncexec.framework.call_frame import CallFrame
    from asyncexec.framework.op_registry import OpRegistration
    from asyncexec.framework.step_stats import StepTrace


@dataclass(frozen=True, slots=True, eq=False)
class FunctionCall:
    """A function, as a node calls it; or just an op that a node wants to run as a step, measured like any other.

    Attributes:
        name: of the node; nodes of the function's body are named below it.
        function: None where what *gather* gives is the result.
        device: of the node; what asks for none in the body runs there.
        output_dtypes: of what the function gives.
        gather: an op that takes one Python object, and gives the function's first inputs; its attr ``Tin`` has their
            dtypes.  It runs as a part of the step.
        gathered_dtypes: those dtypes.
        other_dtypes: of the function's other inputs.
    """

    name: str
    function: NameAttrList | None
    device: str
    output_dtypes: tuple[DType, ...]
    gather: OpRegistration
    gathered_dtypes: tuple[DType, ...]
    other_dtypes: tuple[DType, ...]


class FunctionHandle(Protocol):
    """A function that has been instantiated."""

    async def compile(self) -> None:
        """Compile it, unless it is; else ``run`` does."""
        ...

    async def run(
        self,
        gathered: object,
        others: Sequence[Any],
        traces: Sequence[StepTrace] = (),
        journaled: JournaledStep | None = None,
    ) -> list[Any]:
        """What the function gives for what ``gather`` makes of *gathered*, and *others*: a step of its own.

        Where there are *traces*, of the steps that it runs for, it is traced as well, and its stats included in each.
        *journaled* is what it is of a run with a journal.

        Whatever happens, nothing that the step started outlives this.
        """
        ...


class CalledFunction(Protocol):
    """A function that nodes call, instantiated once for all of them."""

    async def run(self, frame: CallFrame, trace: StepTrace | None, journaled: JournaledStep | None) -> list[Any]:
        """What the function gives for the arguments in *frame*: a step of its own, which is a part of *trace*.

        Whatever happens, nothing that the step started outlives this, and *frame* holds no values any more.
        """
        ...


class FunctionRuntime(Protocol):
    """What runs functions in a session.

    Attributes:
        turns: of the event loop, which calls begin in.
    """

    turns: LoopTurns

    def called(self, function: NameAttrList, device: str, host: str) -> CalledFunction:
        """*function*, whose nodes run on *device* where they ask for none, if it names one; it is called on *host*."""
        ...

    def instantiate(self, call: FunctionCall) -> FunctionHandle:
        """A handle of the function; it is compiled when it first runs, so that errors of it are errors of that run."""
        ...

    def output_dtypes(self, function: NameAttrList) -> tuple[DType, ...]:
        """The dtypes of what *function* gives; NotFoundError where the library has none of the name."""
        ...
