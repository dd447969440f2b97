"""If and Case: a Switch for each input, the bodies of the branches, a Merge for each output.

After ``tensorflow/core/common_runtime/lower_if_op.cc`` and ``lower_case_op.cc``.  What a branch does without taking any
input waits for the branch's pivot, which is dead where the branch is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.tensor_shape import SCALAR
from asyncexec.framework.types import as_dtype
from asyncexec.graph.node import Node, Tensor
from asyncexec.optimization.expansion import Call, Expansion, Inlining, Lowering, Task, check_dtypes
from asyncexec.optimization.private_nodes import PrivateNodes


def predicate(nodes: PrivateNodes, call: Call, tensor: Tensor, name: str, *after: Node | None) -> Tensor:
    """*tensor* as a scalar bool that can decide, once *after* have run.

    A call that TensorFlow lowers takes a scalar bool, here as there (of any other shape the Switch complains).  To the
    kernels of the others a number is true that is not 0, a string that is not empty, a tensor that has elements.

    Raises:
        InvalidArgumentError: *call* is one that TensorFlow lowers, and *tensor* is known to be no scalar bool.
    """
    is_bool = tensor.dtype.base_dtype is as_dtype("bool")
    is_lowered = bool(call.template.attrs.get("_lower_using_switch_merge"))
    if is_lowered and (not is_bool or tensor.shape.rank):
        raise InvalidArgumentError(
            f"the predicate must be a scalar bool, but is {tensor.dtype.base_dtype.name} of shape {tensor.shape}",
            node=call,
        )
    if is_bool and (is_lowered or tensor.shape.rank == 0):
        return tensor if not any(after) else nodes.identity(tensor, name, *after)
    attrs = {"T": tensor.dtype.base_dtype}
    return nodes.add("ToBool", name, [tensor], after, attrs=attrs, shapes=[SCALAR]).outputs[0]


def lower_if(lowering: Lowering, call: Call) -> Task:
    """Replace an If or StatelessIf."""
    after, _ = lowering.entry(call)
    decides = predicate(lowering.nodes, call, call.inputs[0], f"{call.name}/predicate", after)
    # A Switch gives on output 0 what is for false.
    branches = {"else": call.attr("else_branch"), "then": call.attr("then_branch")}
    return _Branches(lowering, call, decides, branches).run()


def lower_case(lowering: Lowering, call: Call) -> Task:
    """Replace a Case or StatelessCase; an index out of range takes the last branch."""
    after, _ = lowering.entry(call)
    index = call.inputs[0]
    if after is not None:
        index = lowering.nodes.identity(index, f"{call.name}/index", after)
    branches = {f"branch{i}": function for i, function in enumerate(call.attr("branches"))}
    return _Branches(lowering, call, index, branches).run()


class _Branches:
    def __init__(self, lowering: Lowering, call: Call, decides: Tensor, branches: dict[str, NameAttrList]) -> None:
        self._nodes = lowering.nodes
        self._call = call
        self._decides = decides
        self._branches = branches

    def run(self) -> Task:
        call, nodes = self._call, self._nodes
        sides = self._split(self._decides, "pivot_switch")
        inputs = [self._split(tensor, f"switch_{i}") for i, tensor in enumerate(call.inputs[1:])]
        taken: list[Expansion] = []
        for i, (label, function) in enumerate(self._branches.items()):
            prefix = f"{call.name}/{label}"
            pivot = nodes.identity(sides[i], f"{prefix}/pivot").op
            given = tuple(outputs[i] for outputs in inputs)
            branch = yield Inlining(call, function, prefix, given, pivot=pivot)
            wanted = call.template.properties.output_dtypes
            check_dtypes(call, f"outputs of branch {function.name!r}", branch.outputs, wanted)
            taken.append(branch)
        outputs = tuple(self._merge(slot, taken) for slot in range(len(call.template.outputs)))
        return Expansion(outputs, lambda: self._make_end(sides, taken))

    def _split(self, tensor: Tensor, name: str) -> Sequence[Tensor]:
        """*tensor* for each branch: live for that which is taken."""
        op = "Switch"
        attrs: dict[str, object] = {"T": tensor.dtype.base_dtype}
        if self._decides.dtype.base_dtype is not as_dtype("bool"):
            op = "_SwitchN"
            attrs["num_outs"] = len(self._branches)
        shapes = [tensor.shape] * len(self._branches)
        name = f"{self._call.name}/{name}"
        return self._nodes.add(op, name, [tensor, self._decides], attrs=attrs, shapes=shapes).outputs

    def _merge(self, slot: int, taken: Sequence[Expansion]) -> Tensor:
        template = self._call.template
        attrs = {"T": template.properties.output_dtypes[slot].base_dtype, "N": len(taken)}
        shapes = [template.output_shapes[slot], SCALAR]
        inputs = [branch.outputs[slot] for branch in taken]
        return self._nodes.add("Merge", f"{self._call.name}/merge_{slot}", inputs, attrs=attrs, shapes=shapes).outputs[
            0
        ]

    def _make_end(self, sides: Sequence[Tensor], taken: Sequence[Expansion]) -> Node:
        """What runs when the branch that is taken has done all that it does."""
        name, nodes = self._call.name, self._nodes
        done = [nodes.identity(side, f"{name}/done", branch.end) for side, branch in zip(sides, taken, strict=True)]
        attrs = {"T": self._decides.dtype.base_dtype, "N": len(done)}
        return nodes.add("Merge", f"{name}/output_control", done, attrs=attrs, shapes=[SCALAR, SCALAR])
