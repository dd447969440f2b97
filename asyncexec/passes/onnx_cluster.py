"""OnnxCluster: what a node stands for, as a model of ONNX and as calls of our own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import FEW, STRIDE, Stage, run_at_once
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_emitter import Emitter, Key, UntranslatableError, origin_of
from asyncexec.passes.onnx_nodes import opset_of
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.process.onnx_model import OnnxModel
from asyncexec.process.onnx_session import LONG


class MemberCall(NamedTuple):
    """The call of a member's own kernel, between slots.

    Attributes:
        node: the member as it was.
        takes: the slots of its inputs; gives: the first slot of its outputs.
        releases: slots that nothing takes anything from afterwards.
    """

    node: Node
    takes: tuple[int, ...]
    gives: int
    releases: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OnnxCluster:
    """What a node stands for: its inputs are those of the model, and behind them the values of variables.

    Attributes:
        name: of the node.
        translation: what it does, for ONNX Runtime.
        calls: the same by our own kernels.
        slots: the values before the first call, of which the first are the inputs.
        outputs: the slots of the outputs.
    """

    name: str
    translation: ClusterTranslation
    calls: tuple[MemberCall, ...]
    slots: tuple[Any, ...]
    outputs: tuple[int, ...]


class ClusterTranslation:
    """Translates members to a model, anew for each set of values of the *variables*; made by ``translated``.

    Args:
        members: copies, each after those that it takes from, which nothing changes.
        outputs: of the members, those of the model.
        fed: tensors whose values the caller gives.
        variables: tensors that the members take the values of variables of; stand_ins: what stands for these.
        emitter: has translated the members, with that.
        known: the model, where there are no variables.

    Attributes:
        inputs: the tensors from outside that the model takes.
        variables: those of the given ones that the members take.
        work: multiplications of a call, roughly.
        is_large: whether enough of them are for several threads.
    """

    __slots__ = ("_dims", "_fed", "_known", "_members", "_outputs", "inputs", "is_large", "variables", "work")

    def __init__(
        self,
        members: Sequence[Node],
        outputs: Sequence[Tensor],
        fed: frozenset[Key],
        variables: Sequence[Tensor],
        stand_ins: Sequence[Array],
        emitter: Emitter,
        known: OnnxModel | None,
    ) -> None:
        self._members = members
        self._outputs = outputs
        self._fed = fed
        self.variables: tuple[Tensor, ...] = tuple(variables)
        self._dims = [array.shape for array in stand_ins]
        self.inputs: tuple[Tensor, ...] = tuple(emitter.inputs)
        self.work: float = emitter.work
        self.is_large: bool = emitter.kinds_of_work.on_threads(1) >= LONG
        self._known = known

    def model(self, values: Sequence[Any] = ()) -> OnnxModel:
        """The model that has *values* of the variables as constants.

        Raises:
            UntranslatableError: they do not have the sizes that the variables were declared with.
        """
        if self._known is not None:
            return self._known
        for value, dims in zip(values, self._dims, strict=True):
            if np.shape(value) != dims or value.dtype != np.float32:
                raise UntranslatableError("a variable has another size than it was declared with")
        arrays = [np.asarray(value) for value in values]
        emitter = run_at_once(_emitted(self._members, self._fed, self.variables, arrays))
        model = run_at_once(emitter.model(self._outputs, opset_of(self._members[0])))
        if tuple(emitter.inputs) != self.inputs:
            raise UntranslatableError("other inputs are taken for other values of variables")
        return model


def translated(
    members: Sequence[Node], outputs: Sequence[Tensor], fed: frozenset[Key], variables: Mapping[Key, Array]
) -> Stage[ClusterTranslation]:
    """The translation of *members*, as a stage; *variables* are all that there are in the graph, by their values."""
    taken: dict[Key, Tensor] = {}
    for count, node in enumerate(members):
        if not count % STRIDE:
            yield
        for tensor in node.inputs:
            origin = origin_of(tensor, _is_in(fed), variables)
            if origin is not None and (origin.op, origin.index) in variables:
                taken.setdefault((origin.op, origin.index), origin)
    own, stand_ins = tuple(taken.values()), [variables[key] for key in taken]
    emitter = yield from _emitted(members, fed, own, stand_ins)
    known = None if own else (yield from emitter.model(outputs, opset_of(members[0])))
    return ClusterTranslation(members, outputs, fed, own, stand_ins, emitter, known)


def _emitted(
    members: Sequence[Node], fed: frozenset[Key], variables: Sequence[Tensor], values: Sequence[Array]
) -> Stage[Emitter]:
    """What has translated *members*, with *values* of the *variables*, as a stage."""
    keys = [(tensor.op, tensor.index) for tensor in variables]
    emitter = Emitter(_is_in(fed), dict(zip(keys, values, strict=True)))
    for count, node in enumerate(members):
        if not count % FEW:
            yield
        TRANSLATIONS[node.op](emitter, node)
    inside = set(members)
    for count, node in enumerate(members):  # what a translation knows without its value
        if not count % STRIDE:
            yield
        for tensor in node.inputs:
            if tensor.op not in inside and emitter.constant(tensor) is None:
                emitter.take(tensor)
    return emitter


def _is_in(fed: frozenset[Key]) -> Callable[[Tensor], bool]:
    return lambda tensor: (tensor.op, tensor.index) in fed


def cluster_of(
    name: str, members: Sequence[Node], outputs: Sequence[Tensor], translation: ClusterTranslation
) -> Stage[OnnxCluster]:
    """The cluster of *members* that *translation* has, as a stage."""
    inputs = (*translation.inputs, *translation.variables)
    slot_of: dict[Key, int] = {(tensor.op, tensor.index): slot for slot, tensor in enumerate(inputs)}
    values: list[object] = [None] * len(inputs)
    last_use: dict[int, int] = {}
    for count, node in enumerate(members):
        if not count % STRIDE:
            yield
        for tensor in node.inputs:
            key = (tensor.op, tensor.index)
            if key not in slot_of:
                origin = _origin(tensor, slot_of)
                slot_of[key] = slot_of.get((origin.op, origin.index), len(values))
                if slot_of[key] == len(values):
                    values.append(origin.op.attrs["value"])
            last_use[slot_of[key]] = count
        for tensor in node.outputs:
            last_use[len(values)] = count
            slot_of[tensor.op, tensor.index] = len(values)
            values.append(None)
    wanted = tuple(slot_of[tensor.op, tensor.index] for tensor in outputs)
    yield
    releases: dict[int, list[int]] = {}
    for slot, count in last_use.items():
        if slot not in wanted and values[slot] is None:
            releases.setdefault(count, []).append(slot)
    yield
    calls = tuple(
        MemberCall(
            node,
            tuple(slot_of[tensor.op, tensor.index] for tensor in node.inputs),
            slot_of[node, 0],
            tuple(releases.get(count, ())),
        )
        for count, node in enumerate(members)
    )
    return OnnxCluster(name, translation, calls, tuple(values), wanted)


def _origin(tensor: Tensor, slot_of: Mapping[Key, int]) -> Tensor:
    """The constant, or what has a slot, that *tensor* has its value of."""
    while tensor.op.op != "Const" and (tensor.op, tensor.index) not in slot_of:
        tensor = tensor.op.inputs[0]
    return tensor


def copies(members: Sequence[Node]) -> Stage[dict[Node, Node]]:
    """*members* as they are, whatever becomes of them: for each a copy, which takes from copies; as a stage."""
    found: dict[Node, Node] = {}
    for count, node in enumerate(members):
        if not count % STRIDE:
            yield
        inputs = tuple(
            found[tensor.op].outputs[tensor.index] if tensor.op in found else tensor for tensor in node.inputs
        )
        copy = Node(node.graph, node.name, node.properties, inputs, (), node.device, node.source_line)
        copy.id, copy.output_shapes = node.id, node.output_shapes
        found[node] = copy
    return found
