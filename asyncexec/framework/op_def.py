"""What an op takes and gives: OpDef, and the short notation in which ops are declared.

The content follows ``tensorflow/core/framework/op_def.proto``.  An op is declared in three strings::

    "ConcatV2", "values: N*T, axis: Tidx -> output: T", "N: int >= 2; T: type; Tidx: {int32, int64} = int32"

* an argument is ``name: type``, where the type is a dtype name, a type attr (``T``), a repeated argument (``N*T``), a
  list-of-types attr (``Tin``), or any of these as ``Ref(...)``;
* an attr is ``name: kind``, ``kind >= minimum``, ``kind = default``; the kind is one of int, float, bool, string, type,
  shape, tensor, func, ``list(kind)``, or a set of allowed types or strings in braces (``numbertype`` and
  ``realnumbertype`` are sets with a name).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype, dtype_names

AttrDict: TypeAlias = Mapping[str, Any]
MAX_REPEATS: Final = 2**20  # tensors of one argument: a number in a file must not decide how much memory is taken
REQUIRED: Final = type("Required", (), {"__repr__": lambda self: "<required>"})()


@dataclass(frozen=True, slots=True)
class NameAttrList:
    """The value of an attr of kind ``func``: a function's name and the attrs it is instantiated with."""

    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class ArgDef:
    """One input or output argument; it stands for one tensor, or for several when ``is_list``."""

    name: str
    dtype: DType | None = None
    type_attr: str | None = None
    number_attr: str | None = None
    type_list_attr: str | None = None
    is_ref: bool = False

    @property
    def is_list(self) -> bool:
        return self.number_attr is not None or self.type_list_attr is not None

    def dtypes(self, attrs: AttrDict) -> tuple[DType, ...]:
        """The dtype of each tensor of this argument in a node with *attrs*."""
        if self.type_list_attr is not None:
            found: tuple[DType, ...] = tuple(attrs[self.type_list_attr])
        else:
            one = self.dtype if self.dtype is not None else attrs[self.type_attr or ""]
            found = (one,) if self.number_attr is None else (one,) * self._count(attrs[self.number_attr])
        return tuple(dtype.as_ref for dtype in found) if self.is_ref else found

    def _count(self, number: int) -> int:
        if not 0 <= number <= MAX_REPEATS:
            raise InvalidArgumentError(
                f"argument {self.name!r} is repeated attr {self.number_attr!r} = {number} times; it can be "
                f"from 0 to {MAX_REPEATS} times"
            )
        return number

    def __str__(self) -> str:
        inner = self.type_list_attr or self.type_attr or (self.dtype.name if self.dtype else "?")
        inner = f"{self.number_attr}*{inner}" if self.number_attr else inner
        return f"{self.name}: Ref({inner})" if self.is_ref else f"{self.name}: {inner}"


@dataclass(frozen=True, slots=True)
class AttrDef:
    """One attr: its kind (``int``, ``list(type)``, ...), default, allowed values and minimum (value or length)."""

    name: str
    kind: str
    default: Any = REQUIRED
    allowed: frozenset[Any] | None = None
    minimum: int | None = None

    @property
    def is_list(self) -> bool:
        return self.kind.startswith("list(")

    @property
    def element_kind(self) -> str:
        return self.kind[5:-1] if self.is_list else self.kind

    def check(self, value: Any) -> None:
        """InvalidArgumentError unless *value* is of this attr's kind, allowed, and not below the minimum."""
        if self.is_list:
            if not isinstance(value, tuple):
                raise InvalidArgumentError(f"attr {self.name!r} takes a {self.kind}, not {_describe(value)}")
            if self.minimum is not None and len(value) < self.minimum:
                raise InvalidArgumentError(
                    f"Length for attr {self.name!r} of {len(value)} must be at least minimum {self.minimum}"
                )
            for item in value:
                self._check_one(item)
        else:
            self._check_one(value)
            if self.minimum is not None and value < self.minimum:
                raise InvalidArgumentError(
                    f"Value for attr {self.name!r} of {value} must be at least minimum {self.minimum}"
                )

    def _check_one(self, value: object) -> None:
        if not isinstance(value, _KINDS[self.element_kind]) or (
            isinstance(value, bool) and self.element_kind in ("int", "float")
        ):
            raise InvalidArgumentError(f"attr {self.name!r} takes a {self.kind}, not {_describe(value)}")
        if self.allowed is not None and value not in self.allowed:
            shown = value.name if isinstance(value, DType) else value
            if isinstance(value, DType):
                names = dtype_names(self.allowed)
            else:
                names = ", ".join(sorted(v.decode("utf-8", "replace") for v in self.allowed))
            raise InvalidArgumentError(
                f"Value for attr {self.name!r} of {shown} is not in the list of allowed values: {names}"
            )


@dataclass(frozen=True, slots=True)
class OpDef:
    """An op type: its arguments, attrs and promises."""

    name: str
    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    attrs: Mapping[str, AttrDef]
    is_stateful: bool = False
    is_commutative: bool = False
    allows_uninitialized_input: bool = False
    touches_outside: bool = False  # reads or writes files, or runs foreign code: off unless allowed by name
    has_open_attrs: bool = False  # its nodes may have attrs that are not among *attrs*, of any kind
    # Whether its kernels return a tuple: unless it has exactly one output argument and that is no list.
    returns_tuple: bool = field(init=False, repr=False, compare=False)
    takes_references: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "returns_tuple", len(self.outputs) != 1 or self.outputs[0].is_list)
        object.__setattr__(self, "takes_references", any(arg.is_ref for arg in self.inputs))

    def input_dtypes(self, attrs: AttrDict) -> tuple[DType, ...]:
        """The dtype of each data input of a node with *attrs* (all defaults filled in)."""
        return tuple(dtype for arg in self.inputs for dtype in arg.dtypes(attrs))

    def output_dtypes(self, attrs: AttrDict) -> tuple[DType, ...]:
        """The dtype of each output of a node with *attrs* (all defaults filled in)."""
        return tuple(dtype for arg in self.outputs for dtype in arg.dtypes(attrs))

    def complete_attrs(self, given: AttrDict, *, imported: bool = False) -> dict[str, Any]:
        """*given* checked, with defaults filled in; internal attrs (``_x``) are kept as they are.

        Attrs that the op does not know are refused and integers pass for floats; with *imported*, as in a GraphDef, it
        is the other way round.

        Raises:
            InvalidArgumentError: one is missing, unknown, of the wrong kind or not allowed.
        """
        complete: dict[str, object] = {}
        for attr in self.attrs.values():
            value = given.get(attr.name, REQUIRED)
            if value is REQUIRED:
                if attr.default is REQUIRED:
                    raise InvalidArgumentError(f"NodeDef missing attr {attr.name!r} from {self}", op=self.name)
                complete[attr.name] = attr.default
            else:
                attr.check(value)
                if imported and isinstance(value, int) and attr.kind == "float":
                    raise InvalidArgumentError(f"attr {attr.name!r} takes a float, not {_describe(value)}")
                complete[attr.name] = value
        if len(given) > len(complete) or any(name not in complete for name in given):
            for name, value in given.items():
                if name in complete:
                    continue
                if not imported and not self.has_open_attrs and not name.startswith("_"):
                    raise InvalidArgumentError(f"NodeDef mentions attr {name!r} not in {self}", op=self.name)
                complete[name] = value
        return complete

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, args)) for args in (self.inputs, self.outputs))
        attrs = "; ".join(f"{attr.name}: {attr.kind}" for attr in self.attrs.values())
        return f"Op<{self.name}({inputs}) -> {outputs or '()'}; {attrs}>"


def parse_op_def(
    name: str,
    signature: str,
    attrs: str = "",
    *,
    is_stateful: bool = False,
    is_commutative: bool = False,
    allows_uninitialized_input: bool = False,
    touches_outside: bool = False,
    has_open_attrs: bool = False,
) -> OpDef:
    """Build an OpDef from the notation described at the head of this module."""
    attr_defs = {attr.name: attr for attr in map(_parse_attr, _split(attrs, ";"))}
    inputs, _, outputs = signature.partition("->")
    return OpDef(
        name,
        tuple(_parse_arg(text, attr_defs) for text in _split(inputs, ",")),
        tuple(_parse_arg(text, attr_defs) for text in _split(outputs, ",")),
        attr_defs,
        is_stateful,
        is_commutative,
        allows_uninitialized_input,
        touches_outside,
        has_open_attrs,
    )


def _split(text: str, separator: str) -> Iterator[str]:
    return (part.strip() for part in text.split(separator) if part.strip())


def _parse_arg(text: str, attrs: Mapping[str, AttrDef]) -> ArgDef:
    name, _, type_text = (part.strip() for part in text.partition(":"))
    is_ref = type_text.startswith("Ref(")
    if is_ref:
        type_text = type_text[4:-1]
    number, star, rest = type_text.partition("*")
    if star:
        number_attr, type_text = number.strip(), rest.strip()
    else:
        number_attr = None
    if type_text not in attrs:
        dtype = as_dtype(type_text)
        if dtype.name != type_text:  # numpy's short names, such as T, are types too
            raise ValueError(f"{type_text!r} is neither an attr nor a data type: {text!r}")
        return ArgDef(name, dtype, None, number_attr, None, is_ref)
    if attrs[type_text].is_list:
        return ArgDef(name, None, None, None, type_text, is_ref)
    return ArgDef(name, None, type_text, number_attr, None, is_ref)


_ATTR: Final = re.compile(r"(\w+)\s*:\s*([^=>]+?)\s*(?:>=\s*(-?\d+))?\s*(?:=\s*(.*))?", re.DOTALL)
_ITEM: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")  # of a list, whose items may have commas in parentheses
_NAMED_SETS: Final = {"numbertype": types.NUMBER_DTYPES, "realnumbertype": types.REAL_NUMBER_DTYPES}


def _parse_attr(text: str) -> AttrDef:
    match = _ATTR.fullmatch(text)
    if match is None:
        raise ValueError(f"not an attr declaration: {text!r}")
    name, kind, minimum, default = match.groups()
    is_list = kind.startswith("list(")
    element = kind[5:-1] if is_list else kind
    allowed: frozenset[object] | None = None
    if element in _NAMED_SETS:
        allowed, element = _NAMED_SETS[element], "type"
    elif element.startswith("{"):
        members = list(_split(element[1:-1], ","))
        element = "string" if members[0][0] == "'" else "type"
        allowed = frozenset(_literal(member, element) for member in members)
    value = REQUIRED
    if default is not None:
        if is_list:
            value = tuple(
                _literal(item.strip(), element) for item in _ITEM.findall(default.strip()[1:-1]) if item.strip()
            )
        else:
            value = _literal(default.strip(), element)
    return AttrDef(
        name,
        f"list({element})" if is_list else element,
        value,
        allowed,
        None if minimum is None else int(minimum),
    )


def _literal(text: str, kind: str) -> object:
    match kind:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return text == "True"
        case "string":
            return text.strip("'").encode()
        case "type":
            return as_dtype(text)
        case "func":
            return NameAttrList(text.removeprefix("func(").rstrip(")").strip("'"))
        case "shape":
            inner = text.removeprefix("shape(").rstrip(")")
            return UNKNOWN_SHAPE if inner == "?" else TensorShape(int(dim) for dim in _split(inner, ","))
        case "tensor":
            dtype, _, items = text.removeprefix("tensor(").rstrip(")").partition(":")
            return np.array(json.loads(items), as_dtype(dtype).as_numpy_dtype)[()]
    raise ValueError(f"a {kind} has no literal form: {text!r}")


# float attrs accept integers; a tensor attr is any array, numpy scalar, or bytes (a 0-d string).
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "int": int,
    "float": (float, int),
    "bool": bool,
    "string": bytes,
    "type": DType,
    "shape": TensorShape,
    "tensor": (np.ndarray, np.generic, bytes),
    "func": NameAttrList,
}


def _describe(value: object) -> str:
    if isinstance(value, tuple):
        return "a list"
    return f"{type(value).__name__} {value!r}" if not isinstance(value, np.ndarray) else "a tensor"


def arg_slices(args: Sequence[ArgDef], attrs: AttrDict) -> dict[str, slice]:
    """Where each argument's tensors stand in the flat list of inputs (or outputs) of a node with *attrs*."""
    slices: dict[str, slice] = {}
    start = 0
    for arg in args:
        stop = start + len(arg.dtypes(attrs))
        slices[arg.name] = slice(start, stop)
        start = stop
    return slices
