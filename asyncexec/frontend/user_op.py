"""``@ax.op``: ops of one's own, from async functions and from plain ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from asyncexec.framework import types
from asyncexec.framework.errors import FailedPreconditionError, InternalError, InvalidArgumentError, InvalidTypeError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.limiter import Limiter
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.process_calls import FunctionReference, check_importable, reference_to
from asyncexec.framework.retry import Retry
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.convert import const_node
from asyncexec.frontend.create_op import TensorSource, add_op, as_tensor, graph_of, holds_tensor
from asyncexec.frontend.op_cache import CachedCall, CachedCalls, CacheOptions, OpCache
from asyncexec.frontend.stream_functions import in_turn
from asyncexec.frontend.user_op_parameters import conversions, type_hints, with_conversions, with_names
from asyncexec.frontend.user_op_policies import (
    OPTION_NAMES,
    AsyncCall,
    OpOptions,
    on_workers,
    plain_with_policies,
    with_fallback,
    with_policies,
)
from asyncexec.frontend.user_op_values import (
    LISTS,
    LISTS_AND_CONTAINERS,
    UNFIT,
    contains_tensor,
    quick_conversions,
    result_converter,
    result_dtypes,
    text_results,
    untouched,
)
from asyncexec.frontend.user_op_workers import op_workers
from asyncexec.graph.current_graph import current_graph_or_none
from asyncexec.graph.node import Node, Tensor

if TYPE_CHECKING:
    from asyncexec.durable.result_cache import ResultCache
    from asyncexec.durable.store import Store
    from asyncexec.frontend.op_types import OpMaker


class UserOp:
    """A function that is also an op.

    Where a graph is being built, a call adds a node that will call the function, once in each step; so does a call with
    tensors of a graph anywhere.  Any other call is one of the plain function.  Arguments that are no tensors reach the
    function as they are.

    Attributes:
        function: the plain function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        outputs: Sequence[object] | None,
        shapes: Sequence[object] | None,
        expensive: bool | None,
        executor: str | None,
        pure: bool,
        ordered: bool,
        options: OpOptions,
        caching: CacheOptions,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._signature = inspect.signature(function)
        self.name: str = name or _name_of(function)
        self._is_async = _is_async(function, self.name)
        self._expensive = expensive
        self._is_pure = pure
        self._is_ordered = ordered
        self._is_in_process = self._checked_executor(executor)
        self._options = self._checked(options)
        hints = type_hints(function)
        hint = hints.get("return")
        dtypes = [as_dtype(dtype) for dtype in outputs] if outputs is not None else result_dtypes(hint)
        texts = frozenset(number for number in text_results(hint) if dtypes[number : number + 1] == [types.string])
        caching.check(self.name, len(dtypes), is_ordered=ordered)
        self._cache = self._make_cache(caching, dtypes)
        self.registration: OpRegistration = self._register(tuple(dtypes), shapes, texts)
        # By policies, as long as there are nodes with them.
        self._registrations: WeakValueDictionary[OpOptions, OpRegistration] = WeakValueDictionary()
        self._registrations[OpOptions()] = self.registration

    def _make_cache(self, caching: CacheOptions, dtypes: Sequence[DType]) -> OpCache | None:
        if caching.cache is None:
            return None
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        about = [self.function.__module__, name, [dtype.name for dtype in dtypes]]
        return OpCache(self.name, caching, about, len(dtypes))

    def _checked_executor(self, executor: str | None) -> bool:
        """Whether the function runs in processes."""
        if executor is None:
            return False
        if executor != "process":
            raise InvalidArgumentError(f"op {self.name!r}: there is no executor {executor!r}", hint="'process' or None")
        if self._is_async:
            raise InvalidArgumentError(
                f"op {self.name!r} is an async function, which runs in the event loop and not in a process"
            )
        check_importable(self.function, self.name)
        return True

    def _checked(self, options: OpOptions) -> OpOptions:
        runs_in_loop = self._expensive is False and not self._is_in_process
        options.check(self.name, never_on_worker=not self._is_async and runs_in_loop)
        return options

    def _register(
        self, dtypes: tuple[DType, ...], shapes: Sequence[Any] | None, texts: frozenset[int]
    ) -> OpRegistration:
        op_def = OpDef(
            self.name,
            (ArgDef("args", type_list_attr="Tin"),),
            tuple(ArgDef(f"output_{i}" if i else "output", dtype) for i, dtype in enumerate(dtypes)),
            {"Tin": AttrDef("Tin", "list(type)")},
            is_stateful=not self._is_pure,
            touches_outside=True,
        )
        static = [TensorShape(shape) for shape in shapes] if shapes is not None else [UNKNOWN_SHAPE] * len(dtypes)
        if len(static) != len(dtypes):
            raise InvalidArgumentError(f"op {self.name!r} has {len(dtypes)} outputs and {len(static)} shapes")
        self._shapes = static

        def shape_function(_: InferenceContext) -> Sequence[TensorShape]:
            return static

        registration = OpRegistration(op_def, shape_function, self._kernel_registration(OpOptions()), texts)
        op_registry.register(registration, replace=True)
        return registration

    def _kernel_registration(self, options: OpOptions) -> KernelRegistration:
        if self._is_async or self._is_in_process or options.has_policies or self._cache is not None:
            kind, is_expensive = KernelKind.ASYNC, None
        else:
            kind, is_expensive = KernelKind.EXPENSIVE if self._expensive else KernelKind.CHEAP, self._expensive
        return KernelRegistration(
            partial(self._make_kernel, options=options),
            kind,
            is_expensive=is_expensive,
            is_user_function=not self._is_in_process,  # which works on copies
            gives_new=len(self._shapes) == 1 and self._cache is None,  # several may be views of one another
        )

    def registration_for(self, options: OpOptions) -> OpRegistration:
        """The op, with a kernel that is called as *options*, of which the name is left out, say."""
        policies = replace(options, name=None)
        found = self._registrations.get(policies)
        if found is None:
            found = replace(self.registration, kernel=self._kernel_registration(policies))
            self._registrations[policies] = found
        return found

    def reference(self) -> FunctionReference:
        """How another process finds this op; InvalidArgumentError if it could not."""
        found = reference_to(self.function, self, self.name)
        if not found.is_wrapped:
            raise InvalidArgumentError(
                f"op {self.name!r} cannot run in another process: under the name of its function stands the function",
                hint="decorate the function with @ax.op",
            )
        return found._replace(is_wrapped=False)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        is_built = current_graph_or_none() is not None
        if not is_built and not contains_tensor([*args, *kwargs.values()], LISTS_AND_CONTAINERS):
            return self.function(*args, **kwargs)
        given: dict[str, Any] = {
            key: kwargs.pop(key) for key in OPTION_NAMES if key in kwargs and key not in self._signature.parameters
        }
        return self._add_node(args, kwargs, self._options.changed(self.name, given))

    def options(
        self,
        *,
        timeout: float | None = None,
        retries: Retry | int | None = None,
        limiter: Limiter | int | str | None = None,
        fallback: object = None,
        name: str | None = None,
    ) -> Callable[..., Any]:
        """The same op with other options for the nodes made through what this returns."""
        given = {"timeout": timeout, "retries": retries, "limiter": limiter, "fallback": fallback, "name": name}
        options = self._checked(
            self._options.changed(self.name, {key: value for key, value in given.items() if value is not None})
        )

        def add_node(*args: object, **kwargs: object) -> Any:
            return self._add_node(args, kwargs, options)

        return add_node

    def _add_node(self, args: tuple[object, ...], kwargs: dict[str, Any], options: OpOptions) -> Any:
        self._checked(options)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgumentError(
                f"op {self.name!r}: {error}", hint=f"it is {self.name}{self._signature}".replace("'", "")
            ) from None
        positional, named = list(bound.args), bound.kwargs
        is_tensor = [self._is_tensor_argument(value) for value in (*positional, *named.values())]
        graph = graph_of([*positional, *named.values()])
        with graph:
            inputs = [
                as_tensor(value) if is_one else const_node(graph, value, types.object, "arg").outputs[0]
                for value, is_one in zip((*positional, *named.values()), is_tensor, strict=True)
            ]
        attrs = {"_arg_names": tuple(key.encode() for key in named), **options.attrs()}
        registration, name = self.registration_for(options), options.name or self.name
        if not self._is_ordered:
            return add_op(registration, [inputs], attrs, name)
        with graph:
            return in_turn(lambda: add_op(registration, [inputs], attrs, name), name)

    def _is_tensor_argument(self, value: object) -> bool:
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

    def _make_kernel(self, construction: OpKernelConstruction, options: OpOptions) -> Kernel | AsyncKernel:
        names = [name.decode() for name in construction.attrs.get("_arg_names", ())]
        function = self._process_call(construction) if self._is_in_process else self.function
        converted = conversions(self.function, construction.num_inputs, names)

        def taking_inputs(function: Callable[..., Any]) -> Callable[..., Any]:
            return with_conversions(with_names(function, names, construction.num_inputs), converted)

        call, give = taking_inputs(function), self._make_giver(construction.output_dtypes)
        cache = self._cache
        if cache is None and not (self._is_async or self._is_in_process or options.has_policies):
            call = with_fallback(call, options.fallback)
            return lambda *inputs: give(call(*inputs))
        if cache is None:
            return AsyncKernel(self._with_policies(call, options, construction), give)
        tried = self._with_policies(call, replace(options, fallback=None), construction)
        calls = construction.resource_mgr.lookup_or_create(CachedCalls, "_session", "cached_calls", CachedCalls)
        key = None if cache.key is None else taking_inputs(cache.key)
        is_plain = not (self._is_async or self._is_in_process)
        cached = CachedCall(cache, calls, tried, options, give, key=key, names=names, is_plain=is_plain)
        return AsyncKernel(cached.run, give)

    def _with_policies(
        self, call: Callable[..., Any], options: OpOptions, construction: OpKernelConstruction
    ) -> AsyncCall:
        if self._is_async or self._is_in_process:
            return with_policies(call, options)
        if self._expensive is False:
            return plain_with_policies(call, options)
        return on_workers(call, options, op_workers(construction))

    def _process_call(self, construction: OpKernelConstruction) -> Callable[..., Any]:
        """A coroutine function that calls the function in a process of the session."""
        processes, name = construction.resource_mgr.processes, construction.name
        if processes is None:
            raise FailedPreconditionError(f"op {self.name!r} runs in a process, but there is no session that has any")
        reference = reference_to(self.function, self, self.name)
        return lambda *args, **kwargs: processes.call(reference, args, kwargs, name)

    def _make_giver(self, dtypes: tuple[DType, ...]) -> Callable[[Any], Any]:
        """What makes outputs of a result.

        A coroutine is refused as a result, or as one of several: nobody would await it.
        """
        convert = result_converter(self.name, dtypes, self._shapes)
        scalars = quick_conversions(dtypes, self._shapes)

        def give(result: object) -> Any:
            make = scalars.get(type(result))
            if make is untouched:
                return result
            if make is not None:
                try:
                    return make(result)
                except UNFIT:  # as what else cannot be converted
                    return convert(result)
            if type(result) is CoroutineType:
                self._refuse([result])
            elif len(dtypes) > 1 and isinstance(result, (tuple, list)):
                self._refuse([one for one in result if type(one) is CoroutineType])
            return convert(result)

        return give

    def _refuse(self, coroutines: Sequence[CoroutineType[Any, Any, Any]]) -> None:
        for coroutine in coroutines:
            coroutine.close()
        if coroutines:
            hint = "await it in the function" if self._is_async else "define it with 'async def', so that it is awaited"
            raise InternalError(f"op {self.name!r} returned a coroutine", hint=hint)

    def __repr__(self) -> str:
        outputs = ", ".join(arg.dtype.name for arg in self.registration.op_def.outputs if arg.dtype)
        return f"<ax.op {self.name}({', '.join(self._signature.parameters)}) -> {outputs or 'nothing'}>"


def user_op_of(node: Node) -> tuple[UserOp, OpOptions] | None:
    """The op that *node* was made by, and with which options; None if that was none of the user's."""
    kernel = node.properties.registration.kernel
    factory = None if kernel is None else kernel.factory
    if not isinstance(factory, partial):
        return None
    made_by = getattr(factory.func, "__self__", None)
    return (made_by, factory.keywords["options"]) if isinstance(made_by, UserOp) else None


def _is_async(function: Any, name: str) -> bool:
    """Whether a call of *function* is to be awaited; InvalidTypeError if it gives one value after another."""
    called = (function, function.__call__)  # a function, or an object with such a method
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called):
        raise InvalidTypeError(
            f"op {name!r} is a generator function, but a call of an op has one result",
            hint="return a list; what comes bit by bit is an ax.source, or the items of session.map",
        )
    return any(inspect.iscoroutinefunction(one) for one in called)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "op").strip("<>_") or "op"


def _typed(decorator: Callable[..., Any]) -> OpMaker:
    """*decorator* itself, whose type is told by overloads that stand elsewhere."""
    return decorator


@_typed
def op(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    outputs: Sequence[object] | None = None,
    shapes: Sequence[object] | None = None,
    expensive: bool | None = None,
    executor: Literal["process"] | None = None,
    pure: bool = False,
    ordered: bool = False,
    timeout: float | None = None,
    retries: Retry | int | None = None,
    limiter: Limiter | int | str | None = None,
    fallback: object = None,
    cache: ResultCache | Store | None = None,
    key: Callable[..., Any] | None = None,
    ttl: float | None = None,
    version: str | int = "",
) -> Any:
    """Decorator: makes an op of a function: ``@ax.op``, or ``@ax.op(expensive=True, outputs=[ax.float32])``.

    An ``async def`` is awaited in the caller's event loop.  A plain function runs inline if it is quick, and on a
    worker thread if not.

    >>> @ax.op
    ... async def shout(text: str) -> str:
    ...     return text.upper()
    >>> show(shout(ax.constant("tea")))
    TEA

    Args:
        name: the op type, by default the function's name.
        outputs: dtypes of the results, by default from the return annotation (``float`` is float64, ``int`` int64,
            ``str`` and ``bytes`` string, a numpy scalar type itself, a ``tuple[...]`` several, None none); anything
            else is ``object``: any Python value, unchanged.
        shapes: the shapes of the results, as far as they are known.
        expensive: whether it always runs on a worker thread (True), never does (False), or as measured (None).
        executor: "process" runs a plain function in a process of its own, for pure Python that would hold the GIL.  The
            process imports the function by name, so it must be at the top level of a module.  Arguments and results
            must be picklable; large arrays travel in shared memory and arrive read-only.  There are no context
            variables.  On a free-threaded build the function runs on a thread.
        pure: the function gives the same result for the same arguments and has no effect.  The optimizer may then make
            one call of two with the same tensors, and one call before a loop instead of one in each iteration.
        ordered: in a stream, each call waits until the call of the item before has ended, or that item has: for sinks.
            Such an op cannot be called in branches, loops and functions.
        timeout: the longest time of an attempt in seconds; past it the attempt fails with DeadlineExceededError.
            ``RunOptions.timeout`` bounds the whole run.  A plain function cannot be stopped: the step goes on without
            it, and its worker thread drops the result.
        retries: the number of further attempts after an error that may be temporary, with exponential back-off; or an
            ``ax.Retry``, which says what is retried by default.  The error of the last attempt lists all attempts.
        limiter: limits the calls that run at once, first come, first served: a number, an ``ax.Limiter``, or the name
            of one.  A call holds no slot while it waits for its next attempt.
        fallback: replaces the result if the last attempt fails or times out: a value, or a function of the exception,
            which may be async for an async function.  None: the step fails.
        cache: keeps results by the content of the arguments, so that the function is called once for the same ones: an
            ``ax.ResultCache``, or a store of ``ax.checkpoint``.  Nodes that ask for the same at one time wait for one
            call.  Failures and fallbacks are not kept.
        key: a plain function of the same arguments that returns what the result depends on.  None: all arguments.
        ttl: for how many seconds a result is used.
        version: change it, and no result from before is used.

    Arrays that others may see are read-only in the function.  The function must not change an array after returning it.

    A plain function with a timeout, retries or a limiter always runs on a worker thread, unless *expensive* is False.

    A parameter annotated with a Python type, ``int``, ``str | None``, ``list[float]``, gets values of that type.

    Raises:
        InvalidArgumentError: an option is out of range, or no limiter has the name; or a cache does not go with the op.
        TypeError: *function* is not callable.
    """

    def make(made_of: Callable[..., Any]) -> UserOp:
        policies = {"timeout": timeout, "retries": retries, "limiter": limiter, "fallback": fallback}
        return UserOp(
            made_of,
            name=name,
            outputs=outputs,
            shapes=shapes,
            expensive=expensive,
            executor=executor,
            pure=pure,
            ordered=ordered,
            options=OpOptions().changed(name or _name_of(made_of), policies),
            caching=CacheOptions(cache, key, ttl, version),
        )

    return make if function is None else make(function)
