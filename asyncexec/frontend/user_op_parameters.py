"""What the parameters of a user op get: an annotation of a Python type gets a value of that type.

Along edges travel numpy scalars and arrays, and bytes for text.  A parameter annotated ``int``, ``float``, ``bool``,
``complex`` or ``str`` gets the Python value of a scalar of that kind, one annotated ``list[...]`` of them a list; these
may be Optional, Annotated, or given as text.  Any other annotation gets what travels; so does a value of another kind.
"""

from __future__ import annotations

import inspect
import types as python_types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.frontend.type_aliases import written_out

Conversion: TypeAlias = Callable[[Any], Any]

# The types of numpy's scalars that a parameter of a Python type takes.
_SCALARS: Final[Mapping[Any, tuple[type, ...]]] = {
    bool: (np.bool_,),
    int: (np.integer,),
    float: (np.floating, np.integer),
    complex: (np.complexfloating, np.floating, np.integer),
}
_NO_ITEMS: Final[Sequence[Any]] = (Any,)


def conversions(function: Callable[..., Any], num_inputs: int, names: Sequence[str]) -> list[tuple[int, Conversion]]:
    """The inputs to convert for *function*, by their positions, and how; the last ones are passed by *names*."""
    hints = type_hints(function)
    parameters = _parameters(inspect.signature(function), num_inputs - len(names), names)
    found = [(position, _conversion(hints.get(name))) for position, name in enumerate(parameters)]
    return [(position, convert) for position, convert in found if convert is not None]


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of *function*, none if they cannot be resolved."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _parameters(signature: inspect.Signature, num_positional: int, names: Sequence[str]) -> list[str]:
    """The names of the parameters that get each of the inputs: those of ``*args`` and ``**kwargs`` get several."""
    positional: list[str] = []
    rest = ""
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [name] * (num_positional - len(positional))
        elif parameter.kind is parameter.VAR_KEYWORD:
            rest = name
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(name)
    return positional[:num_positional] + [name if name in signature.parameters else rest for name in names]


def _conversion(hint: object) -> Conversion | None:
    hint = written_out(hint)
    if typing.get_origin(hint) in (typing.Union, python_types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        return _conversion(members[0]) if len(members) == 1 else None
    if typing.get_origin(hint) is list:
        return _list_conversion(*(typing.get_args(hint) or _NO_ITEMS))
    if hint is str:
        return decoded
    if not isinstance(hint, type) or hint not in _SCALARS:
        return None
    scalars = _SCALARS[hint]
    return lambda value: hint(value) if isinstance(value, scalars) else value


def _list_conversion(hint: object) -> Conversion | None:
    while typing.get_origin(hint := written_out(hint)) is list:
        (hint,) = typing.get_args(hint) or _NO_ITEMS
    if hint in (str, bytes):
        return decoded if hint is str else _as_list
    if not isinstance(hint, type) or hint not in _SCALARS:
        return None
    scalars = _SCALARS[hint]

    def convert(value: object) -> Any:
        if not isinstance(value, np.ndarray) or not issubclass(value.dtype.type, scalars):
            return value
        return value.astype(hint).tolist()

    return convert


def _as_list(value: object) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def decoded(value: object) -> Any:
    """Bytes as str, an array of bytes as lists of str, anything else as it is."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return [decoded(item) for item in value]
    return value


def with_names(function: Callable[..., Any], names: Sequence[str], num_inputs: int) -> Callable[..., Any]:
    """*function*, which gets the last of its inputs by *names*."""
    if not names:
        return function
    first = num_inputs - len(names)

    def call(*inputs: object) -> Any:
        return function(*inputs[:first], **dict(zip(names, inputs[first:], strict=True)))

    return call


def with_conversions(call: Callable[..., Any], converted: Sequence[tuple[int, Conversion]]) -> Callable[..., Any]:
    """*call*, which gets some of the inputs *converted*."""
    if not converted:
        return call

    def call_converted(*inputs: object) -> Any:
        values = list(inputs)
        for position, convert in converted:
            values[position] = convert(values[position])
        return call(*values)

    return call_converted
