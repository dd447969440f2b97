"""CallFrame: what one call of a function is given, and what it gives.

After ``FunctionCallFrame`` in ``tensorflow/core/framework/function.h``.  The ``_Arg`` and ``_Retval`` nodes of the step
that runs the function find the frame of their call in a context variable.  Frames know their callers: so a call knows
how deep it is, and an error by what way it was reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import numpy as np

from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.types import DType

_UNSET: Final = object()


class Step(Protocol):
    """What runs the function of a call."""

    @property
    def has_failed(self) -> bool:
        """Whether it runs nothing more."""
        ...


class CallFrame:
    """The call of *function* by *node*, in the call *caller* if that is in one.

    Attributes:
        function, node: their names.
        caller: the frame around this one.
        depth: how many calls are one in another, this one among them.
        outermost: the frame around all others of them.
        num_under_way: of the outermost, how many calls within it have begun and not ended, itself among them.
        step: what runs the function, once it has begun.
    """

    __slots__ = (
        "_args",
        "_ret_dtypes",
        "_retvals",
        "caller",
        "depth",
        "function",
        "node",
        "num_under_way",
        "outermost",
        "step",
    )

    def __init__(self, function: str, node: str, ret_dtypes: Sequence[DType], caller: CallFrame | None = None) -> None:
        self.function: str = function
        self.node: str = node
        self.caller: CallFrame | None = caller
        self.depth: int = 1 if caller is None else caller.depth + 1
        self.outermost: CallFrame = self if caller is None else caller.outermost
        self.num_under_way: int = 0
        self.step: Step | None = None
        self._args: Sequence[object] = ()
        self._ret_dtypes = ret_dtypes
        self._retvals: list[object] = [_UNSET] * len(ret_dtypes)

    def set_args(self, args: Sequence[object], dtypes: Sequence[DType]) -> None:
        """Take the arguments; InvalidArgumentError unless they are as many as *dtypes*, and of these."""
        if len(args) != len(dtypes):
            raise InvalidArgumentError(f"Expects {len(dtypes)} arguments, but {len(args)} is provided")
        for index, (value, dtype) in enumerate(zip(args, dtypes, strict=True)):
            if not _has_dtype(value, dtype):
                raise InvalidArgumentError(
                    f"Expects arg[{index}] to be {dtype.name} but {_dtype_of(value)} is provided"
                )
        self._args = args

    def arg(self, index: int) -> Any:
        """Argument *index*; InvalidArgumentError where there is none."""
        if not 0 <= index < len(self._args):
            raise InvalidArgumentError(f"GetArg {index} is not within [0, {len(self._args)})")
        return self._args[index]

    def set_retval(self, index: int, value: object) -> None:
        """Take result *index*.

        Raises:
            InvalidArgumentError: there is no such result, or it is of another dtype.
            InternalError: it has been set.
        """
        if not 0 <= index < len(self._retvals):
            raise InvalidArgumentError(f"SetRetval {index} is not within [0, {len(self._retvals)})")
        dtype = self._ret_dtypes[index]
        if not _has_dtype(value, dtype):
            raise InvalidArgumentError(f"Expects ret[{index}] to be {dtype.name}, but {_dtype_of(value)} is provided.")
        if self._retvals[index] is not _UNSET:
            raise InternalError(f"Retval[{index}] has already been set.")
        self._retvals[index] = value

    def take_retvals(self) -> list[Any]:
        """All results, which the frame has no more; InvalidArgumentError where one was not set."""
        for index, value in enumerate(self._retvals):
            if value is _UNSET:
                raise InvalidArgumentError(
                    f"Retval[{index}] does not have value: what function {self.function!r} gives there is dead"
                )
        taken, self._retvals = self._retvals, []
        return taken

    def release(self) -> None:
        """Hold no values any more: the call has ended."""
        self._args, self._retvals, self.step = (), [], None

    @property
    def is_ending(self) -> bool:
        """Whether the step that runs the function has failed, or was cancelled."""
        return self.step is not None and self.step.has_failed

    def way(self) -> Iterator[CallFrame]:
        """This frame and those around it, from the inside out."""
        frame: CallFrame | None = self
        while frame is not None:
            yield frame
            frame = frame.caller


def _has_dtype(value: object, dtype: DType) -> bool:
    """Whether *value* is of *dtype*, as far as values tell."""
    return dtype.is_opaque or isinstance(value, bytes) or getattr(value, "dtype", None) == dtype.as_numpy_dtype


def _dtype_of(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    return dtype.name if isinstance(dtype, np.dtype) else type(value).__name__


# The call that the running code is a part of.
current_call: Final[ContextVar[CallFrame | None]] = ContextVar("asyncexec_call", default=None)
