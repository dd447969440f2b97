"""Graphs of one op with attrs and inputs that a stranger might write: right ones, wrong ones, absurd ones.

``python -m tests.graph.graph_fuzz --seed 1 --cases 20 [OP ...]`` runs them by the thousand and prints, for what should
not have happened, the GraphDef and the feeds.  What should not happen: anything but an OpError comes out of building
or running the graph; a warning; a case that takes too long, or too much memory; a session that is of no use after it;
feeds that are written to.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import pkgutil
import random
import resource
import signal
import sys
import threading
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np

import asyncexec as ax
import tests.ops.cases
from asyncexec.framework.attr_value import AttrPlaceholder, encode_attr_value
from asyncexec.framework.errors import OpError
from asyncexec.framework.graph_def import (
    AttrValue,
    FunctionDefLibrary,
    GraphDef,
    ListValue,
    NodeDef,
    VersionDef,
    make_attr,
)
from asyncexec.framework.op_def import ArgDef, AttrDef, NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import ALL_DTYPES, DType, as_dtype
from asyncexec.graph.import_checks import RUNTIME_OPS
from asyncexec.importers.tf_graph_def import format_graph_def
from asyncexec.ops.op_index import OPS
from tests.ops.op_case import OpCase
from tests.ops.op_runner import infer_attrs
from tests.optimization.function_text import function, node

STEP_S: Final = 1.0  # after which a run gives up: what waits for others waits for ever
CASE_S: Final = 90.0  # after which a case counts as stuck
KERNEL_S: Final = 60.0  # the same for a kernel that is at work when its run gives up
# More of the processor is too long.  By the clock, a busy machine may need half a minute to find gigabytes for
# one result; that is no time of ours.
CPU_S: Final = 10.0
CONFIG: Final = ax.SessionConfig(
    slow_inline_ms=60_000,  # a busy machine is not the fault of a graph
    worker_grace_s=KERNEL_S,
    cancel_grace_s=KERNEL_S,
)
CASE_BYTES: Final = 5 * 2**29  # one result may have 2**31 elements: that is what an index of 32 bits can ask for
MAX_BYTES: Final = 2**32  # that the process may ever have
SHAPES: Final = [
    (),
    (),
    (1,),
    (2,),
    (3,),
    (0,),
    (2, 3),
    (3, 3),
    (2, 0),
    (1, 1),
    (2, 2, 2),
    (1, 4, 4, 3),
    (1, 0, 4, 3),
    (1, 2, 3, 3, 2),
]
INTS: Final = [0, 1, 2, 3, 4, 7, -1, -2, 100, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63)]
FLOATS: Final = [0.0, 1.0, 0.5, -1.0, 2.0, 1e-3, 1e30, -1e30, float("nan"), float("inf"), float("-inf"), 1e-45]
STRINGS: Final = [
    *(
        b"",
        b"a",
        b"NHWC",
        b"NCHW",
        b"VALID",
        b"SAME",
        b"EXPLICIT",
        b"abc,def",
        b"1",
        b"-1.5",
        b"nan",
        b"[a-z]+(",
        b"(a+)+$",
    ),
    *(
        b"\xff\xfe",
        b"\xc3",
        b"\x00",
        b"Relu",
        b"ij,jk->ik",
        b"...i",
        b"%s",
        b"{}",
        "\u00e9\u4e00".encode(),
        b"x" * 5000,
    ),
]
KINDS: Final = ["int", "float", "bool", "string", "type", "shape", "tensor", "func"]
F: Final = ax.float32
FUNCTIONS: Final = (
    function("One(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0"),
    function("Less1(x: float32) -> y: bool", node("n", "Less", "x x", T=F), ret="y=n:z:0"),
    function("Own(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type"),
    function("Bad(x: float32) -> y: float32", node("n", "NoSuchOp", "x", T=F), ret="y=n:y:0"),
)


@dataclass
class Case:
    """A graph whose node ``a`` is the one that matters, and what to feed."""

    op: str
    graph_def: GraphDef
    feeds: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        text = format_graph_def(self.graph_def, "json").decode()
        feeds = {name: f"{np.shape(value)} {value!r}"[:500] for name, value in self.feeds.items()}
        return f"{text}\nfeeds: {feeds}"


@dataclass(frozen=True)
class Recipe:
    """Wire values of attrs, None where one is left out, and a dtype and a value for each input."""

    attrs: dict[str, AttrValue | None]
    inputs: list[tuple[DType, Any]]


class Fuzzer:
    """Makes cases of *op*; the same ones for the same *seed*."""

    def __init__(self, op: str, seed: int) -> None:
        self._op = op
        self._op_def = op_registry.lookup(op).op_def
        self._random = random.Random(zlib.crc32(f"{op} {seed}".encode()))
        self._nodes: list[NodeDef] = []
        self._feeds: dict[str, Any] = {}

    def case(self) -> Case:
        """A case that is new in many ways."""
        recipe = self.recipe()
        for _ in range(self._random.choice([0, 1, 1, 1, 2, 3])):
            recipe = self._changed(recipe)
        return self.built(recipe)

    def recipe(self) -> Recipe:
        """What may well be right: a call that tests of kernels make, or one of the right types."""
        known = _known_cases().get(self._op)
        if known and self._random.random() < 0.7:
            return self._known(self._random.choice(known))
        attrs = self._attrs()
        return Recipe(attrs, self._inputs(attrs))

    def built(self, recipe: Recipe) -> Case:
        """The case of *recipe*."""
        self._nodes, self._feeds = [], {}
        names = [self._source(*each) for each in recipe.inputs]
        if self._random.random() < 0.01:
            names = names[:-1] if self._random.random() < 0.5 else [*names, *names[:1], "nowhere"]
        wire = {name: value for name, value in recipe.attrs.items() if value is not None}
        target = NodeDef(name="a", op=self._op, input=tuple(names), attr=wire)
        graph_def = GraphDef(
            node=(*self._nodes, target, node("fine", "Const", value=np.float32(1), dtype=F)),
            library=FunctionDefLibrary(function=FUNCTIONS),
            versions=VersionDef(producer=self._random.choice([0, 0, 20, 1286])),
        )
        return Case(self._op, graph_def, self._feeds)

    def variations(self, recipe: Recipe) -> Iterator[Case]:
        """*recipe* with one thing changed: each attr and each input, to each of many values."""
        for name in recipe.attrs:
            kind = self._op_def.attrs[name].kind if name in self._op_def.attrs else "int"
            for value in _odd_values(kind):
                yield self.built(Recipe({**recipe.attrs, name: value}, recipe.inputs))
        for index, (dtype, value) in enumerate(recipe.inputs):
            for odd in self._odd_inputs(dtype, value):
                inputs = [*recipe.inputs[:index], odd, *recipe.inputs[index + 1 :]]
                yield self.built(Recipe(recipe.attrs, inputs))
                if "Tin" in recipe.attrs and odd[0] != dtype:  # of ONNX and PNNX, whose nodes take what they say
                    told = encode_attr_value([each for each, _ in inputs], "list(type)")
                    yield self.built(Recipe({**recipe.attrs, "Tin": told}, inputs))

    def _odd_inputs(self, dtype: DType, value: Any) -> Iterator[tuple[DType, Any]]:
        """Other shapes of the same dtype, other values of the same shape, and other dtypes."""
        for shape in dict.fromkeys(SHAPES):
            yield dtype, self._array(dtype, shape)
        base = dtype.base_dtype
        extremes: Sequence[Any] = (
            STRINGS if base.name == "string" else FLOATS if base.is_floating or base.is_complex else INTS
        )
        if not base.is_opaque and np.size(value) < 2_000:
            for extreme in extremes:
                yield dtype, _filled(base, np.shape(value), extreme)
        for other in self._random.sample(ALL_DTYPES, 4):
            yield other.as_ref if dtype.is_ref else other, self._array(other, np.shape(value))

    # Attrs.

    def _attrs(self) -> dict[str, AttrValue | None]:
        """Wire values, None where one is left out; and those that tell dtypes mostly right."""
        attrs: dict[str, AttrValue | None] = {}
        for name, attr in self._op_def.attrs.items():
            chance = self._random.random()
            if chance < 0.25 and not isinstance(attr.default, type(self._op_def)) and _has_default(attr):
                attrs[name] = None
            else:
                attrs[name] = self._hostile() if chance > 0.95 else self._attr(attr)
        if self._random.random() < 0.02:
            attrs[self._random.choice(["_class", "_output_shapes", "unknown", "_XlaCompile"])] = self._hostile()
        return attrs

    def _attr(self, attr: AttrDef) -> AttrValue:
        """A value of the right kind, mostly allowed."""
        if not attr.is_list:
            return encode_attr_value(self._value(attr), attr.kind)
        least = max(0, attr.minimum or 0)
        length = self._random.choice([least, 1, 1, 2, 2, 3, 4, 5, 0])
        if self._random.random() < 0.01:
            length = 300
        return encode_attr_value([self._value(attr) for _ in range(length)], attr.kind)

    def _value(self, attr: AttrDef) -> Any:
        if attr.allowed is not None and self._random.random() < 0.95:
            return self._random.choice(sorted(attr.allowed, key=str))
        if attr.element_kind == "int" and attr.minimum is not None and self._random.random() < 0.7:
            return max(attr.minimum, 1) + self._random.choice([0, 0, 1, 2])
        return self._of_kind(attr.element_kind)

    def _of_kind(self, kind: str) -> Any:
        pick = self._random.choice
        match kind:
            case "int":
                return pick(INTS[:7]) if self._random.random() < 0.7 else pick(INTS)
            case "float":
                return pick(FLOATS)
            case "bool":
                return pick([True, False])
            case "string":
                return pick(STRINGS)
            case "type":
                return (
                    pick(ALL_DTYPES)
                    if self._random.random() < 0.3
                    else as_dtype(pick(["float32", "int32", "string", "bool", "float64", "int64"]))
                )
            case "shape":
                return TensorShape(
                    pick([None, [], [1], [2], [None], [0], [2, 3], [None, 2], [2**31], [2**40, 2**20], [1] * 200])
                )
            case "tensor":
                return self._array(pick([as_dtype("float32"), as_dtype("int32"), as_dtype("string")]), pick(SHAPES))
        return NameAttrList(pick(["One", "Less1", "Own", "Bad", "Nowhere", "Neg", ""]), pick([{}, {"T": F}, {"T": 3}]))

    def _hostile(self) -> AttrValue:
        """A value of any kind, or of none."""
        pick = self._random.choice
        kind = pick(KINDS)
        chance = self._random.random()
        if chance < 0.4:
            return encode_attr_value(self._of_kind(kind), kind)
        if chance < 0.7:
            return encode_attr_value([self._of_kind(kind) for _ in range(pick([0, 1, 2, 5]))], f"list({kind})")
        if chance < 0.8:
            return encode_attr_value(AttrPlaceholder(pick(["T", "x", ""])))
        if chance < 0.85:
            return make_attr("list", ListValue(i=(1, 2), b=(True,)))
        if chance < 0.9:
            return make_attr("type", pick([0, 999, 101, -1]))
        dims = tuple(DimProto(size=size) for size in pick([(-1,), (-2,), (2**40,), (2**62, 4), (3,), (0,)]))
        values: Any = pick([{}, {"float_val": (1.0,)}, {"tensor_content": b"\xff" * 7}, {"string_val": (b"\xff",)}])
        proto = TensorProto(dtype=pick([1, 3, 7, 14, 20, 0]), tensor_shape=TensorShapeProto(dim=dims), **values)
        return make_attr("tensor", proto)

    # Inputs.

    def _inputs(self, attrs: dict[str, AttrValue | None]) -> list[tuple[DType, Any]]:
        """A dtype and a value for each input; the value may be anything for what has none of its own."""
        inputs: list[tuple[DType, Any]] = []
        base = self._random.choice(SHAPES)
        for arg in self._op_def.inputs:
            for dtype in self._dtypes(arg, attrs):
                if self._random.random() < 0.04:
                    dtype = self._random.choice(ALL_DTYPES)
                shape = base if self._random.random() < 0.55 else self._random.choice(SHAPES)
                inputs.append((dtype.as_ref if arg.is_ref else dtype, self._array(dtype, shape)))
        return inputs

    def _dtypes(self, arg: ArgDef, attrs: dict[str, AttrValue | None]) -> Sequence[DType]:
        """What *arg* takes in a node of these *attrs*; a guess where they are wrong."""
        decoded: dict[str, Any] = {}
        for name, value in attrs.items():
            attr = self._op_def.attrs.get(name)
            if attr is None:
                continue
            with contextlib.suppress(OpError):
                found = attr.default if value is None else ax_decode(value)
                attr.check(found)
                decoded[name] = found
        try:
            dtypes = arg.dtypes(decoded)
        except (KeyError, TypeError, OpError):
            return [as_dtype("float32")] * self._random.choice([0, 1, 2])
        return dtypes[:40]

    def _array(self, dtype: DType, shape: Sequence[int]) -> Any:
        """A value of *dtype* and *shape*, most often of harmless elements."""
        pick = self._random.choice
        base = dtype.base_dtype
        if base.is_opaque:
            return np.float32(0)
        extreme = self._random.random() < 0.25
        if base.name == "string":
            choice: Sequence[Any] = STRINGS if extreme else STRINGS[:12]
        elif base.is_bool:
            choice = [True, False]
        elif base.is_floating or base.is_complex:
            choice = FLOATS if extreme else FLOATS[:6]
        else:
            choice = INTS if extreme else [0, 1, 2, 1, 3, -1]
        return _filled(base, shape, *[pick(choice) for _ in range(max(1, int(np.prod(shape))))])

    def _known(self, case: OpCase) -> Recipe:
        decoded = infer_attrs(self._op_def, case)
        attrs: dict[str, AttrValue | None] = {
            name: encode_attr_value(value, self._op_def.attrs[name].kind) for name, value in decoded.items()
        }
        return Recipe(attrs, list(zip(self._op_def.input_dtypes(decoded), case.inputs, strict=False)))

    def _changed(self, recipe: Recipe) -> Recipe:
        """*recipe* with one thing changed."""
        attrs, inputs = dict(recipe.attrs), list(recipe.inputs)
        if attrs and (not inputs or self._random.random() < 0.5):
            name = self._random.choice(list(attrs))
            attr = self._op_def.attrs.get(name)
            attrs[name] = self._attr(attr) if attr is not None and self._random.random() < 0.8 else self._hostile()
        elif inputs:
            index = self._random.randrange(len(inputs))
            dtype, value = inputs[index]
            chance = self._random.random()
            if chance < 0.1:
                dtype = self._random.choice(ALL_DTYPES)
            shape = np.shape(value) if chance > 0.6 else self._random.choice(SHAPES)
            if np.size(value) < 2_000:
                inputs[index] = (dtype, self._array(dtype, shape))
        return Recipe(attrs, inputs)

    def _source(self, dtype: DType, value: Any) -> str:
        """The name of what gives *value*: a Const, a Placeholder, or what makes such a thing as has no value."""
        name = f"x{len(self._nodes)}"
        pick = self._random.choice
        if dtype.is_ref:
            return self._reference(name, dtype, value)
        if dtype.base_dtype.name == "resource":
            return self._resource(name)
        if dtype.base_dtype.name == "variant":
            return self._variant(name)
        if dtype.is_opaque or self._random.random() < 0.5:
            shape: Any = pick([None, list(np.shape(value)), [None] * np.ndim(value)])
            self._nodes.append(node(name, "Placeholder", dtype=dtype, shape=TensorShape(shape)))
            self._feeds[f"{name}:0"] = value if not dtype.is_opaque else pick([None, 3, "text", [1], np.float32(2)])
            return name
        if np.size(value) > 10_000:
            value = np.zeros((), dtype.as_numpy_dtype)[()]
        self._nodes.append(node(name, "Const", value=_boxed(value), dtype=dtype))
        return name

    def _reference(self, name: str, dtype: DType, value: Any) -> str:
        base = dtype.base_dtype
        if base.name == "string" and self._random.random() < 0.6:
            made = [
                node(name, "FIFOQueue", component_types=[F], shapes=[TensorShape([])]),
                node(name, "Stack", elem_type=F),
                node(name, "HashTable", key_dtype=ax.string, value_dtype=ax.int64),
                node(name, "PaddingFIFOQueue", component_types=[F], shapes=[TensorShape([None])]),
            ]
            self._nodes.append(self._random.choice(made))
            return name
        self._nodes.append(node(name, "VariableV2", dtype=base, shape=TensorShape(np.shape(value))))
        if base.is_opaque or self._random.random() < 0.2:
            return name
        self._nodes.append(node(f"{name}_value", "Const", value=_boxed(value), dtype=base))
        self._nodes.append(node(f"{name}_set", "Assign", f"{name} {name}_value", T=base))
        return f"{name}_set"

    def _resource(self, name: str) -> str:
        pick = self._random.choice
        made = [
            node(name, "VarHandleOp", dtype=F, shape=TensorShape([2]), shared_name=name),
            node(name, "FIFOQueueV2", component_types=[F], shapes=[TensorShape([])]),
            node(name, "PaddingFIFOQueueV2", component_types=[F], shapes=[TensorShape([None])]),
            node(name, "RandomShuffleQueueV2", component_types=[F], shapes=[TensorShape([])]),
            node(name, "PriorityQueueV2", component_types=[F], shapes=[TensorShape([])]),
            node(name, "StackV2", f"{name}_size", elem_type=F),
            node(name, "TensorArrayV3", f"{name}_size", dtype=F, element_shape=TensorShape(None)),
            node(name, "HashTableV2", key_dtype=ax.string, value_dtype=ax.int64),
            node(name, "MutableHashTableV2", key_dtype=ax.string, value_dtype=ax.int64),
            node(name, "MutableDenseHashTableV2", f"{name}_empty {name}_deleted", key_dtype=ax.int64, value_dtype=F),
        ]
        chosen = pick([each for each in made if each.op in op_registry])
        for source in chosen.input:
            value: Any = np.int32(2) if source.endswith("size") else np.int64(-1 if source.endswith("empty") else -2)
            dtype = ax.int32 if source.endswith("size") else ax.int64
            self._nodes.append(node(source, "Const", value=value, dtype=dtype))
        self._nodes.append(chosen)
        if chosen.op == "VarHandleOp" and self._random.random() < 0.8:
            value = np.float32([1, 2])
            self._nodes.append(node(f"{name}_value", "Const", value=value, dtype=F))
            self._nodes.append(node(f"{name}_set", "AssignVariableOp", f"{name} {name}_value", dtype=F))
            self._nodes.append(node(f"{name}_ready", "Identity", f"{name} ^{name}_set", T=ax.resource))
            return f"{name}_ready"
        return name

    def _variant(self, name: str) -> str:
        values, shape, size = f"{name}_values", f"{name}_shape", f"{name}_size"
        self._nodes.append(node(values, "Const", value=np.float32([[1, 2], [3, 4]]), dtype=F))
        self._nodes.append(node(shape, "Const", value=np.int32([2]), dtype=ax.int32))
        self._nodes.append(node(size, "Const", value=np.int32(2), dtype=ax.int32))
        made = [
            node(name, "TensorListFromTensor", f"{values} {shape}", element_dtype=F, shape_type=ax.int32),
            node(name, "EmptyTensorList", f"{shape} {size}", element_dtype=F, shape_type=ax.int32),
            node(name, "TensorListReserve", f"{shape} {size}", element_dtype=F, shape_type=ax.int32),
        ]
        self._nodes.append(self._random.choice(made))
        return name


def _boxed(value: Any) -> Any:
    """*value* as an array: np.float64 is a float and bytes are a string, no tensors, to an attr."""
    return np.asarray(value, object if isinstance(value, bytes) else None)


def _filled(dtype: DType, shape: Sequence[int], *elements: Any) -> Any:
    """A value of *dtype* and *shape* with these elements, or the first of them all over; numbers wrap around."""
    count = int(np.prod(shape))
    items = list(elements[:count]) if len(elements) > 1 else [elements[0]] * count
    if dtype.name == "string":
        array: Any = np.empty(count, object)
        array[:] = items
        return array.reshape(shape)[()]
    if dtype.is_bool:
        items = [bool(item) for item in items]
    elif dtype.is_integer or dtype.name.startswith("q"):
        items = [int(item) & (2 ** (8 * dtype.itemsize) - 1) for item in items]
    kind = np.uint64 if items and isinstance(items[0], int) and not isinstance(items[0], bool) else None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.array(items, kind).astype(dtype.as_numpy_dtype).reshape(shape)[()]


@cache
def _odd_values(kind: str) -> list[AttrValue | None]:
    """Values for an attr of *kind*, right ones and others, and None: no value."""
    ones = {
        "int": INTS,
        "float": FLOATS,
        "bool": [True, False],
        "string": STRINGS,
        "type": [as_dtype(name) for name in "float32 int32 string bool resource bfloat16 qint8 complex64 int4".split()],
        "shape": [
            TensorShape(each) for each in (None, [], [0], [2], [None], [2, 3], [2**31], [2**40, 2**20], [1] * 200)
        ],
        "tensor": [np.float32(1), np.zeros((2, 0), np.int32), b"\xff", np.float32([np.nan])],
        "func": [NameAttrList(name, {}) for name in ("One", "Less1", "Own", "Bad", "Nowhere", "Neg", "")],
    }
    others: list[AttrValue | None] = [
        None,
        encode_attr_value(AttrPlaceholder("T")),
        make_attr("list", ListValue()),
        make_attr("list", ListValue(i=(1,), b=(True,))),
        make_attr("type", 999),
        make_attr("s", b"\xff"),
        make_attr("i", 3),
    ]
    if not kind.startswith("list("):
        return [*(encode_attr_value(one, kind) for one in ones[kind]), *others]
    lists = [list(each) for one in ones[kind[5:-1]] for each in ([one], [one] * 2, [one] * 4)]
    lists += [ones[kind[5:-1]][:length] for length in (3, 5)] + [ones[kind[5:-1]][:1] * 300]
    return [*(encode_attr_value(each, kind) for each in lists), *others]


def ax_decode(value: AttrValue) -> Any:
    from asyncexec.framework.attr_value import decode_attr_value

    return decode_attr_value(value)


def _has_default(attr: AttrDef) -> bool:
    return repr(attr.default) != "<required>"


@cache
def _known_cases() -> dict[str, list[OpCase]]:
    found: dict[str, list[OpCase]] = {}
    for module in pkgutil.iter_modules(tests.ops.cases.__path__):
        for case in importlib.import_module(f"tests.ops.cases.{module.name}").CASES:
            if sum(map(np.size, case.inputs)) < 5_000:
                found.setdefault(case.op, []).append(case)
    return found


def fuzzed_ops() -> list[str]:
    """Every op of ours that a stranger's graph may have, and that stays within the process."""
    names = {op for ops in OPS.values() for op in ops.split()} - RUNTIME_OPS
    return sorted(op for op in names if not op_registry.lookup(op).op_def.touches_outside)


# Running.


class Stuck(BaseException):
    """A case took too long."""


@dataclass
class Report:
    """What came of many cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    stumbles: Counter[str] = field(default_factory=Counter)  # errors that are OpErrors by the last resort only

    def __str__(self) -> str:
        total = sum(self.outcomes.values())
        return f"{total} cases: " + ", ".join(f"{count} {name}" for name, count in self.outcomes.most_common(8))


async def run_case(case: Case, report: Report) -> None:
    """Build and run *case*, and note what came of it."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            outcome = await _outcome(case, report)
        except OpError as error:
            outcome = type(error).__name__
            _note_stumble(case, error, report)
        except (Exception, Stuck):
            outcome = "PROBLEM"
            report.problems.append(f"{case}\n{traceback.format_exc()}")
    if warned:
        texts = "\n".join(
            f"{each.category.__name__}: {each.message} ({each.filename}:{each.lineno})" for each in warned
        )
        report.problems.append(f"{case}\nwarnings: {texts}")
    report.outcomes[outcome] += 1


async def _outcome(case: Case, report: Report) -> str:
    with ax.Graph() as graph:
        ax.import_graph_def(case.graph_def)
    target = graph.operation("a")
    fetches = [tensor for tensor in target.outputs[:20] if tensor.dtype.name not in ("resource", "variant")]
    fed = _bits_of(case.feeds)
    async with ax.Session(graph, config=CONFIG) as session:
        try:
            await session.run(fetches, case.feeds, targets=[target], options=ax.RunOptions(timeout=STEP_S))
            outcome = "fine"
        except OpError as error:
            outcome = type(error).__name__
            _note_stumble(case, error, report)
        assert await session.run("fine:0") == 1
    assert _bits_of(case.feeds) == fed, "feeds are written to"
    return outcome


def _bits_of(feeds: Mapping[str, Any]) -> dict[str, Any]:
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    return {name: array.tolist() if array.dtype.hasobject else array.tobytes() for name, array in arrays.items()}


def _note_stumble(case: Case, error: OpError, report: Report) -> None:
    cause = error.__cause__
    if cause is None or isinstance(cause, OpError):
        return
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [frame for frame in frames if "asyncexec" in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    report.stumbles[f"{case.op} {type(error).__name__} <- {type(cause).__name__}: {str(cause)[:80]} ({where})"] += 1


def cases_of(op: str, cases: int, seed: int, report: Report, sweep: int = 0) -> Iterator[Case]:
    """*cases* of *op*, and every variation of *sweep* that are fine; each to be run before the next is asked for."""
    fuzzer = Fuzzer(op, seed)
    for _ in range(cases):
        yield fuzzer.case()
    for _ in range(sweep):
        for _ in range(30):
            recipe = fuzzer.recipe()
            fine = report.outcomes["fine"]
            yield fuzzer.built(recipe)
            if report.outcomes["fine"] > fine:
                yield from fuzzer.variations(recipe)
                break


async def run_cases(ops: Iterable[str], cases: int, seed: int, report: Report) -> None:
    """Run *cases* of each of *ops*."""
    for op in ops:
        for case in cases_of(op, cases, seed, report):
            await run_case(case, report)


# In a process of its own.


@contextlib.contextmanager
def _watched(case: Case, report: Report) -> Iterator[None]:
    """Notes when *case* takes too long or too much memory."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Stuck("".join(traceback.format_stack(frame)[-12:]))

    before, start_s = _peak_bytes(), _cpu_s()
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, CASE_S)
    try:
        yield
    except Stuck:
        report.problems.append(f"{case}\n{traceback.format_exc()}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if _peak_bytes() - before > CASE_BYTES:
        report.problems.append(f"{case}\ntook {(_peak_bytes() - before) / 2**20:.0f} MiB")
    if _cpu_s() - start_s > CPU_S:
        report.problems.append(f"{case}\ntook {_cpu_s() - start_s:.0f} s")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu_s() -> float:
    """The time of all threads, without what the system took."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--sweep", type=int, default=0, help="calls of an op that are fine, to be varied in all ways")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    report = Report()
    foreign: list[str] = []
    sys.unraisablehook = lambda unraisable: foreign.append(
        f"unraisable: {unraisable.exc_value!r} in {unraisable.object!r}"
    )
    threading.excepthook = lambda raised: foreign.append(f"in a thread: {raised.exc_value!r}")
    ax.Graph, ax.Session  # noqa: B018 - imports them
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: foreign.append(f"in the loop: {context}"))
        for op in options.ops or fuzzed_ops():
            cases = cases_of(op, options.cases, options.seed, report, options.sweep)
            for number, case in enumerate(cases):
                if options.verbose:
                    print(f"@ {op} {number}", file=sys.stderr, flush=True)
                known = len(report.problems)
                with _watched(case, report):
                    runner.run(run_case(case, report))
                if foreign:
                    report.problems.append(f"{case}\n" + "\n".join(foreign))
                    foreign.clear()
                for problem in report.problems[known:]:
                    print(f"--- {op}, seed {options.seed}, case {number}\n{problem}", flush=True)
            gc.collect(0)
    print(f"seed {options.seed}: {report}; {len(report.problems)} problems")
    for text, count in report.stumbles.most_common():
        print(f"stumble {count:5d} {text}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(_main())
