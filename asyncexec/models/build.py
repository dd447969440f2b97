"""ModelData -> a Graph, and the runs that make it ready."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.errors import NotFoundError, OpError
from asyncexec.framework.op_registry import registry
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_ends import PLACEHOLDERS, output_nodes
from asyncexec.graph.graph_import import import_graph_def
from asyncexec.importers.saved_model import SignatureDef, TensorInfo
from asyncexec.models.model_data import InitStep, ModelData, all_nodes
from asyncexec.ops.io.file_ops import FILE_OPS

if TYPE_CHECKING:
    from asyncexec.session.direct_session import Session

DEFAULT_SIGNATURE: Final = "serving_default"
_SHOWN: Final = 20


def build_graph(data: ModelData, *, allowed_ops: Collection[str] = ()) -> Graph:
    """The graph of *data*; its ops read files in the folder of the model alone, and write none.

    Raises:
        NotFoundError: it has ops that are not there, all of which are named.
        OpError: as of ``import_graph_def``.
    """
    _check_ops(data)
    graph = Graph()
    more = FILE_OPS if data.folder is not None else frozenset[str]()
    import_graph_def(graph, data.graph_def, allowed_ops=(*allowed_ops, *more))
    graph.files.allow_ops(allowed_ops)
    if data.folder is not None:
        graph.files.allow_folder(data.folder, writes=False)
    return graph


def _check_ops(data: ModelData) -> None:
    """NotFoundError, which names all ops that are not there, each with a node."""
    library = data.graph_def.library
    functions = {function.signature.name for function in library.function} if library else set[str]()
    missing: dict[str, str] = {}
    for node in all_nodes(data.graph_def):
        if node.op and node.op not in registry and node.op not in functions:
            missing.setdefault(node.op, node.name)
    if len(missing) > 1:
        shown = [f"{op!r} (node {name!r})" for op, name in list(missing.items())[:_SHOWN]]
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        near = [f"{' or '.join(found)} for {op}" for op in list(missing)[:_SHOWN] if (found := registry.nearest(op))]
        hint = f"did you mean {', '.join(near)}?" if near else None
        raise NotFoundError(f"Op types not registered: {', '.join(shown)}{more}", hint=hint)


def signatures_of(data: ModelData, graph: Graph) -> Mapping[str, SignatureDef]:
    """The signatures of *data*, whose tensors are in *graph*.

    Raises:
        NotFoundError, InvalidArgumentError: the graph has no such tensor.
    """
    for name, signature in data.signatures.items():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            try:
                graph.tensor(info.name)
            except OpError as error:
                raise type(error)(f"signature {name!r}: {error.message}", hint=error.hint) from None
    return data.signatures or {DEFAULT_SIGNATURE: _signature_of(graph)}


def _signature_of(graph: Graph) -> SignatureDef:
    """The placeholders, and what nothing consumes, by the names of their nodes."""
    inputs = {node.name: node.outputs[0] for node in graph.operations if node.op in PLACEHOLDERS}
    outputs: dict[str, object] = {}
    for node in output_nodes(graph.operations):
        for tensor in node.outputs:
            outputs[node.name if len(node.outputs) == 1 else tensor.name] = tensor
    return SignatureDef(_infos(inputs), _infos(outputs), "")


def _infos(tensors: Mapping[str, Any]) -> dict[str, TensorInfo]:
    return {name: TensorInfo(each.name, each.dtype, each.shape) for name, each in tensors.items()}


async def initialize(session: Session, steps: Sequence[InitStep]) -> None:
    """Run *steps* in *session*, whose graph is that of the model."""
    for step in steps:
        await session.run([], step.feeds, targets=[step.op])
        if step.checkpoint is not None:
            await session.restore_unset(step.checkpoint)
