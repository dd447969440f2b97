"""What a model takes and gives, by the names that its clients know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.errors import InternalError, InvalidArgumentError, UnimplementedError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_ends import PLACEHOLDERS, output_nodes
from asyncexec.graph.node import Node, Tensor
from asyncexec.service.datatypes import datatype_of

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

DEFAULT_SIGNATURE: Final = "serving_default"
PREDICT: Final = "tensorflow/serving/predict"

_ANY: Final = -1  # a size that is not known
_TYPE: Final = "TYPE_"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a client sends or gets.

    Attributes:
        name: the client's name of it.
        datatype: the protocol's name of its dtype.
        shape: its sizes, -1 for one that is not known; None where not even its rank is.
        tensor: of the graph.
        is_optional: whether the graph has a value for it where the client sends none.
        inner_shape: the sizes that the tensor of the graph has, where those are others (``reshape`` of a config).
    """

    name: str
    datatype: str
    shape: tuple[int, ...] | None
    tensor: Tensor[Any]
    is_optional: bool = False
    inner_shape: tuple[int, ...] | None = None

    @property
    def described_shape(self) -> list[int]:
        """The shape as metadata tells it, which has no way to say that a rank is not known."""
        return [_ANY] if self.shape is None else list(self.shape)

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a value of *shape* fits."""
        mine = self.shape
        if mine is None:
            return True
        return shape == mine or _matches(mine, shape)

    def to_graph(self, array: Array) -> Array:
        """*array*, which a client has sent, as the graph takes it."""
        if self.inner_shape is None or self.shape is None:
            return array
        return _reshaped(array, self.shape, self.inner_shape)

    def from_graph(self, array: Array) -> Array:
        """*array*, which the graph has given, as the client gets it.

        Raises:
            InternalError: it has not the shape that the config says.
        """
        if self.inner_shape is None or self.shape is None:
            return array
        if not _matches(self.inner_shape, array.shape):
            raise InternalError(
                f"output '{self.name}' has the shape {list(array.shape)}, and its config says {list(self.inner_shape)}"
            )
        return _reshaped(array, self.inner_shape, self.shape)


def _reshaped(array: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    """*array*, of the shape *before*, in the shape *after*: sizes that are not known stay, in their order."""
    sizes = iter([size for size, known in zip(array.shape, before, strict=True) if known == _ANY])
    return array.reshape([next(sizes) if known == _ANY else known for known in after])


def _matches(known: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(shape) == len(known) and all(size in (_ANY, given) for size, given in zip(known, shape, strict=True))


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model by name.

    Attributes:
        name: what clients of TensorFlow Serving call it.
        method_name: what kind of signature it is to them.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    name: str = DEFAULT_SIGNATURE
    method_name: str = PREDICT


def signature_of(
    graph: Graph,
    inputs: Mapping[str, Tensor[Any]] | None = None,
    outputs: Mapping[str, Tensor[Any]] | None = None,
    config: Any = None,
    hidden: AbstractSet[Tensor[Any]] = frozenset(),
) -> Signature:
    """What a model of *graph* takes and gives.

    Args:
        inputs: tensors to feed by name; by default the placeholders, by the names of their nodes.
        outputs: tensors to fetch by name; by default what nothing consumes.
        config: the ModelConfig; what it names are the inputs and outputs, with its datatypes and sizes.
        hidden: what clients neither send nor get, unless the config names it as an output.

    Raises:
        InvalidArgumentError: the config names what is not there, or has another datatype, or sizes that do not fit;
            there is nothing to give.
    """
    if inputs is None:
        inputs = {node.name: node.outputs[0] for node in graph.operations if node.op in PLACEHOLDERS}
    if outputs is None:
        outputs = dict(_ends(output_nodes(graph.operations)))
    inputs = {name: tensor for name, tensor in inputs.items() if tensor not in hidden}
    if config is None or not config.output:
        outputs = {name: tensor for name, tensor in outputs.items() if tensor not in hidden}
    has_batch = config is not None and config.max_batch_size > 0
    takes = _specs(graph, inputs, () if config is None else config.input, "input", has_batch=has_batch)
    gives = _specs(graph, outputs, () if config is None else config.output, "output", has_batch=has_batch)
    if not gives:
        raise InvalidArgumentError("the graph gives nothing that can be sent", hint="name outputs in its config")
    return Signature(takes, gives)


def _ends(nodes: Iterable[Node]) -> Iterable[tuple[str, Tensor[Any]]]:
    for node in nodes:
        for tensor in node.outputs:
            yield (node.name if len(node.outputs) == 1 else tensor.name), tensor


def _specs(
    graph: Graph, tensors: Mapping[str, Tensor[Any]], declared: Any, role: str, *, has_batch: bool
) -> dict[str, TensorSpec]:
    """The specs of what is *declared* in a config; where nothing is, of all *tensors* that can be sent."""
    if not declared:
        return dict(_sendable(tensors))
    specs: dict[str, TensorSpec] = {}
    for each in declared:
        tensor = tensors.get(each.name)
        if tensor is None:
            tensor = _found(graph, each.name, role, tensors)
        spec = _spec(each.name, tensor)
        wanted = declared_type(each)
        if wanted not in ("TYPE_INVALID", f"{_TYPE}{spec.datatype}"):
            raise InvalidArgumentError(f"{role} {each.name!r} is {spec.datatype}, and its config says {wanted}")
        dims = ([_ANY] if has_batch else []) + list(each.dims)
        inner = _inner_sizes(each, role, has_batch=has_batch)
        asked = dims if inner is None else list(inner)
        if each.dims and not _fits(tensor.shape, asked):
            raise InvalidArgumentError(
                f"{role} {each.name!r} has the shape {tensor.shape}, and its config says {asked}"
            )
        shape = tuple(dims) if each.dims else spec.shape
        is_optional = spec.is_optional or (role == "input" and each.optional)
        specs[each.name] = TensorSpec(each.name, spec.datatype, shape, tensor, is_optional, inner)
    return specs


def declared_type(each: Any) -> str:
    """What *each*, a message of a ModelConfig, says of a data type: "TYPE_" and the protocol's name of it."""
    value = type(each).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number.get(each.data_type)
    name = str(each.data_type) if value is None else value.name
    return {"TYPE_STRING": "TYPE_BYTES"}.get(name, name)


def spec_of(graph: Graph, name: str, role: str, tensors: Mapping[str, Tensor[Any]]) -> TensorSpec:
    """The spec of what is called *name* in *tensors* or in *graph*; InvalidArgumentError where nothing is."""
    tensor = tensors.get(name)
    return _spec(name, _found(graph, name, role, tensors) if tensor is None else tensor)


def _inner_sizes(each: Any, role: str, *, has_batch: bool) -> tuple[int, ...] | None:
    """The sizes of the tensor in the graph, where its config has others; InvalidArgumentError if they do not fit."""
    if not each.HasField("reshape"):
        return None
    dims, inner = list(each.dims), list(each.reshape.shape)
    if not dims or _sections(dims) != _sections(inner):
        raise InvalidArgumentError(f"{role} {each.name!r} has the dims {dims} in its config, and 'reshape' {inner}")
    return (*([_ANY] if has_batch else []), *inner)


def _sections(dims: list[int]) -> list[int]:
    """The numbers of elements between sizes that are not known."""
    found = [1]
    for size in dims:
        if size == _ANY:
            found.append(1)
        else:
            found[-1] *= size
    return found


def _found(graph: Graph, name: str, role: str, tensors: Mapping[str, Tensor[Any]]) -> Tensor[Any]:
    try:
        return graph.tensor(name if ":" in name else f"{name}:0")
    except (LookupError, ValueError):
        known = ", ".join(sorted(tensors))
        raise InvalidArgumentError(f"unexpected inference {role} {name!r}, allowed {role}s are: {known}") from None


def _sendable(tensors: Mapping[str, Tensor[Any]]) -> Iterable[tuple[str, TensorSpec]]:
    for name, tensor in tensors.items():
        try:
            yield name, _spec(name, tensor)
        except UnimplementedError:
            if tensor.op.op == "Placeholder":
                raise
            # of a resource, say: nobody needs it to call the model


def _spec(name: str, tensor: Tensor[Any]) -> TensorSpec:
    shape = tensor.shape.dims
    known = None if shape is None else tuple(_ANY if size is None else size for size in shape)
    return TensorSpec(name, datatype_of(tensor.dtype), known, tensor, tensor.op.op == "PlaceholderWithDefault")


def _fits(shape: TensorShape, dims: list[int]) -> bool:
    if shape.dims is None:
        return True
    return len(shape.dims) == len(dims) and all(
        size is None or wanted in (_ANY, size) for size, wanted in zip(shape.dims, dims, strict=True)
    )


def missing_inputs(
    model: str, specs: Mapping[str, TensorSpec], given: Iterable[str], missing: Iterable[str]
) -> InvalidArgumentError:
    """The error of a request to *model* that has the inputs *given*, and not those that are *missing*."""
    given = list(given)
    least, most = sum(not spec.is_optional for spec in specs.values()), len(specs)
    expected = f"{most} inputs" if least == most else f"number of inputs between {least} and {most}"
    return InvalidArgumentError(
        f"expected {expected} but got {len(given)} inputs for model '{model}'. Got input(s) {_listed(given)}, but "
        f"missing required input(s) {_listed(missing)}. Please provide all required input(s)."
    )


def _listed(names: Iterable[str]) -> str:
    return f"[{','.join(map(repr, names))}]"  # clients of Triton look for them without spaces
