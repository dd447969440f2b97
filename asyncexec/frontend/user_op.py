"""``@ax.op``: ops of one's own, from async functions and from plain ones."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, ParamSpec, TypeVar, overload

from asyncexec.framework import types
from asyncexec.framework.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    InvalidTypeError,
)
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.limiter import Limiter
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.convert import const_node
from asyncexec.frontend.create_op import TensorSource, add_op, as_tensor, graph_of, holds_tensor
from asyncexec.frontend.user_op_values import (
    LISTS,
    LISTS_AND_CONTAINERS,
    contains_tensor,
    decoded,
    is_text_hint,
    result_converter,
    result_dtypes,
    type_hints,
)
from asyncexec.graph.node import Tensor

P = ParamSpec("P")
R = TypeVar("R")

# Back-off before attempt n+1: uniformly between half and all of FIRST_DELAY_S * 2**n, at most MAX_DELAY_S.
FIRST_DELAY_S: Final = 0.05
MAX_DELAY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OpOptions:
    """How the nodes of an op run; each can be set for the op and for one node."""

    timeout: float | None = None  # seconds an attempt may take
    retries: int = 0  # attempts after the first
    limiter: Limiter | None = None
    name: str | None = None


_OPTION_NAMES: Final = ("timeout", "retries", "limiter", "name")


class UserOp(Generic[P, R]):
    """A function that is also an op.

    Called with tensors of a graph it adds a node that will call the function with their values; called with plain
    values
    it is the plain function.  Arguments that are no tensors reach the function as they are.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        outputs: Sequence[Any] | None,
        shapes: Sequence[Any] | None,
        expensive: bool | None,
        options: OpOptions,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = inspect.signature(function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._options = options
        self.name = name or getattr(function, "__name__", "op").strip("<>_") or "op"
        _check_options(options, self._is_async, self.name)
        hints = type_hints(function)
        dtypes = [as_dtype(dtype) for dtype in outputs] if outputs is not None else result_dtypes(hints.get("return"))
        # Names of the parameters that get str for bytes.
        self._texts = frozenset(name for name, hint in hints.items() if is_text_hint(hint))
        self.registration = self._register(tuple(dtypes), shapes, expensive)

    def _register(
        self, dtypes: tuple[DType, ...], shapes: Sequence[Any] | None, expensive: bool | None
    ) -> OpRegistration:
        op_def = OpDef(
            self.name,
            (ArgDef("args", type_list_attr="Tin"),),
            tuple(ArgDef(f"output_{i}" if i else "output", dtype) for i, dtype in enumerate(dtypes)),
            {"Tin": AttrDef("Tin", "list(type)")},
            is_stateful=True,
            touches_outside=True,
        )
        static = [TensorShape(shape) for shape in shapes] if shapes is not None else [UNKNOWN_SHAPE] * len(dtypes)
        if len(static) != len(dtypes):
            raise InvalidArgumentError(f"op {self.name!r} has {len(dtypes)} outputs and {len(static)} shapes")
        self._shapes = static

        def shape_function(_: InferenceContext) -> Sequence[TensorShape]:
            return static

        kind = KernelKind.ASYNC if self._is_async else KernelKind.EXPENSIVE if expensive else KernelKind.CHEAP
        kernel = KernelRegistration(self._make_kernel, kind, is_expensive=expensive)
        registration = OpRegistration(op_def, shape_function, kernel)
        op_registry.register(registration, replace=True)
        return registration

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not contains_tensor([*args, *kwargs.values()], LISTS_AND_CONTAINERS):
            return self._function(*args, **kwargs)
        given: dict[str, Any] = {
            key: kwargs.pop(key) for key in _OPTION_NAMES if key in kwargs and key not in self._signature.parameters
        }
        return self._add_node(args, kwargs, _options(self._options, given))

    def options(
        self,
        *,
        timeout: float | None = None,
        retries: int | None = None,
        limiter: Limiter | int | str | None = None,
        name: str | None = None,
    ) -> Callable[..., Any]:
        """The same op with other options for the nodes made through what this returns."""
        given = {"timeout": timeout, "retries": retries, "limiter": limiter, "name": name}
        options = _options(self._options, {key: value for key, value in given.items() if value is not None})

        def add_node(*args: Any, **kwargs: Any) -> Any:
            return self._add_node(args, kwargs, options)

        return add_node

    def _add_node(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: OpOptions) -> Any:
        _check_options(options, self._is_async, self.name)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgumentError(f"op {self.name!r}: {error}") from None
        positional, named = list(bound.args), bound.kwargs
        is_tensor = [self._is_tensor_argument(value) for value in (*positional, *named.values())]
        graph = graph_of([*positional, *named.values()])
        with graph:
            inputs = [
                as_tensor(value) if is_one else const_node(graph, value, types.object, "arg").outputs[0]
                for value, is_one in zip((*positional, *named.values()), is_tensor, strict=True)
            ]
        attrs: dict[str, Any] = {"_arg_names": tuple(key.encode() for key in named)}
        if options.timeout is not None:
            attrs["_timeout_s"] = float(options.timeout)
        if options.retries:
            attrs["_retries"] = options.retries
        if options.limiter is not None:
            attrs["_limiter"] = options.limiter
        return add_op(self.registration, [inputs], attrs, options.name or self.name)

    def _is_tensor_argument(self, value: Any) -> bool:
        """Whether *value* is made an input; InvalidTypeError if it hides tensors where they would not be found."""
        if isinstance(value, (Tensor, TensorSource)):
            return True
        if not contains_tensor([value], LISTS_AND_CONTAINERS):
            return False
        if contains_tensor([value], LISTS) and holds_tensor(value):
            return True
        raise InvalidTypeError(
            f"op {self.name!r} got a tensor inside a {type(value).__name__}, where its value cannot be put in",
            hint="pass tensors as arguments, or in a list",
        )

    def _make_kernel(self, construction: OpKernelConstruction) -> Kernel | AsyncKernel:
        names = [name.decode() for name in construction.attrs.get("_arg_names", ())]
        call = _with_names(self._function, names, construction.num_inputs)
        call = self._with_texts(call, names, construction)
        give = result_converter(self.name, construction.output_dtypes, self._shapes)
        if self._is_async:
            return _async_kernel(call, give, construction.attrs)

        def kernel(*inputs: Any) -> Any:
            result = call(*inputs)
            if inspect.iscoroutine(result):
                result.close()
                raise InternalError(
                    f"op {self.name!r} returned a coroutine", hint="define it with 'async def', so that it is awaited"
                )
            return give(result)

        return kernel

    def _with_texts(self, call: Kernel, names: list[str], construction: OpKernelConstruction) -> Kernel:
        """Give ``str`` to parameters annotated so: string tensors hold bytes."""
        parameters = list(self._signature.parameters)[: construction.num_inputs - len(names)] + names
        positions = [i for i, name in enumerate(parameters) if name in self._texts]
        if not positions:
            return call

        def call_with_text(*inputs: Any) -> Any:
            values = list(inputs)
            for i in positions:
                values[i] = decoded(values[i])
            return call(*values)

        return call_with_text

    def __repr__(self) -> str:
        outputs = ", ".join(arg.dtype.name for arg in self.registration.op_def.outputs if arg.dtype)
        return f"<ax.op {self.name}({', '.join(self._signature.parameters)}) -> {outputs or 'nothing'}>"


def _with_names(function: Callable[..., Any], names: list[str], num_inputs: int) -> Kernel:
    if not names:
        return function
    first = num_inputs - len(names)

    def call(*inputs: Any) -> Any:
        return function(*inputs[:first], **dict(zip(names, inputs[first:], strict=True)))

    return call


def _async_kernel(call: Kernel, give: Callable[[Any], Any], attrs: Mapping[str, Any]) -> AsyncKernel:
    timeout_s, retries, limiter = attrs.get("_timeout_s"), attrs.get("_retries", 0), attrs.get("_limiter")

    async def attempt(*inputs: Any) -> Any:
        if timeout_s is None:
            return await call(*inputs)
        try:
            async with asyncio.timeout(timeout_s) as scope:
                return await call(*inputs)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise DeadlineExceededError(f"the op took more than its timeout of {timeout_s:g} s") from error

    async def limited(*inputs: Any) -> Any:
        assert limiter is not None
        async with limiter.slots():
            return await attempt(*inputs)

    once = attempt if limiter is None else limited
    if timeout_s is None and limiter is None:
        once = call

    async def retrying(*inputs: Any) -> Any:
        return await _retried(once, inputs, retries)

    return AsyncKernel(retrying if retries else once, give)


async def _retried(once: Callable[..., Awaitable[Any]], inputs: Sequence[Any], retries: int) -> Any:
    for attempt in range(retries):
        try:
            return await once(*inputs)
        except Exception:
            delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2**attempt)
            await asyncio.sleep(random.uniform(delay_s / 2, delay_s))
    return await once(*inputs)


def _options(base: OpOptions, given: Mapping[str, Any]) -> OpOptions:
    changes = dict(given)
    if changes.get("limiter") is not None:
        changes["limiter"] = Limiter.get(changes["limiter"])
    return replace(base, **changes)


def _check_options(options: OpOptions, is_async: bool, name: str) -> None:
    if options.timeout is not None and not options.timeout > 0:
        raise InvalidArgumentError(f"op {name!r}: a timeout is more than 0 seconds, not {options.timeout!r}")
    if options.retries < 0:
        raise InvalidArgumentError(f"op {name!r}: retries cannot be negative")
    if not is_async and (options.timeout is not None or options.retries or options.limiter is not None):
        raise InvalidArgumentError(f"op {name!r} is a plain function: timeout, retries and limiter are for 'async def'")


@overload
def op(function: Callable[P, R], /) -> UserOp[P, R]: ...
@overload
def op(
    *,
    name: str | None = None,
    outputs: Sequence[Any] | None = None,
    shapes: Sequence[Any] | None = None,
    expensive: bool | None = None,
    timeout: float | None = None,
    retries: int = 0,
    limiter: Limiter | int | str | None = None,
) -> Callable[[Callable[P, R]], UserOp[P, R]]: ...
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    outputs: Sequence[Any] | None = None,
    shapes: Sequence[Any] | None = None,
    expensive: bool | None = None,
    timeout: float | None = None,
    retries: int = 0,
    limiter: Limiter | int | str | None = None,
) -> Any:
    """Make an op of a function: ``@ax.op``, or ``@ax.op(expensive=True, outputs=[ax.float32])``.

    An ``async def`` is awaited in the caller's event loop; a plain function runs inline when it is quick and on a
    worker
    thread when it is not.

    Args:
        name: the op type, by default the function's name.
        outputs: dtypes of the results, by default from the return annotation (``float`` is float64, ``int`` int64,
            ``str`` and ``bytes`` string, a numpy scalar type itself, a ``tuple[...]`` several, None none); anything
            else is ``object``: any Python value, passed on untouched.
        shapes: what is known of the shapes of the results.
        expensive: whether it always goes to a worker thread (True), never does (False), or as measured (None).
        timeout: seconds an attempt of an async op may take, else DeadlineExceededError.
        retries: how often a failed async op is tried again, with exponential back-off.
        limiter: how many nodes of an async op run at once: a number, an ``ax.Limiter``, or the name of one.

    A parameter annotated ``str`` or ``str | None`` gets str where the tensor holds bytes, one annotated ``list[str]``
    a list of str.
    """

    def make(made_of: Callable[P, R]) -> UserOp[P, R]:
        resolved = None if limiter is None else Limiter.get(limiter)
        return UserOp(
            made_of,
            name=name,
            outputs=outputs,
            shapes=shapes,
            expensive=expensive,
            options=OpOptions(timeout, retries, resolved),
        )

    return make if function is None else make(function)
