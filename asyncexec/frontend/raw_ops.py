"""``ax.raw_ops``: a function for each registered op, as ``tf.raw_ops`` has them.

``ax.raw_ops.AddV2(x=a, y=b)`` adds a node of the op: inputs come first, in the order of its OpDef, then its attrs, by
name.  Attrs that follow from the inputs, and those with a default, may be left out.  What it gives, and its errors, are
those of ``create_op``.
"""

from __future__ import annotations

import inspect
import typing  # and not Any from it, which is an op
from collections.abc import Callable
from typing import Final

from asyncexec.framework.errors import InvalidTypeError, NotFoundError
from asyncexec.framework.op_def import REQUIRED, OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.frontend.create_op import add_op

_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY


def parameters_of(op_def: OpDef) -> list[inspect.Parameter]:
    """What the function of an op takes: its inputs, its attrs, and the name of the node."""
    inferred = {attr for arg in op_def.inputs for attr in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    attrs = [
        inspect.Parameter(attr.name, _BY_NAME)
        if attr.default is REQUIRED and attr.name not in inferred
        else inspect.Parameter(attr.name, _BY_NAME, default=None)
        for attr in op_def.attrs.values()
    ]
    return [
        *(inspect.Parameter(arg.name, _POSITIONAL) for arg in op_def.inputs),
        *sorted(attrs, key=lambda parameter: parameter.default is None),
        inspect.Parameter("name", _BY_NAME, default=None),
    ]


def _function_of(op: str) -> Callable[..., typing.Any]:
    registration = op_registry.lookup(op)
    op_def = registration.op_def
    signature = inspect.Signature(parameters_of(op_def))

    def raw_op(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTypeError(f"{op}: {error}", hint=f"{op}{signature}") from None
        attrs = dict(bound.arguments)
        name = attrs.pop("name", None)
        inputs = [attrs.pop(arg.name) for arg in op_def.inputs]
        return add_op(registration, inputs, attrs, name)

    raw_op.__name__ = raw_op.__qualname__ = op
    raw_op.__doc__ = f"Add a node of {op_def}."
    raw_op.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
    return raw_op


def __getattr__(name: str) -> Callable[..., typing.Any]:
    if name.startswith("_"):
        raise AttributeError(f"there is no op {name!r} to be used")
    if not op_registry.is_implemented(name) and name in op_registry:
        raise AttributeError(f"TensorFlow has the op {name!r}, and asyncexec no kernel for it")
    try:
        function = globals()[name] = _function_of(name)
    except NotFoundError as error:
        raise AttributeError(f"{error.message}" + (f": {error.hint}" if error.hint else "")) from None
    return function


def __dir__() -> list[str]:
    return sorted(op for op in op_registry.implemented() if op.isidentifier() and not op.startswith("_"))
