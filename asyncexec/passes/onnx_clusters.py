"""Clusters of pure nodes that ONNX Runtime has kernels for, each of which becomes one node.

Theory
------
A *candidate* is a node that has a translation.  Along an edge from another node to a candidate the *level* grows by
one, if the other comes after a candidate, or after something that waits or has state; nowhere does it shrink.  Another
node is also a candidate that is translated to another version of ONNX's operator set, as a model has one version.  The
*conditions* of a node are the outputs of Switches, Merges and the like that it depends on without another such node
between: it runs if and only if all of them are live, and in the frame that they are in.  The candidates of one level
and the same conditions can be one node: a path between two of them that leaves the set would reach a higher level, or
more conditions, and neither goes back.  The same holds for the parts of such a set that have no edge in common, and it
is these that become clusters.  A constant is in none, and known to each.

A cluster is made if there is enough to multiply in it.  What others take of it is an output, and what is fetched keeps
its node, which becomes an Identity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import FEW, STRIDE, Stage
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import unknown
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.onnx_cluster import OnnxCluster, cluster_of, copies, translated
from asyncexec.passes.onnx_emitter import Emitter, Key, UntranslatableError, constant_of
from asyncexec.passes.onnx_nodes import opset_of
from asyncexec.passes.onnx_translations import HEAVY_OPS, TRANSLATIONS
from asyncexec.passes.onnx_variables import stand_in
from asyncexec.passes.pass_graph import PassGraph

_DTYPES: Final = frozenset({"float32", "int32", "int64", "bool"})
_MOST_INPUTS, _MOST_OUTPUTS = 4096, 512  # the executor delivers outputs one by one

OP_NAME: Final = "_OnnxCluster"
_OP_DEF: Final = OpDef(
    OP_NAME,
    (ArgDef("inputs", type_list_attr="Tin"),),
    (ArgDef("outputs", type_list_attr="Tout"),),
    {"Tin": AttrDef("Tin", "list(type)"), "Tout": AttrDef("Tout", "list(type)")},
    is_stateful=True,  # no pass merges or folds it
)


@dataclass(frozen=True, slots=True)
class ClusterRegistration(OpRegistration):
    """The op of one cluster."""

    cluster: OnnxCluster | None = None

    @property
    def ops(self) -> Iterable[str]:
        """Those of its members."""
        return () if self.cluster is None else {call.node.op for call in self.cluster.calls}


class OnnxClusters:
    """The pass.

    Args:
        min_work: multiplications from which on a cluster is made, where unknown sizes are 1.
    """

    __name__ = ""  # it has no name by which it could be left out the second time

    def __init__(self, min_work: float) -> None:
        self._min_work = min_work

    def __call__(self, graph: PassGraph) -> Stage[None]:
        yield from fold_constants(graph)  # translations ask for axes and sizes that are known
        finder = _Finder(graph)
        clusters = yield from finder.run()
        for members in clusters:
            yield from _Replacement(graph, members, finder.variables).make(self._min_work)
            yield

    def applies(self, nodes: Sequence[Node]) -> Stage[bool]:
        """Whether there is enough to multiply in *nodes* for one cluster, as a stage."""
        emitter = Emitter(lambda _: False)
        for count, node in enumerate(nodes):
            if node.op in HEAVY_OPS:
                with contextlib.suppress(UntranslatableError):
                    TRANSLATIONS[node.op](emitter, node)
                if emitter.work >= self._min_work:
                    return True
            if not count % STRIDE:
                yield
        return False


class _Finder:
    """Finds the clusters of one graph."""

    def __init__(self, graph: PassGraph) -> None:
        self._graph = graph
        self._levels: dict[Node, int] = {}
        self._conditions: dict[Node, frozenset[Key]] = {}
        self._part_of: dict[Node, list[Node]] = {}  # of candidates, with those that they have an edge in common with
        self.variables: dict[Key, Array] = {}  # by the tensors that have their values: what stands for these

    def run(self) -> Stage[list[list[Node]]]:
        """The members of each cluster, as a stage."""
        order: dict[Node, int] = {}
        for count, node in enumerate(self._graph):
            order[node] = count
            self._visit(node)
            if not count % FEW:
                yield
        parts = {id(part): part for part in self._part_of.values()}
        found = [part for part in parts.values() if any(node.op in HEAVY_OPS for node in part)]
        return [sorted(part, key=order.__getitem__) for part in found]

    def _visit(self, node: Node) -> None:
        graph, levels, part_of = self._graph, self._levels, self._part_of
        if node.op == "Const" and not node.control_inputs:
            return
        sources = [tensor for tensor in node.inputs if not graph.is_fed(tensor) and tensor.op in levels]
        before = [*(tensor.op for tensor in sources), *(other for other in node.control_inputs if other in levels)]
        conditions = self._conditions_of(sources, node.control_inputs)
        self._conditions[node] = conditions
        for tensor in node.outputs[:1]:
            found = stand_in(self._graph, tensor)
            if found is not None:
                self.variables[tensor.op, tensor.index] = found
        if not self._is_candidate(node):
            level = max((levels[source] for source in before), default=-1)
            facts = graph.facts.of(node)
            waits = not (facts.is_pure or facts.is_flow or not node.inputs)
            levels[node] = max(level, 0) if waits else level
            return
        part_of[node] = [node]
        opset = opset_of(node)
        alike = {source for source in before if source in part_of and opset_of(source) == opset}
        level = max((levels[source] + (source not in alike) for source in before), default=0)
        levels[node] = level = max(level, 0)
        for source in before:
            if source in alike and levels[source] == level and self._conditions[source] == conditions:
                self._join(part_of[source], part_of[node])

    def _conditions_of(self, sources: Iterable[Tensor], controls: Iterable[Node]) -> frozenset[Key]:
        facts = self._graph.facts
        found: frozenset[Key] = frozenset()
        for op, index in (*((tensor.op, tensor.index) for tensor in sources), *((other, -1) for other in controls)):
            added = frozenset([(op, index)]) if facts.of(op).is_flow else self._conditions.get(op, found)
            found = found if added <= found else added if found <= added else found | added
        return found

    def _is_candidate(self, node: Node) -> bool:
        graph = self._graph
        translation = TRANSLATIONS.get(node.op)
        if translation is None or node.control_inputs or not graph.is_taken(node):
            return False
        dtypes = (*node.properties.input_dtypes, *node.properties.output_dtypes[:1])
        if any(dtype.is_ref or dtype.name not in _DTYPES for dtype in dtypes):
            return False
        if any(tensor.op.properties.output_dtypes[tensor.index].is_ref for tensor in node.inputs):
            return False
        if not graph.runs_on_host(node) or (graph.placement is not None and graph.placement.device_of(node).is_remote):
            return False
        if graph.is_kept(node) and (len(node.outputs) > 1 or graph.is_fed(node.outputs[0]) or node in graph.targets):
            return False
        if node.op.startswith("FusedBatchNorm") and any(graph.consumers(tensor) for tensor in node.outputs[1:]):
            return False
        if constant_of(node.outputs[0], graph.is_fed, self.variables) is not None:
            return False
        try:
            translation(Emitter(graph.is_fed, self.variables), node)
        except UntranslatableError:
            return False
        return True

    def _join(self, one: list[Node], other: list[Node]) -> None:
        if one is not other:
            small, large = sorted((one, other), key=len)
            large += small
            self._part_of.update(dict.fromkeys(small, large))


class _Replacement:
    """One cluster, and the node in its place."""

    def __init__(self, graph: PassGraph, members: Sequence[Node], variables: Mapping[Key, Array]) -> None:
        self._graph = graph
        self._members = members
        self._variables = variables
        self._inside = set(members)

    def make(self, min_work: float) -> Stage[None]:
        """Put a node in the place of the members, where there is enough to multiply in them."""
        graph = self._graph
        outputs = yield from self._outputs()  # members take what has taken the place of their inputs from here on
        copied = yield from copies(self._members)
        members = list(copied.values())
        gives = [copied[tensor.op].outputs[tensor.index] for tensor in outputs]
        fed = frozenset((tensor.op, tensor.index) for tensor in graph.feeds)
        translation = yield from translated(members, gives, fed, self._variables)
        inputs = (*translation.inputs, *translation.variables)
        if translation.work < min_work or len(inputs) > _MOST_INPUTS or len(outputs) > _MOST_OUTPUTS:
            return
        heavy = [node for node in self._members if node.op in HEAVY_OPS]
        name = f"{heavy[-1].name}/onnx"
        cluster = yield from cluster_of(name, members, gives, translation)
        registration = ClusterRegistration(_OP_DEF, unknown, cluster=cluster)
        takes, given = (tuple(tensor.dtype.base_dtype for tensor in each) for each in (inputs, outputs))
        properties = NodeProperties(registration, {"Tin": takes, "Tout": given}, takes, given)
        shapes = [tensor.shape for tensor in outputs]
        yield from self._replace(graph.make(properties, name, inputs, (), like=heavy[-1], shapes=shapes), outputs)

    def _outputs(self) -> Stage[list[Tensor]]:
        """What others take of the members."""
        graph, inside = self._graph, self._inside
        found: list[Tensor] = []
        for count, node in enumerate(self._members):
            if not count % STRIDE:
                yield
            users = [user for user in graph.consumers(node) if user not in inside]
            for tensor in node.outputs:
                is_taken = any(taken is tensor for user in users for taken in user.inputs)
                if is_taken or any(fetch is tensor for fetch in graph.fetches):
                    found.append(tensor)
        return found

    def _replace(self, made: Node, outputs: Sequence[Tensor]) -> Stage[None]:
        graph = self._graph
        taken: dict[Node, dict[int, Tensor]] = {}
        for tensor, instead in zip(outputs, made.outputs, strict=True):
            taken.setdefault(tensor.op, {})[tensor.index] = instead
        for count, node in enumerate(self._members):
            if not count % STRIDE:
                yield
            given = taken.get(node, {})
            if graph.is_kept(node):
                properties = properties_of(op_registry.lookup("Identity"), {"T": given[0].dtype})
                graph.convert(node, properties, [given[0]], (), shapes=node.output_shapes)
                continue
            if given:
                graph.replace_tensors(node, given)
            if graph.is_waited_for(node):
                graph.replace_control(node, made)
