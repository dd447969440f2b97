"""A signature of a model as one GraphDef: functions written out, variables constants, ends called as in the signature.

After ``convert_variables_to_constants_v2`` of TensorFlow (``python/framework/convert_to_constants.py``).  Where a node
gives on a variable, it gives on its value instead: the graph is lowered first, so that only identities and the nodes
of branches and loops do so.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from asyncexec.framework.cooperative import Stage, run_at_once
from asyncexec.framework.errors import FailedPreconditionError, UnimplementedError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NodeDef, make_attr
from asyncexec.framework.tensor_proto import encode_shape, encode_tensor
from asyncexec.framework.types import resource
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_to_def import CURRENT_VERSIONS, NodeEncoder, input_name
from asyncexec.graph.node import Node, Tensor
from asyncexec.importers.saved_model import SignatureDef, TensorInfo
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.pruning.prune import ClientGraph, prune

VARIABLES: Final = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_INT32: Final = make_attr("type", 3)
_PASSING: Final = frozenset(
    f"{prefix}{op}" for prefix in ("", "Ref") for op in "Identity Enter Exit NextIteration Switch Merge".split()
) | {"_SwitchN"}
_WITH_AXIS: Final = {"ResourceGather": ("axis",)}  # it becomes two nodes
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.\\/>-]")  # in names of nodes
_FIRST: Final = re.compile(r"[A-Za-z0-9.]")
_SHOWN: Final = 20
_LOST: Final = "Table"  # what is in a table is not in the graph

# The values of nodes that are variables; None where one has none.
ValuesOf = Callable[[Iterable[Node]], Mapping[Node, Any]]


def frozen(graph: Graph, signature: SignatureDef, values_of: ValuesOf) -> GraphDef:
    """The GraphDef of *signature* of *graph*.

    Raises:
        UnimplementedError: nodes change variables or look into tables; all of them are named.
        FailedPreconditionError: variables have no value; all of them are named.
    """
    inputs = {key: graph.tensor(info.name) for key, info in signature.inputs.items()}
    outputs = {key: graph.tensor(info.name) for key, info in signature.outputs.items()}
    lowered = run_at_once(_lowered(graph, inputs.values(), outputs.values()))
    return _Writer(graph, signature, lowered, values_of).graph_def(inputs, outputs)


def _lowered(graph: Graph, inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> Stage[ClientGraph]:
    pruned = yield from prune(list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs)), ())
    return (yield from LowerFunctionalOps(graph, inlines_all=True).run(pruned))


class _Writer:
    """Writes one lowered graph."""

    def __init__(self, graph: Graph, signature: SignatureDef, lowered: ClientGraph, values_of: ValuesOf) -> None:
        self._graph = graph
        self._signature = signature
        self._lowered = lowered
        self._encoder = NodeEncoder()
        self._names: dict[Node, str] = {}
        self._fed: dict[Tensor, str] = {}
        self._dtypes = _flow(lowered)
        self._check()
        variables = [node for node in lowered.nodes if node.op in VARIABLES]
        self._values = values_of(variables)
        unset = [repr(node.name) for node in variables if self._values[node] is None]
        if unset:
            raise FailedPreconditionError(f"variables have no value: {_listed(unset)}")

    def _check(self) -> None:
        """Raise unless all that takes variables is known, and nothing else has a state."""
        refused = [
            f"{node.name!r} ({node.op})"
            for node in self._lowered.nodes
            if self._writes(node) or (_LOST in node.op and node.op_def.is_stateful)
        ]
        if refused:
            raise UnimplementedError(
                f"these nodes change variables, or use tables, which a graph alone cannot hold: {_listed(refused)}",
                hint="a SavedModel holds them",
            )

    def _writes(self, node: Node) -> bool:
        """Whether *node* may change a variable that it takes."""
        if node.op in _PASSING or node.op in _READS:
            return False
        taken = [tensor for tensor in node.inputs if tensor in self._dtypes]
        return any(not tensor.dtype.is_ref for tensor in taken) or (bool(taken) and _takes_reference(node))

    def graph_def(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> GraphDef:
        taken: set[str] = set()
        fed = {key: _new_name(key, taken, "default") for key in inputs}
        given = {key: _new_name(key, taken) for key in outputs}
        for node in sorted(self._lowered.nodes, key=lambda node: node.op not in _WITH_AXIS):  # these have two names
            self._names[node] = _new_name(node.name, taken, *_WITH_AXIS.get(node.op, ()))
        lowered_of = dict(zip(dict.fromkeys(inputs.values()), self._lowered.feeds, strict=True))
        fetched_of = dict(zip(dict.fromkeys(outputs.values()), self._lowered.fetches, strict=True))
        nodes: list[NodeDef] = []
        for key, tensor in inputs.items():
            nodes += self._placeholder(key, fed[key], tensor)
            self._fed.setdefault(lowered_of[tensor], fed[key])
        for node in self._lowered.nodes:
            nodes += self._written(node)
        for key, tensor in outputs.items():
            attrs = {"T": make_attr("type", tensor.dtype.base_dtype.enum)}
            nodes.append(NodeDef(name=given[key], op="Identity", input=(self._input(fetched_of[tensor]),), attr=attrs))
        functions = _functions_of(nodes, self._graph.functions)
        return GraphDef(node=tuple(nodes), library=FunctionDefLibrary(function=functions), versions=CURRENT_VERSIONS)

    def _placeholder(self, key: str, name: str, tensor: Tensor) -> Sequence[NodeDef]:
        info: TensorInfo = self._signature.inputs[key]
        attrs = {
            "dtype": make_attr("type", info.dtype.base_dtype.enum),
            "shape": make_attr("shape", encode_shape(info.shape)),
        }
        default: object = self._signature.defaults.get(key)
        if default is None and tensor.op.op == "PlaceholderWithDefault" and tensor.op.inputs[0].op.op == "Const":
            default = tensor.op.inputs[0].op.get_attr("value")
        if default is None:
            return [NodeDef(name=name, op="Placeholder", attr=attrs)]
        constant = _constant(f"{name}/default", default, info.dtype.base_dtype)
        return [constant, NodeDef(name=name, op="PlaceholderWithDefault", input=(constant.name,), attr=attrs)]

    def _input(self, tensor: Tensor) -> str:
        if tensor in self._fed:
            return self._fed[tensor]
        text, name = input_name(tensor), self._names[tensor.op]
        return name + text[len(tensor.op.name) :]

    def _written(self, node: Node) -> Sequence[NodeDef]:
        controls = (f"^{self._names[control]}" for control in node.control_inputs if control in self._names)
        inputs = (*map(self._input, node.inputs), *controls)
        made = self._encoder.node_def(node, inputs)
        attrs = {key: attr for key, attr in made.attr.items() if not key.startswith("_")}
        made = NodeDef(name=self._names[node], op=node.op, input=inputs, device=node.device, attr=attrs)
        if node.op in VARIABLES:
            dtype = node.get_attr("dtype").base_dtype
            return [_constant(made.name, self._values[node], dtype, node.device, inputs)]
        if not any(tensor in self._dtypes for tensor in node.inputs):
            return [made]
        if node.op in _PASSING and node.outputs[0] in self._dtypes:
            update = {"T": make_attr("type", self._dtype(node))}
            return [made.model_copy(update={"op": node.op.removeprefix("Ref"), "attr": {**attrs, **update}})]
        return _READS[node.op](made, self._dtype(node)) if node.op in _READS else [made]

    def _dtype(self, node: Node) -> int:
        return next(self._dtypes[tensor] for tensor in node.inputs if tensor in self._dtypes)


def _new_name(wanted: str, taken: set[str], *parts: str) -> str:
    """A name for a node like *wanted* that is not *taken*, nor are those of its *parts*; they are from now on."""
    wanted = _UNFIT.sub("_", wanted)
    if not _FIRST.match(wanted):
        wanted = f".{wanted}"
    name, count = wanted, 0
    while not taken.isdisjoint(names := [name, *(f"{name}/{part}" for part in parts)]):
        count += 1
        name = f"{wanted}_{count}"
    taken.update(names)
    return name


def _flow(graph: ClientGraph) -> dict[Tensor, int]:
    """The tensors that are variables, each with the number of the dtype of its value."""
    takers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if node.op in _PASSING:
                takers.setdefault(tensor.op, []).append(node)
    found: dict[Tensor, int] = {}
    pending: deque[Node] = deque()
    for node in graph.nodes:
        if node.op in VARIABLES:
            found[node.outputs[0]] = node.get_attr("dtype").base_dtype.enum
            pending.append(node)
    while pending:
        for taker in takers.get(pending.popleft(), ()):
            enum = next((found[tensor] for tensor in taker.inputs if tensor in found), None)
            slots = taker.outputs if "Switch" in taker.op else taker.outputs[:1]
            carries = slots[0].dtype.is_ref or slots[0].dtype is resource
            if enum is not None and carries and slots[0] not in found:
                found.update(dict.fromkeys(slots, enum))
                pending.append(taker)
    return found


def _takes_reference(node: Node) -> bool:
    return any(arg.is_ref for arg in node.op_def.inputs)


def _constant(name: str, value: object, dtype: Any, device: str = "", inputs: Sequence[str] = ()) -> NodeDef:
    attrs = {"dtype": make_attr("type", dtype.enum), "value": make_attr("tensor", encode_tensor(value, dtype))}
    return NodeDef(name=name, op="Const", input=tuple(inputs), device=device, attr=attrs)


def _changed(made: NodeDef, op: str, inputs: Sequence[str] | None = None, **attrs: AttrValue) -> NodeDef:
    kept = made.input if inputs is None else tuple(inputs)
    return NodeDef(name=made.name, op=op, input=kept, device=made.device, attr=attrs)


def _read(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    return [_changed(made, "Identity", T=make_attr("type", dtype))]


def _shape(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    return [_changed(made, "Shape", T=make_attr("type", dtype), out_type=made.attr.get("out_type", _INT32))]


def _gather(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    params, indices, *controls = made.input
    batch_dims = made.attr["batch_dims"].i if "batch_dims" in made.attr else 0
    # The axis runs where the indices are: in their branch, and in their frame.
    axis = NodeDef(
        name=f"{made.name}/axis",
        op="Const",
        input=(f"^{indices.partition(':')[0]}",),
        device=made.device,
        attr={"dtype": _INT32, "value": make_attr("tensor", encode_tensor(batch_dims))},
    )
    kinds = {"Tparams": make_attr("type", dtype), "Tindices": made.attr["Tindices"], "Taxis": _INT32}
    inputs = (params, indices, axis.name, *controls)
    return [axis, _changed(made, "GatherV2", inputs, **kinds, batch_dims=make_attr("i", batch_dims))]


def _gather_nd(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    return [_changed(made, "GatherNd", Tparams=make_attr("type", dtype), Tindices=made.attr["Tindices"])]


def _is_initialized(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    del dtype
    attrs = {"dtype": make_attr("type", 10), "value": make_attr("tensor", encode_tensor(True))}
    return [_changed(made, "Const", _controls(made), **attrs)]


def _nothing(made: NodeDef, dtype: int) -> Sequence[NodeDef]:
    del dtype
    return [_changed(made, "NoOp", _controls(made))]


def _controls(made: NodeDef) -> Sequence[str]:
    """Control edges from all that *made* takes."""
    return tuple(dict.fromkeys(f"^{text.lstrip('^').partition(':')[0]}" for text in made.input))


# What reads a variable, as nodes that read its value.
_READS: Final[Mapping[str, Callable[[NodeDef, int], Sequence[NodeDef]]]] = {
    "ReadVariableOp": _read,
    "ResourceGather": _gather,
    "ResourceGatherNd": _gather_nd,
    "VariableShape": _shape,
    "VarIsInitializedOp": _is_initialized,
    "IsVariableInitialized": _is_initialized,
    "DisableCopyOnRead": _nothing,
}


def _functions_of(nodes: Iterable[NodeDef], functions: Mapping[str, FunctionDef]) -> tuple[FunctionDef, ...]:
    """Those of *functions* that *nodes* need."""
    found: dict[str, FunctionDef] = {}
    pending = deque(nodes)
    while pending:
        node = pending.popleft()
        for name in (node.op, *_named(node)):
            if name in functions and name not in found:
                found[name] = functions[name]
                pending.extend(functions[name].node_def)
    return tuple(found.values())


def _named(node: NodeDef) -> Iterable[str]:
    for attr in node.attr.values():
        if attr.func is not None:
            yield attr.func.name
        for each in attr.list.func if attr.list is not None else ():
            yield each.name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
